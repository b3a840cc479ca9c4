"""The table of converters: which function converts which ATen operator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

ConvertFunction: TypeAlias = Callable[..., Any]

_CONVERTERS: dict[str, ConvertFunction] = {}


def converts(*names: str) -> Callable[[ConvertFunction], ConvertFunction]:
    """Register the decorated function as the converter of ATen operators.

    A name is that of all overloads (``add``) or of one (``max.dim``), without ``aten.``; those of
    other libraries are written out (``prims.convert_element_type``). The function gets the node
    and the arguments in the order of the operator's schema, defaults filled in: tensors are typed
    expressions, all other values Python values.
    """

    def wrap(function: ConvertFunction) -> ConvertFunction:
        for name in names:
            register(name, function)
        return function

    return wrap


def register(name: str, function: ConvertFunction) -> None:
    """As ``converts``, for functions made by a family."""
    _CONVERTERS[name] = function


def find_converter(target: str) -> ConvertFunction | None:
    """The converter of ``aten.add.Tensor``: that of the overload, else that of the operator."""
    namespace, _, name = target.partition(".")
    if namespace != "aten":
        return _CONVERTERS.get(target.rpartition(".")[0])
    return _CONVERTERS.get(name) or _CONVERTERS.get(name.partition(".")[0])


def supported_operators() -> tuple[str, ...]:
    """Names of all ATen operators with a converter."""
    return tuple(sorted(_CONVERTERS))


def foreign_converters() -> tuple[str, ...]:
    """Names of the operators whose converters are the user's."""
    return tuple(sorted(name for name, function in _CONVERTERS.items()
                        if not getattr(function, "__module__", "").startswith("weft.")))
