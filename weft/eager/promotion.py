"""Type promotion, as torch does it.

Dtypes have categories: bool, integer, float, complex. The result of an operator has the highest
category of its operands. Within a category, tensors with axes decide; those without axes count only
where they raise the category, and Python numbers only where they raise it above both. A complex
number keeps the precision of floats that it raises.
https://docs.pytorch.org/docs/stable/tensor_attributes.html#type-promotion-doc
"""

from __future__ import annotations

from functools import cache

from weft.eager.dtypes import (
    COMPLEX,
    as_dtype,
    bool_,
    dtype,
    float32,
    get_default_dtype,
    int16,
    int32,
    int64,
)
from weft.support.errors import OptionError


@cache
def promote_types(a: dtype, b: dtype) -> dtype:
    """The smallest dtype to which both convert without loss of category (torch's table)."""
    if a is b:
        return a
    if COMPLEX in (a.rank, b.rank) and a.rank + b.rank >= COMPLEX + 2:
        return promote_types(a.to_real(), b.to_real()).to_complex()
    if a.rank != b.rank:
        return a if a.rank > b.rank else b
    if a.rank == 2:
        return _wider_float(a, b)
    if a.is_signed == b.is_signed:
        return a if a.ir.bits >= b.ir.bits else b
    signed, unsigned = (a, b) if a.is_signed else (b, a)
    if signed.ir.bits > unsigned.ir.bits:
        return signed
    wider = {8: int16, 16: int32, 32: int64}.get(unsigned.ir.bits)
    if wider is None:
        raise OptionError(f"no integer dtype holds both {a} and {b}", help="convert one of them")
    return wider


def _wider_float(a: dtype, b: dtype) -> dtype:
    if a.ir.bits != b.ir.bits:
        return a if a.ir.bits > b.ir.bits else b
    return float32  # float16 and bfloat16


def dtype_of_number(value: object) -> dtype:
    """The dtype that a Python number would have as a tensor."""
    if isinstance(value, bool):
        return bool_
    if isinstance(value, complex):
        return get_default_dtype().to_complex()
    return int64 if isinstance(value, int) else get_default_dtype()


def wrapped(value: object, d: dtype) -> object:
    """A Python integer that an integer dtype does not hold, modulo the size of the dtype."""
    if d.rank != 1 or type(value) is not int:
        return value
    bits = d.ir.bits
    low = -(1 << (bits - 1)) if d.is_signed else 0
    if low <= value < low + (1 << bits):
        return value
    return (value - low) % (1 << bits) + low


def result_type_of(tensors: list[tuple[dtype, int]], numbers: list[object]) -> dtype:
    """The common dtype of tensors, given as dtype and rank, and of Python numbers."""
    with_axes = _joined([d for d, rank in tensors if rank])
    without = _joined([d for d, rank in tensors if not rank])
    wrapped = _joined([dtype_of_number(n) for n in numbers])
    found = _combined(with_axes, _combined(without, wrapped))
    assert found is not None
    return found


def _joined(dtypes: list[dtype]) -> dtype | None:
    found: dtype | None = None
    for one in dtypes:
        found = one if found is None else promote_types(found, one)
    return found


def _combined(higher: dtype | None, lower: dtype | None) -> dtype | None:
    """``higher``, unless ``lower`` has a higher category."""
    if higher is None or lower is None:
        return lower if higher is None else higher
    if lower.rank == COMPLEX and higher.rank == 2:
        return higher.to_complex()
    return lower if lower.rank > higher.rank else higher


def result_type(*values: object) -> dtype:
    """The dtype of an operator on these tensors and Python numbers."""
    from weft.eager.cell import Cell, spec_of_cell

    specs = [spec_of_cell(v) for v in values if isinstance(v, Cell)]
    return result_type_of([(s.dtype, len(s.shape)) for s in specs],
                          [v for v in values if not isinstance(v, Cell)])


def can_cast(from_: object, to: object) -> bool:
    """Whether torch converts one dtype to the other: not to a lower category."""
    return as_dtype(from_).rank <= as_dtype(to).rank
