"""Predicates and accessors that passes share, and rewriting that keeps types."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator

from weft import ir
from weft.ir.analysis import known_type
from weft.ir.traits import NO_TRAITS
from weft.ir.typing.infer import typed_call
from weft.ir.visitor import enters, is_primitive  # noqa: F401 - passes import both from here
from weft.support.errors import InternalError


def op_name(expr: ir.Expr) -> str:
    """The name of the operator that ``expr`` calls, or the empty string."""
    return expr.op.name if isinstance(expr, ir.Call) and isinstance(expr.op, ir.Op) else ""


def traits_of(expr: ir.Expr) -> ir.OpTraits:
    """The traits of the operator that ``expr`` calls; the defaults for any other expression."""
    if isinstance(expr, ir.Call) and isinstance(expr.op, ir.Op):
        return expr.op.traits
    return NO_TRAITS


def is_reshape(expr: ir.Expr) -> bool:
    """Whether ``expr`` is a call whose result aliases its one argument under another shape."""
    return traits_of(expr).is_reshape


def type_of(expr: ir.Expr) -> ir.Type:
    """The type of a node of a typed program; ``InternalError`` if inference was not run."""
    found = known_type(expr)
    if found is None:
        raise InternalError("a pass met an expression without a type", where=expr.span,
                            got=type(expr).__name__, help="run infer_type first")
    return found


def tensor_type_of(expr: ir.Expr) -> ir.TensorType:
    found = type_of(expr)
    if not isinstance(found, ir.TensorType):
        raise InternalError("a pass expected a tensor", where=expr.span, got=str(found))
    return found


def parts_of(type_: ir.Type) -> Iterator[ir.Type]:
    """``type_`` and all component types, each once."""
    seen = {type_}
    pending = [type_]
    while pending:
        current = pending.pop()
        yield current
        for part in ir.component_types(current):
            if part not in seen:
                seen.add(part)
                pending.append(part)


def holds_function(type_: ir.Type) -> bool:
    """Whether ``type_`` is or contains a function type."""
    return any(isinstance(part, ir.FuncType) for part in parts_of(type_))


def shape_of(expr: ir.Expr) -> ir.Shape:
    return tensor_type_of(expr).shape


def is_known_tensor(expr: ir.Expr) -> bool:
    """Whether the type is inferred, and is a tensor type."""
    return isinstance(known_type(expr), ir.TensorType)


def is_constant(expr: ir.Expr) -> bool:
    """Whether ``expr`` is a constant, or a tuple of constants."""
    if isinstance(expr, ir.Tuple):
        return all(isinstance(f, ir.Constant) for f in expr.fields)
    return isinstance(expr, ir.Constant)


def rewrite_typed(root: ir.Expr, fn: Callable[[ir.Expr, ir.Expr], ir.Expr],
                  kinds: Collection[type[ir.Expr]] | None = None) -> ir.Expr:
    """Replace each node by ``fn(original, rebuilt)``, in post-order.

    ``rebuilt`` is the node over its replaced operands. It and the result keep the type of the
    original, which is right for rewriting by expressions of equal type. Primitive functions are
    not entered. With ``kinds``, ``fn`` is asked for nodes of these kinds alone.
    """
    changed: dict[ir.Expr, ir.Expr] = {}
    for node in ir.post_order(root, enter=enters):
        rebuilt = node
        if changed:
            parts = ir.children(node)
            if not changed.keys().isdisjoint(parts):
                rebuilt = ir.replace_children(node, [changed.get(part, part) for part in parts])
        result = fn(node, rebuilt) if kinds is None or type(node) in kinds else rebuilt
        if result is not node:
            if result.checked_type is None and node.checked_type is not None:
                made = ir.rewrite_post_order(result, typed_call, enter=_is_untyped)
                result = made.with_type(node.checked_type)
            changed[node] = result
    return changed.get(root, root)


def _is_untyped(expr: ir.Expr) -> bool:
    return expr.checked_type is None


def rewrite_function(fn: ir.Function, step: Callable[[ir.Expr, ir.Expr], ir.Expr],
                     kinds: Collection[type[ir.Expr]] | None = None) -> ir.Function:
    """``rewrite_typed`` for a whole function."""
    return as_function(rewrite_typed(fn, step, kinds))


def as_function(expr: ir.Expr) -> ir.Function:
    if not isinstance(expr, ir.Function):
        raise InternalError("a pass replaced a function by something else", got=type(expr).__name__)
    return expr


def over_new_children(node: ir.Expr, new: Callable[[ir.Expr], ir.Expr]) -> ir.Expr:
    """``node`` with each child replaced by ``new(child)`` of the same type.

    Returns ``node`` itself if it is a primitive function or no child changes.
    """
    parts = ir.children(node)
    if not parts or not enters(node):
        return node
    return ir.replace_children(node, [new(part) for part in parts])
