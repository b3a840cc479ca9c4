"""The table of converters, by the names of StableHLO's and CHLO's operations.

A custom call has the name of its target behind ``@``: ``@lapack_spotrf_ffi``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from weft.frontend.common.registry import ConverterTable
from weft.frontend.stablehlo.syntax import Operation

ConvertFunction: TypeAlias = Callable[..., Any]

CONVERTERS: ConverterTable[ConvertFunction] = ConverterTable()
# Its functions get the node and its operands, and return the result or a sequence of results.
converts = CONVERTERS.converts


def converter_name(operation: Operation) -> str:
    """The name by which the converter of an operation is looked up."""
    if operation.name == "stablehlo.custom_call":
        return f"@{operation.target}"
    if operation.name == "stablehlo.composite":
        name = str(operation.attributes.get("name", ""))
        return name if name in CONVERTERS.entries else operation.name
    return operation.name
