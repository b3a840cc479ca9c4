"""Atomic operations of many lanes on one array (PTX ISA, "atom" and "red")."""

from __future__ import annotations

import numpy as np

from weft.testing.cuda.ptx.module import NUMPY
from weft.testing.cuda.values import floats, narrow_floats

Array = np.ndarray
_UFUNCS = {"add": np.add, "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor,
           "min": np.minimum, "max": np.maximum}
_HALF = ("f16", "bf16", "f16x2", "bf16x2")


def apply(
    memory: Array, index: Array, operation: str, kind: str, operands: tuple[Array, ...],
    returns: bool,
) -> Array:
    """Apply ``operation`` at ``memory[index]`` in the order of ``index``; the old values.

    ``memory`` is unsigned; operands have the type of ``kind``. The result is undefined unless
    ``returns``.
    """
    typed = memory if kind in {"bf16", "f16x2", "bf16x2"} else memory.view(NUMPY[kind])
    unique = np.unique(index).shape[0] == index.shape[0]
    if unique:
        old = typed[index]
        typed[index] = _new(operation, kind, old, operands)
        return old
    if operation in _UFUNCS and kind not in _HALF and not (
        operation in {"min", "max"} and kind[0] == "f"
    ):
        if not returns:
            _UFUNCS[operation].at(typed, index, operands[0])
            return operands[0]
        if operation == "add" and kind[0] != "f":
            return _counted(typed, index, operands[0])
    return _rounds(typed, index, operation, kind, operands)


def _counted(memory: Array, index: Array, value: Array) -> Array:
    """Integer addition with results: running sums over the lanes of each address."""
    order = np.argsort(index, kind="stable")
    places, values = index[order], value[order]
    totals = np.cumsum(values, dtype=values.dtype) - values
    starts = np.flatnonzero(np.r_[True, places[1:] != places[:-1]])
    lengths = np.diff(np.r_[starts, places.shape[0]])
    before = totals - np.repeat(totals[starts], lengths)
    old = np.empty_like(value)
    old[order] = memory[places] + before
    np.add.at(memory, index, value)
    return old


def _rounds(
    memory: Array, index: Array, operation: str, kind: str, operands: tuple[Array, ...]
) -> Array:
    """One lane of each address at a time."""
    old = np.empty(index.shape, dtype=memory.dtype)
    left = np.arange(index.shape[0])
    while left.shape[0]:
        _, first = np.unique(index[left], return_index=True)
        lanes = left[first]
        places = index[lanes]
        values = memory[places]
        old[lanes] = values
        memory[places] = _new(operation, kind, values, tuple(v[lanes] for v in operands))
        left = np.delete(left, first)
    return old


def _new(operation: str, kind: str, old: Array, operands: tuple[Array, ...]) -> Array:
    value = operands[0]
    match operation:
        case "exch":
            return value
        case "cas":
            return np.where(old == value, operands[1], old)
        case "inc":
            return np.where(old >= value, old.dtype.type(0), old + old.dtype.type(1))
        case "dec":
            return np.where((old == 0) | (old > value), value, old - old.dtype.type(1))
    if kind in _HALF:
        return _half(operation, kind, old, value)
    if operation in {"min", "max"} and kind[0] == "f":
        return floats.minimum(old, value) if operation == "min" else floats.maximum(old, value)
    return _UFUNCS[operation](old, value)


def _half(operation: str, kind: str, old: Array, value: Array) -> Array:
    part = kind.removesuffix("x2")
    if operation == "add":
        function = lambda a, b: narrow_floats.binary("add", part, a, b)  # noqa: E731
    else:
        name = "minimum" if operation == "min" else "maximum"
        function = lambda a, b: narrow_floats.extreme(name, part, a, b)  # noqa: E731
    return narrow_floats.packed(function, part, old, value) if part != kind else function(
        old, value)
