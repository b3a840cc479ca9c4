"""The table of converters, by the names of builtin operators and the codes of custom ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeAlias

from weft.frontend.common.registry import ConverterTable

if TYPE_CHECKING:
    from weft.frontend.tflite.node import Node, Value

    Converted: TypeAlias = "Value | Sequence[Value]"
    ConvertFunction: TypeAlias = Callable[[Node], Converted]

CONVERTERS: ConverterTable[ConvertFunction] = ConverterTable()
converts = CONVERTERS.converts
