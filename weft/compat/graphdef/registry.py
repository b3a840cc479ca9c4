"""The table of converters: operators of TensorFlow, by name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from weft.ir.expr import Expr
from weft.support.dataclass import dataclass
from weft.support.registry import Registry

if TYPE_CHECKING:
    from weft.compat.graphdef.node import Node

Convert: TypeAlias = "Callable[[Node], Expr | Sequence[Expr]]"

# Types of inputs and outputs, which follow from the tensors themselves.
TYPE_ATTRIBUTES = frozenset({
    "T", "Tidx", "Tshape", "Tpaddings", "Tperm", "Tindices", "Tparams", "Taxis", "Tmultiples",
    "Tlen", "Tblock_shape", "Tcrops", "Tdim", "Index", "N", "U", "Tin", "Tout", "output_types",
    "index_type", "TI", "Tsplits", "Tshift", "Tk", "parallel_iterations", "batch_dims_type",
})


@dataclass(frozen=True, slots=True)
class Converter:
    """How an operator of TensorFlow becomes expressions.

    ``attributes`` are those that ``convert`` reads or may ignore; ``outputs`` names the results,
    for references inside functions; ``inputs`` is the number of operands, ``None`` for any.
    """

    op: str
    convert: Convert
    attributes: frozenset[str]
    outputs: tuple[str, ...]
    inputs: tuple[int, ...] | None


CONVERTERS: Registry[Converter] = Registry("converter of a TensorFlow operator")


def converts(
    *ops: str,
    inputs: int | Sequence[int] | None = None,
    attributes: Sequence[str] = (),
    outputs: Sequence[str] = ("output",),
) -> Callable[[Convert], Convert]:
    """Register the decorated function as the converter of ``ops``."""
    counts = (inputs,) if isinstance(inputs, int) else inputs
    known = frozenset(attributes) | TYPE_ATTRIBUTES

    def wrap(convert: Convert) -> Convert:
        for op in ops:
            CONVERTERS.register(op, Converter(op, convert, known, tuple(outputs),
                                              None if counts is None else tuple(counts)))
        return convert

    return wrap


def find_converter(op: str) -> Converter | None:
    """The converter of ``op``, or ``None``."""
    return CONVERTERS.find(op)


def supported_operators() -> list[str]:
    """The operators of TensorFlow that weft reads, sorted."""
    return list(CONVERTERS)


def attribute_text(value: Any) -> str:
    """An attribute value for an error message."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
