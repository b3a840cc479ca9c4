"""The least sizes that the operators of a program take.

Types of symbolic sizes say nothing of small ones: a maximum over ``n`` rows needs a row, a window
of 3 needs three elements. The relations of operators know it for numbers, so they are asked: a size
of a call is replaced by numbers, the others by typical ones.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

from weft.ir.attrs import Attrs
from weft.ir.expr import Call, Expr, Function, If, Match, Var
from weft.ir.module import IRModule
from weft.ir.op import Op
from weft.ir.shape import Dim, SymDim, bounds_of, dim_sub
from weft.ir.symbol import TYPICAL_SIZE, name_of, size_of_dim, typical_size
from weft.ir.types import TensorType, TupleType, Type
from weft.ir.typing.infer import infer_expr
from weft.ir.visitor import post_order
from weft.runtime.sizes import names_in
from weft.support.errors import WeftError


def least_sizes(mod: IRModule) -> tuple[SymDim, ...]:
    """Sizes that are 0 or more where every operator of ``main`` takes its operands.

    Operators in branches and functions are left out, as a branch may test the size.
    """
    known: dict[object, tuple[SymDim, ...]] = {}
    found: dict[SymDim, None] = {}
    for node in post_order(mod["main"].body, enter=_is_always_run):
        if not isinstance(node, Call) or not isinstance(node.op, Op):
            continue
        types = tuple(arg.checked_type for arg in node.args)
        # Attributes with sizes, and those that mean something else for numbers, follow from types.
        if not any(map(_dims, types)) or _has_sizes(node.attrs) or node.op.hook("bind_sizes"):
            continue
        key = (node.op.name, node.attrs, types)
        if key not in known:
            known[key] = tuple(_needed(node.op, node.attrs, types))
        found.update(dict.fromkeys(known[key]))
    return tuple(found)


def with_least_sizes(mod: IRModule) -> IRModule:
    """The module with ``least_sizes`` among its conditions, as far as inputs determine them."""
    given = {name_of(symbol) for param in mod["main"].params for dim in _dims(param.checked_type)
             for symbol in dim.symbols()}
    before = mod.attrs.get("size_conditions", ())
    texts = (str(size_of_dim(size)) for size in least_sizes(mod))
    added = [text for text in texts if names_in(text) <= given and text not in before]
    if not added:
        return mod
    return dataclasses.replace(mod, attrs={**mod.attrs, "size_conditions": (*before, *added)})


def _is_always_run(node: Expr) -> bool:
    return not isinstance(node, (Function, If, Match))


def _needed(op: Op, attrs: Attrs, types: tuple[Type | None, ...]) -> Iterator[SymDim]:
    """For each size of the operands, what it is more than the least that the operator takes."""
    dims = list(dict.fromkeys(dim for type_ in types for dim in _dims(type_)))
    # A size such as max(9 - n, 0) has a typical value that no operator takes.
    usual: tuple[dict[Dim, int], ...] = ({dim: typical_size(dim) for dim in dims},
                                         dict.fromkeys(dims, TYPICAL_SIZE))
    typical = next((sizes for sizes in usual if _takes(op, attrs, types, sizes)), None)
    if typical is None:
        return  # sizes depend on each other
    for dim in dims:
        low = max(bounds_of(dim)[0] or 0, 0)
        least = _least(op, attrs, types, typical, dim, low) if low < typical[dim] else low
        more = dim_sub(dim, least)
        if least > low and isinstance(more, SymDim):
            yield more


def _least(op: Op, attrs: Attrs, types: tuple[Type | None, ...], typical: Mapping[Dim, int],
           dim: Dim, low: int) -> int:
    """The least size from ``low`` on, at most the typical one, that the operator takes."""
    if _takes(op, attrs, types, {**typical, dim: low}):
        return low
    high = typical[dim]
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if _takes(op, attrs, types, {**typical, dim: middle}) \
            else (middle, high)
    return high


def _takes(op: Op, attrs: Attrs, types: tuple[Type | None, ...], sizes: Mapping[Dim, int]) -> bool:
    args = tuple(Var(f"x{n}", _at(type_, sizes)) for n, type_ in enumerate(types))
    try:
        infer_expr(Call(op, args, attrs))
    except WeftError:
        return False
    return True


def _at(type_: Type | None, sizes: Mapping[Dim, int]) -> Type | None:
    if isinstance(type_, TensorType):
        return TensorType(tuple(sizes.get(dim, dim) for dim in type_.shape), type_.dtype)
    if isinstance(type_, TupleType):
        return TupleType(tuple(_at(field, sizes) for field in type_.fields))  # type: ignore[misc]
    return type_


def _dims(type_: Type | None) -> tuple[SymDim, ...]:
    if isinstance(type_, TensorType):
        return tuple(dim for dim in type_.shape if isinstance(dim, SymDim))
    if isinstance(type_, TupleType):
        return tuple(dim for field in type_.fields for dim in _dims(field))
    return ()


def _has_sizes(value: Any) -> bool:
    """Whether attributes hold a symbolic size."""
    if isinstance(value, Attrs):
        return any(_has_sizes(getattr(value, name)) for name in type(value).__dataclass_fields__)
    if isinstance(value, (tuple, list)):
        return any(map(_has_sizes, value))
    return isinstance(value, SymDim)
