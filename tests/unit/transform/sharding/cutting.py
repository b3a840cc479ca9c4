"""One call cut along one factor: the parts by the NumPy references, beside the whole."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from tests.unit.op.harness import reference_outputs
from weft import ir
from weft.ir.expr import Call, Expr, Tuple, var
from weft.ir.types import TensorType, TupleType
from weft.transform.sharding.index_maps import Factor
from weft.transform.sharding.local_call import local_call
from weft.transform.sharding.windows import Window

COMBINED = {"sum": np.add, "max": np.maximum, "min": np.minimum, "prod": np.multiply}


def fewest_parts(factor: Factor) -> int:
    return next(p for p in range(2, factor.divisor + 1) if factor.divisor % p == 0)


def part_type(type_: ir.Type | None, cut: dict[int, int], parts: int, numbers: Iterator[int],
              windows: Sequence[Window] = ()) -> ir.Type:
    if isinstance(type_, TupleType):
        return TupleType(tuple(part_type(t, cut, parts, numbers, windows) for t in type_.fields))
    assert isinstance(type_, TensorType)
    number = next(numbers)
    halo = sum(w.before + w.after for w in windows if w.operand == number)
    shape = tuple(size // parts + halo if cut.get(number) == d else size
                  for d, size in enumerate(type_.concrete_shape))
    return TensorType(shape, type_.dtype)


def part_of(value: Any, factor: Factor, parts: int, index: int, numbers: Iterator[int]) -> Any:
    if isinstance(value, tuple):
        return tuple(part_of(v, factor, parts, index, numbers) for v in value)
    number, cut = next(numbers), dict(factor.operands)
    if number not in cut:
        return value
    window = next((w for w in factor.windows if w.operand == number), None)
    if window is None:
        return np.split(value, parts, cut[number])[index]
    length, around = value.shape[window.dim] // parts, value.shape[window.dim]
    widths = [(around, around) if d == window.dim else (0, 0) for d in range(value.ndim)]
    wide = np.pad(value, widths, constant_values=value.dtype.type(window.fill))
    first = around + index * length
    return wide.take(range(first - window.before, first + length + window.after), window.dim)


def variables(type_: ir.Type, name: str) -> Expr:
    if isinstance(type_, TupleType):
        return Tuple(tuple(variables(t, f"{name}_{i}") for i, t in enumerate(type_.fields)))
    assert isinstance(type_, TensorType)
    return var(name, type_.shape, type_.dtype)


def cut_call(call: Call, factor: Factor, parts: int) -> Call | None:
    """The call on one part of its operands."""
    count = itertools.count()
    args = [variables(part_type(a.checked_type, dict(factor.operands), parts, count,
                                factor.windows), f"p{i}") for i, a in enumerate(call.args)]
    expected = part_type(call.checked_type, dict(factor.results), parts, itertools.count())
    return local_call(call, args, expected, [(w.operand, w.dim) for w in factor.windows])


def joined(call: Call, local: Call, arrays: list[Any], factor: Factor, parts: int
           ) -> list[np.ndarray]:
    """The results of all parts, joined or combined."""
    pieces = []
    for index in range(parts):
        count = itertools.count()
        given = [part_of(a, factor, parts, index, count) for a in arrays]
        pieces.append(reference_outputs(local, given))
    if factor.reduction:
        return [functools.reduce(COMBINED[factor.reduction], each)
                for each in zip(*pieces, strict=True)]
    return [np.concatenate(each, dict(factor.results)[number])
            for number, each in enumerate(zip(*pieces, strict=True))]
