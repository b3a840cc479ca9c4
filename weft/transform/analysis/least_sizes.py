"""The least sizes that the operators of a program accept.

Types with symbolic sizes do not restrict small ones: a maximum over ``n`` rows needs a row, a
window of 3 needs three elements. Type relations check this for numbers. So the analysis replaces a
size of a call by numbers, and the other sizes by typical ones, and asks the relation.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from weft import ir
from weft.ir.symbol import TYPICAL_SIZE, name_of
from weft.runtime.sizes import names_in
from weft.support.errors import WeftError

# Whether an operator accepts operands of these sizes.
Takes: TypeAlias = Callable[[Mapping[ir.Dim, int]], bool]


def least_sizes(mod: ir.IRModule) -> tuple[ir.SymDim, ...]:
    """Sizes that must be 0 or more for every operator of ``main`` to accept its operands.

    Operators in branches and functions are left out, as a branch may test the size.
    """
    known: dict[object, tuple[ir.SymDim, ...]] = {}
    found: dict[ir.SymDim, None] = {}
    for node in ir.post_order(mod["main"].body, enter=_is_always_run):
        if not isinstance(node, ir.Call) or not isinstance(node.op, ir.Op):
            continue
        types = tuple(arg.checked_type for arg in node.args)
        # Types determine the attributes with sizes, and attributes whose meaning differs for
        # numbers.
        if not any(map(_dims, types)) or _has_sizes(node.attrs) or node.op.hook("bind_sizes"):
            continue
        key = (node.op.name, node.attrs, types)
        if key not in known:
            known[key] = tuple(_needed(node.op, node.attrs, types))
        found.update(dict.fromkeys(known[key]))
    return tuple(found)


def with_least_sizes(mod: ir.IRModule) -> ir.IRModule:
    """The module with ``least_sizes`` among its conditions, where the inputs determine them."""
    given = {name_of(symbol) for param in mod["main"].params for dim in _dims(param.checked_type)
             for symbol in dim.symbols()}
    before = mod.attrs.get("size_conditions", ())
    texts = (str(ir.size_of_dim(size)) for size in least_sizes(mod))
    added = [text for text in texts if names_in(text) <= given and text not in before]
    if not added:
        return mod
    return dataclasses.replace(mod, attrs={**mod.attrs, "size_conditions": (*before, *added)})


def _is_always_run(node: ir.Expr) -> bool:
    return not isinstance(node, (ir.Function, ir.If, ir.Match))


def _needed(op: ir.Op, attrs: ir.Attrs, types: tuple[ir.Type | None, ...]) -> Iterator[ir.SymDim]:
    """For each size of the operands, the size minus the least one that the operator accepts.

    Sizes that share a symbol change together: a gradient takes images of height ``h`` and results
    of height ``h - 2``. So the analysis varies symbols, and sizes without symbols on their own.
    """
    dims = list(dict.fromkeys(dim for type_ in types for dim in _dims(type_)))

    def takes(sizes: Mapping[ir.Dim, int]) -> bool:
        return _takes(op, attrs, types, sizes)

    for dim in dims:
        if not any(other is not dim and other.symbols() & dim.symbols() for other in dims):
            yield from _needed_of_dim(dim, dims, takes)
    shared = [dim for dim in dims if any(
        other is not dim and other.symbols() & dim.symbols() for other in dims)]
    for symbol in sorted({symbol for dim in shared for symbol in dim.symbols()}):
        yield from _needed_of_symbol(symbol, dims, takes)


def _needed_of_dim(dim: ir.SymDim, dims: Sequence[ir.SymDim], takes: Takes) -> Iterator[ir.SymDim]:
    # The typical value of a size such as max(9 - n, 0) may be one that no operator accepts.
    usual: tuple[dict[ir.Dim, int], ...] = ({one: ir.typical_size(one) for one in dims},
                                            dict.fromkeys(dims, TYPICAL_SIZE))
    typical = next(filter(takes, usual), None)
    if typical is None:
        return  # the sizes depend on each other
    low = max(ir.bounds_of(dim)[0] or 0, 0)
    least = _least(lambda size: takes({**typical, dim: size}), low, typical[dim])
    more = ir.dim_sub(dim, least)
    if least > low and isinstance(more, ir.SymDim):
        yield more


def _needed_of_symbol(symbol: str, dims: Sequence[ir.SymDim], takes: Takes) -> Iterator[ir.SymDim]:
    """The least value of a symbol, unless it depends on the values of other symbols."""
    others = {one for dim in dims for one in dim.symbols()} - {symbol}
    low, found = max(ir.range_of(symbol).low, 0), set[int]()
    for factor in (1, 2):
        values = {one: ir.range_of(one).nearest(factor * TYPICAL_SIZE) for one in others}

        def fits(value: int, values: Mapping[str, int] = values) -> bool:
            sizes = {dim: ir.substitute_dim(dim, {**values, symbol: value}) for dim in dims}
            return all(isinstance(size, int) and size >= 0 for size in sizes.values()) \
                and takes(sizes)  # type: ignore[arg-type]

        typical = ir.range_of(symbol).typical
        if not fits(typical):
            return  # the other sizes need other values
        found.add(_least(fits, low, typical))
    more = ir.dim_sub(ir.SymDim.symbol(symbol), min(found))
    if len(found) == 1 and min(found) > low and isinstance(more, ir.SymDim):
        yield more


def _least(fits: Callable[[int], bool], low: int, high: int) -> int:
    """The least size from ``low`` on that fits; ``high`` fits, or is at most ``low``."""
    if low >= high or fits(low):
        return low
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if fits(middle) else (middle, high)
    return high


def _takes(op: ir.Op, attrs: ir.Attrs, types: tuple[ir.Type | None, ...],
           sizes: Mapping[ir.Dim, int]) -> bool:
    args = tuple(ir.Var(f"x{n}", _at(type_, sizes)) for n, type_ in enumerate(types))
    try:
        ir.infer_expr(ir.Call(op, args, attrs))
    except WeftError:
        return False
    return True


def _at(type_: ir.Type | None, sizes: Mapping[ir.Dim, int]) -> ir.Type | None:
    if isinstance(type_, ir.TensorType):
        return ir.TensorType(tuple(sizes.get(dim, dim) for dim in type_.shape), type_.dtype)
    if isinstance(type_, ir.TupleType):
        fields = tuple(_at(field, sizes) for field in type_.fields)
        return ir.TupleType(fields)  # type: ignore[arg-type]
    return type_


def _dims(type_: ir.Type | None) -> tuple[ir.SymDim, ...]:
    if isinstance(type_, ir.TensorType):
        return tuple(dim for dim in type_.shape if isinstance(dim, ir.SymDim))
    if isinstance(type_, ir.TupleType):
        return tuple(dim for field in type_.fields for dim in _dims(field))
    return ()


def _has_sizes(value: Any) -> bool:
    """Whether attributes hold a symbolic size."""
    if isinstance(value, ir.Attrs):
        return any(_has_sizes(getattr(value, name)) for name in type(value).__dataclass_fields__)
    if isinstance(value, (tuple, list)):
        return any(map(_has_sizes, value))
    return isinstance(value, ir.SymDim)
