"""Rules of sharding for operators whose loops are written by hand: the axes that can be cut.

A rule takes a typed call and gives sets of places that are cut together: (operand, dimension) pairs
and (result, dimension) pairs, counting the tensors of tuples. Other operators need no rule, since
their tensor expressions tell (``transform.sharding.index_maps``).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

from weft.ir import Call, TensorType, TupleType, Type
from weft.ir.op import CutAxes

Places: TypeAlias = "tuple[tuple[tuple[int, int], ...], tuple[tuple[int, int], ...]]"


def tensor_types(type_: Type | None) -> list[TensorType]:
    """The tensors of a type, in order; tuples may be nested."""
    if isinstance(type_, TensorType):
        return [type_]
    if isinstance(type_, TupleType):
        return [t for field in type_.fields for t in tensor_types(field)]
    return []


def _sides(call: Call) -> tuple[list[TensorType], list[TensorType]]:
    operands = [t for arg in call.args for t in tensor_types(arg.checked_type)]
    return operands, tensor_types(call.checked_type)


def broadcast_axes(call: Call) -> Iterator[Places]:
    """Every axis of an elementwise operator; operands align at the last one."""
    operands, results = _sides(call)
    rank = results[0].ndim
    for axis in range(rank):
        found = tuple((n, d) for n, t in enumerate(operands)
                      if (d := axis - rank + t.ndim) >= 0 and t.shape[d] == results[0].shape[axis])
        yield found, tuple((n, axis) for n in range(len(results)))


def axes_but(field: str) -> CutAxes:
    """Every axis but the one that the attribute ``field`` names, of tensors of one shape."""

    def rule(call: Call) -> Iterator[Places]:
        operands, results = _sides(call)
        attrs: Any = call.attrs
        whole = getattr(attrs, field) % results[0].ndim
        for axis in range(results[0].ndim):
            if axis != whole:
                yield (tuple((n, axis) for n in range(len(operands))),
                       tuple((n, axis) for n in range(len(results))))

    return rule


def leading_axes(call: Call) -> Iterator[Places]:
    """The axes that all operands and results have in common at the front, beside two others."""
    operands, results = _sides(call)
    every = [*operands, *results]
    for axis in range(min(t.ndim for t in operands) - 2):
        if len({t.shape[:axis + 1] for t in every}) == 1:
            yield (tuple((n, axis) for n in range(len(operands))),
                   tuple((n, axis) for n in range(len(results))))


def slice_axes(call: Call) -> Iterator[Places]:
    """The axes of the slices that ``scatter_nd`` writes at the positions of its second operand."""
    (target, positions, slices), _ = _sides(call)
    depth = positions.concrete_shape[0]
    for axis in range(target.ndim - depth):
        yield ((0, depth + axis), (2, slices.ndim - target.ndim + depth + axis)), (
            (0, depth + axis),)
