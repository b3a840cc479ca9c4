"""The table of converters: operators of TensorFlow, by name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from weft.compat.graphdef.node import Node
from weft.frontend.common.registry import ConverterTable
from weft.ir.expr import Expr
from weft.support.dataclass import dataclass

Convert: TypeAlias = Callable[[Node], Expr | Sequence[Expr]]

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


CONVERTERS: ConverterTable[Converter] = ConverterTable()


def converts(*ops: str, inputs: int | Sequence[int] | None = None, attributes: Sequence[str] = (),
             outputs: Sequence[str] = ("output",)) -> Callable[[Convert], Convert]:
    """Register the decorated function as the converter of ``ops``."""
    counts = (inputs,) if isinstance(inputs, int) else inputs
    known = frozenset(attributes) | TYPE_ATTRIBUTES

    def wrap(convert: Convert) -> Convert:
        for op in ops:
            CONVERTERS.register(op, Converter(op, convert, known, tuple(outputs),
                                              None if counts is None else tuple(counts)))
        return convert

    return wrap
