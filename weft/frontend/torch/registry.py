"""The registry of converters of ATen operators."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

ConvertFunction: TypeAlias = Callable[..., Any]

_CONVERTERS: dict[str, ConvertFunction] = {}


def converts(*names: str) -> Callable[[ConvertFunction], ConvertFunction]:
    """Register the decorated function as the converter of ATen operators.

    A name stands for all overloads (``add``) or for one (``max.dim``), without ``aten.``.
    Operators of other namespaces have full names (``prims.convert_element_type``). The function
    receives the node and the arguments in schema order with defaults filled in: tensors as typed
    expressions, all other arguments as Python values.
    """

    def wrap(function: ConvertFunction) -> ConvertFunction:
        for name in names:
            register(name, function)
        return function

    return wrap


def register(name: str, function: ConvertFunction) -> None:
    """Register a converter; ``converts`` is the decorator for this."""
    _CONVERTERS[name] = function


def find_converter(target: str) -> ConvertFunction | None:
    """The converter of ``aten.add.Tensor``, say: of the overload, else of the operator."""
    namespace, _, name = target.partition(".")
    if namespace != "aten":
        return _CONVERTERS.get(target) or _CONVERTERS.get(target.rpartition(".")[0])
    return _CONVERTERS.get(name) or _CONVERTERS.get(name.partition(".")[0])


def supported_operators() -> tuple[str, ...]:
    """Names of all ATen operators with a converter."""
    return tuple(sorted(_CONVERTERS))


def foreign_converters() -> tuple[str, ...]:
    """Names of the operators whose converters users registered."""
    return tuple(sorted(name for name, function in _CONVERTERS.items()
                        if not getattr(function, "__module__", "").startswith("weft.")))
