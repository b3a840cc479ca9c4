"""Give names to sizes that data determines, so that later operators are typed with symbols."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import ClassVar

from weft.ir.dynamic import Bounds
from weft.ir.expr import Call, Expr, Function, Tuple, TupleGetItem
from weft.ir.module import IRModule
from weft.ir.op import Op, get_op
from weft.ir.passes import FunctionPass, PassContext, register_pass
from weft.ir.shape import Dim, SymDim, bounds_of
from weft.ir.symbol import SizeRange, name_of, symbol_text
from weft.ir.types import TensorType, TupleType, Type, component_types, has_any
from weft.ir.typing.infer import infer_expr
from weft.ir.visitor import children, post_order, rebuild
from weft.support.dataclass import dataclass
from weft.transform.analysis.graph import as_function, enters, known_type


@register_pass
@dataclass(frozen=True)
class BindDataSizes(FunctionPass):
    """Name the sizes that operators count at run time, and infer types again from there.

    The result of an operator with ``bounds`` (``argwhere``, ``unique``, non-maximum suppression)
    gets a fresh symbol for each count, with the bound as its range: an *unbacked* symbol of
    torch.export, which no input determines. Compiled programs read it from memory once the
    operator has run. Operators that count along another axis than the first are left alone.

    def @main(%x: Tensor[(2, 3), float32]) { argwhere(%x) }
    =>
    def @main(%x: Tensor[(2, 3), float32]) {
      annotation.match_cast(argwhere(%x), shape=[u0{0..6}, 2])
    }
    """

    name: ClassVar[str] = "bind_data_sizes"

    def run(self, fn: Function, ctx: PassContext) -> Function:  # noqa: ARG002
        if not any(map(_counts, post_order(fn, enter=enters))):
            return fn
        names = _fresh_names(fn)
        memo: dict[Expr, Expr] = {}
        for node in post_order(fn, enter=enters):
            memo[node] = _visit(node, memo, names)
        after = as_function(memo[fn])
        is_open = after.ret_type is not None and _is_open(after.ret_type)
        return after.replace(ret_type=None) if is_open else after


def counts_data(mod: IRModule) -> bool:
    """Whether a function of the module has an operator that counts its results."""
    return any(_counts(node) for function in mod.functions.values()
               if isinstance(function, Function) for node in post_order(function, enter=enters))


def _counts(node: Expr) -> bool:
    return isinstance(node, Call) and isinstance(node.op, Op) and node.op.hook("bounds") is not None


def _visit(node: Expr, memo: dict[Expr, Expr], names: Iterator[str]) -> Expr:
    if enters(node):
        rebuilt = rebuild(node, [memo[c] for c in children(node)])
        if rebuilt is not node and isinstance(rebuilt, Call):
            rebuilt = infer_expr(rebuilt, trust=True)
        node = rebuilt
    if not isinstance(node, Call) or not _counts(node):
        return node
    types = [known_type(arg) for arg in node.args]
    if any(type_ is None or _is_open(type_) for type_ in types):
        return node
    bounds: Bounds = node.op.hook("bounds")(node.attrs, types)  # type: ignore[union-attr]
    if any(axis != 0 for _, axis, _ in bounds.counted):
        return node
    return _named(node, bounds, names)


def _named(call: Call, bounds: Bounds, names: Iterator[str]) -> Expr:
    """The results of a call, with a symbol for each count."""
    symbols: dict[int, Dim] = {}
    shapes = {number: list(type_.shape) for number, type_ in enumerate(bounds.types)}
    counted = set()
    for result, axis, which in bounds.counted:
        if which not in symbols:
            high = bounds_of(shapes[result][axis])[1]
            symbols[which] = SymDim.symbol(symbol_text(next(names), SizeRange(0, high)))
        shapes[result][axis] = symbols[which]
        counted.add(result)
    is_tuple = isinstance(known_type(call), TupleType)
    fields: list[Expr] = []
    for number, shape in shapes.items():
        part: Expr = TupleGetItem(call, number, span=call.span) if is_tuple else call
        if number in counted:
            cast = get_op("annotation.match_cast")(part, shape=tuple(shape))
            part = cast.replace(span=call.span)
        fields.append(part)
    made = Tuple(tuple(fields), span=call.span) if is_tuple else fields[0]
    return infer_expr(made, trust=True)


def _fresh_names(fn: Function) -> Iterator[str]:
    """``u0``, ``u1``, ... without the symbols of the function."""
    nodes = (*fn.params, *post_order(fn.body))
    known = {name_of(symbol) for node in nodes for tensor in _tensors(known_type(node))
             for dim in tensor.shape if isinstance(dim, SymDim) for symbol in dim.symbols()}
    return (name for name in map("u{}".format, itertools.count()) if name not in known)


def _is_open(type_: Type) -> bool:
    return any(has_any(tensor.shape) for tensor in _tensors(type_))


def _tensors(type_: Type | None) -> Iterator[TensorType]:
    pending = [] if type_ is None else [type_]
    while pending:
        current = pending.pop()
        if isinstance(current, TensorType):
            yield current
        pending.extend(component_types(current))
