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


def converts(*names: str) -> Callable[[ConvertFunction], ConvertFunction]:
    """Register the decorated function as the converter of operations.

    It is called with the node and its operands, and returns the result or a sequence of results.
    """

    def wrap(function: ConvertFunction) -> ConvertFunction:
        for name in names:
            CONVERTERS.register(name, function)
        return function

    return wrap


def converter_name(operation: Operation) -> str:
    """The name by which the converter of an operation is looked up."""
    if operation.name == "stablehlo.custom_call":
        return f"@{operation.target}"
    if operation.name == "stablehlo.composite":
        name = str(operation.attributes.get("name", ""))
        return name if name in CONVERTERS.entries else operation.name
    return operation.name
