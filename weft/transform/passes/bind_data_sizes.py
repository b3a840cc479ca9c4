"""Give names to sizes that data determines, so that later operators are typed with symbols."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Mapping
from typing import ClassVar

from weft import ir
from weft.ir.symbol import name_of, symbol_text
from weft.support.dataclass import dataclass
from weft.transform.analysis.graph import as_function, enters, known_type, op_name

# The operator that names a size.
MATCH_CAST = "annotation.match_cast"


@ir.register_pass
@dataclass(frozen=True)
class BindDataSizes(ir.FunctionPass):
    """Name the sizes that operators count at run time, and infer types again from there.

    The result of an operator with ``bounds`` (``argwhere``, ``unique``, non-maximum suppression)
    gets a fresh symbol for each count, with the bound as its range: an *unbacked* symbol of
    torch.export, which no input determines. Compiled programs read it from memory once the
    operator has run. Operators that count along another axis than the first are left alone, and
    so are those whose sizes a front end has named.

    def @main(%x: Tensor[(2, 3), float32]) { argwhere(%x) }
    =>
    def @main(%x: Tensor[(2, 3), float32]) {
      annotation.match_cast(argwhere(%x), shape=[u0{0..6}, 2])
    }
    """

    name: ClassVar[str] = "bind_data_sizes"
    seeks: ClassVar[ir.Seeks] = ir.Seeks(hooks=("bounds",))

    def run(self, fn: ir.Function, ctx: ir.PassContext) -> ir.Function:  # noqa: ARG002
        if not any(map(_counts, ir.post_order(fn, enter=enters))):
            return fn
        names, memo = _fresh_names(fn), dict[ir.Expr, ir.Expr]()
        done = _named_before(fn)
        for node in ir.post_order(fn, enter=enters):
            memo[node] = _visit(node, memo, names, done)
        after = as_function(memo[fn])
        is_open = after.ret_type is not None and _is_open(after.ret_type)
        return after.replace(ret_type=None) if is_open else after


def counts_data(mod: ir.IRModule) -> bool:
    """Whether a function of the module has an operator that counts its results."""
    return any(_counts(node) for function in mod.functions.values()
               if isinstance(function, ir.Function)
               for node in ir.post_order(function, enter=enters))


def _counts(node: ir.Expr) -> bool:
    return isinstance(node, ir.Call) and isinstance(node.op,
                                                    ir.Op) and node.op.hook("bounds") is not None


def _named_before(fn: ir.Function) -> set[ir.Expr]:
    """The calls whose counts have names: ``match_cast`` takes them, or one of their results."""
    casts = (node.args[0] for node in ir.post_order(fn, enter=enters)
             if isinstance(node, ir.Call) and op_name(node) == MATCH_CAST)
    return {x.tuple_value if isinstance(x, ir.TupleGetItem) else x for x in casts}


def _visit(node: ir.Expr, memo: Mapping[ir.Expr, ir.Expr], names: Iterator[str],
           done: Collection[ir.Expr]) -> ir.Expr:
    is_named = node in done
    if enters(node):
        rebuilt = ir.rebuild(node, [memo[c] for c in ir.children(node)])
        if rebuilt is not node and isinstance(rebuilt, ir.Call):
            rebuilt = ir.infer_expr(rebuilt, trust=True)
        node = rebuilt
    if is_named or not isinstance(node, ir.Call) or not _counts(node):
        return node
    return with_names(node, names)


def with_names(node: ir.Call, names: Iterator[str]) -> ir.Expr:
    """The results of a typed call, with a symbol of ``names`` for each size that it counts.

    The call itself, where the sizes of its arguments are unknown, or it counts along another axis
    than the first.
    """
    types = [known_type(arg) for arg in node.args]
    if any(type_ is None or _is_open(type_) for type_ in types):
        return node
    bounds: ir.Bounds = node.op.hook("bounds")(node.attrs, types)  # type: ignore[union-attr]
    if any(axis != 0 for _, axis, _ in bounds.counted):
        return node
    return _named(node, bounds, names)


def _named(call: ir.Call, bounds: ir.Bounds, names: Iterator[str]) -> ir.Expr:
    """The results of a call, with a symbol for each count."""
    symbols: dict[int, ir.Dim] = {}
    shapes = {number: list(type_.shape) for number, type_ in enumerate(bounds.types)}
    counted = set()
    for result, axis, which in bounds.counted:
        if which not in symbols:
            high = ir.bounds_of(shapes[result][axis])[1]
            symbols[which] = ir.SymDim.symbol(symbol_text(next(names), ir.SizeRange(0, high)))
        shapes[result][axis] = symbols[which]
        counted.add(result)
    is_tuple = isinstance(known_type(call), ir.TupleType)
    fields: list[ir.Expr] = []
    for number, shape in shapes.items():
        part: ir.Expr = ir.TupleGetItem(call, number, span=call.span) if is_tuple else call
        if number in counted:
            cast = ir.get_op(MATCH_CAST)(part, shape=tuple(shape))
            part = cast.replace(span=call.span)
        fields.append(part)
    made = ir.Tuple(tuple(fields), span=call.span) if is_tuple else fields[0]
    return ir.infer_expr(made, trust=True)


def _fresh_names(fn: ir.Function) -> Iterator[str]:
    """``u0``, ``u1``, ... without the symbols of the function."""
    nodes = (*fn.params, *ir.post_order(fn.body))
    known = {name_of(symbol) for node in nodes for tensor in _tensors(known_type(node))
             for dim in tensor.shape if isinstance(dim, ir.SymDim) for symbol in dim.symbols()}
    return (name for name in map("u{}".format, itertools.count()) if name not in known)


def _is_open(type_: ir.Type) -> bool:
    return any(ir.has_any(tensor.shape) for tensor in _tensors(type_))


def _tensors(type_: ir.Type | None) -> Iterator[ir.TensorType]:
    pending = [] if type_ is None else [type_]
    while pending:
        current = pending.pop()
        if isinstance(current, ir.TensorType):
            yield current
        pending.extend(ir.component_types(current))
