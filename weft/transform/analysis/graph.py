"""Predicates and accessors that passes share, and rewriting that keeps types."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from weft.ir.analysis import known_type
from weft.ir.expr import Call, Constant, Expr, Function, Tuple
from weft.ir.op import Op
from weft.ir.shape import Shape
from weft.ir.traits import NO_TRAITS, OpTraits
from weft.ir.types import FuncType, TensorType, Type, component_types
from weft.ir.visitor import children, post_order, replace_children
from weft.support.errors import InternalError


def op_name(expr: Expr) -> str:
    """The name of the operator that ``expr`` calls, or the empty string."""
    return expr.op.name if isinstance(expr, Call) and isinstance(expr.op, Op) else ""


def traits_of(expr: Expr) -> OpTraits:
    """The traits of the operator that ``expr`` calls; the defaults for any other expression."""
    if isinstance(expr, Call) and isinstance(expr.op, Op):
        return expr.op.traits
    return NO_TRAITS


def is_reshape(expr: Expr) -> bool:
    """Whether ``expr`` is a call whose result aliases its one argument under another shape."""
    return traits_of(expr).is_reshape


def is_primitive(expr: Expr) -> bool:
    """Whether ``expr`` is a function that becomes one kernel."""
    return isinstance(expr, Function) and bool(expr.attrs.get("primitive"))


def type_of(expr: Expr) -> Type:
    """The type of a node of a typed program; ``InternalError`` if inference was not run."""
    found = known_type(expr)
    if found is None:
        raise InternalError(
            "a pass met an expression without a type",
            where=expr.span,
            got=type(expr).__name__,
            help="run infer_type first",
        )
    return found


def tensor_type_of(expr: Expr) -> TensorType:
    found = type_of(expr)
    if not isinstance(found, TensorType):
        raise InternalError("a pass expected a tensor", where=expr.span, got=str(found))
    return found


def parts_of(type_: Type) -> Iterator[Type]:
    """``type_`` and all component types, each once."""
    seen = {type_}
    pending = [type_]
    while pending:
        current = pending.pop()
        yield current
        for part in component_types(current):
            if part not in seen:
                seen.add(part)
                pending.append(part)


def holds_function(type_: Type) -> bool:
    """Whether ``type_`` is or contains a function type."""
    return any(isinstance(part, FuncType) for part in parts_of(type_))


def shape_of(expr: Expr) -> Shape:
    return tensor_type_of(expr).shape


def is_known_tensor(expr: Expr) -> bool:
    """Whether the type is inferred, and is a tensor type."""
    return isinstance(known_type(expr), TensorType)


def is_constant(expr: Expr) -> bool:
    """Whether ``expr`` is a constant, or a tuple of constants."""
    if isinstance(expr, Tuple):
        return all(isinstance(f, Constant) for f in expr.fields)
    return isinstance(expr, Constant)


def enters(expr: Expr) -> bool:
    """Whether a pass over a program visits the inside of ``expr``: not for primitive functions."""
    return not is_primitive(expr)


def rewrite_typed(root: Expr, fn: Callable[[Expr, Expr], Expr]) -> Expr:
    """Replace each node by ``fn(original, rebuilt)``, in post-order.

    ``rebuilt`` is the node over its replaced operands. It and the result keep the type of the
    original, which is right for rewriting by expressions of equal type. Primitive functions are
    not entered.
    """
    memo: dict[int, Expr] = {}
    for node in post_order(root, enter=enters):
        result = fn(node, over_new_children(node, lambda c: memo[id(c)]))
        if result.checked_type is None and node.checked_type is not None:
            result = result.with_type(node.checked_type)
        memo[id(node)] = result
    return memo[id(root)]


def rewrite_function(fn: Function, step: Callable[[Expr, Expr], Expr]) -> Function:
    """``rewrite_typed`` for a whole function."""
    return as_function(rewrite_typed(fn, step))


def as_function(expr: Expr) -> Function:
    if not isinstance(expr, Function):
        raise InternalError("a pass replaced a function by something else", got=type(expr).__name__)
    return expr


def over_new_children(node: Expr, new: Callable[[Expr], Expr]) -> Expr:
    """``node`` with each child replaced by ``new(child)`` of the same type.

    Returns ``node`` itself if it is a primitive function or no child changes.
    """
    if not enters(node):
        return node
    return replace_children(node, [new(child) for child in children(node)])
