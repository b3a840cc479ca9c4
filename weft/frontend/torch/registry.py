"""The registry of converters of ATen operators."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from weft.frontend.common.registry import ConverterTable

ConvertFunction: TypeAlias = Callable[..., Any]

CONVERTERS: ConverterTable[ConvertFunction] = ConverterTable()


def converts(*names: str) -> Callable[[ConvertFunction], ConvertFunction]:
    """Register the decorated function as the converter of ATen operators.

    A name stands for all overloads (``add``) or for one (``max.dim``), without ``aten.``.
    Operators of other namespaces have full names (``prims.convert_element_type``). The function
    receives the node and the arguments in schema order with defaults filled in: tensors as typed
    expressions, all other arguments as Python values.
    """
    return CONVERTERS.converts(*names)


def register(name: str, function: ConvertFunction) -> None:
    """Register a converter; ``converts`` is the decorator for this."""
    CONVERTERS.register(name, function)


def find_converter(target: str) -> ConvertFunction | None:
    """The converter of ``aten.add.Tensor``, say: of the overload, else of the operator."""
    name = target.removeprefix("aten.")
    packet = name.partition(".")[0] if name != target else name.rpartition(".")[0]
    return CONVERTERS.find(name) or CONVERTERS.find(packet)
