"""Writers of operators: what an operator is in ONNX."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from weft.support.errors import RegistryError

if TYPE_CHECKING:
    from weft.export.onnx.call import CallWriter

# The name of an ONNX value, or those of a tuple.
Value: TypeAlias = "str | Sequence[Value]"
# Emits the nodes of a call and names its result; ``None`` if ONNX cannot say a call like this one.
Writer: TypeAlias = "Callable[[CallWriter], Value | None]"

_WRITERS: dict[str, Writer] = {}


def writes(*operators: str) -> Callable[[Writer], Writer]:
    """Register the decorated function as the writer of ``operators``."""

    def wrap(function: Writer) -> Writer:
        for name in operators:
            if name in _WRITERS:
                raise RegistryError(f"the ONNX writer of {name!r} is registered twice")
            _WRITERS[name] = function
        return function

    return wrap


def renamed(operator: str, onnx: str, *, upcast: bool = False, **attributes: Any) -> None:
    """Register a writer that emits one node ``onnx`` with the arguments of the call.

    With ``upcast``, integers that runtimes do not compute with are computed as wider ones.
    """

    def write(c: CallWriter) -> Value:
        if upcast:
            return c.upcast(onnx, *c.inputs, **attributes)
        return c.emit(onnx, *c.inputs, **attributes)

    writes(operator)(write)


def writer_of(operator: str) -> Writer | None:
    """The writer of an operator, if it has one."""
    if not _WRITERS:
        package = importlib.import_module("weft.export.onnx.ops")
        for found in pkgutil.iter_modules(package.__path__):
            importlib.import_module(f"{package.__name__}.{found.name}")
    return _WRITERS.get(operator)


def written_operators() -> tuple[str, ...]:
    """The operators that have a writer, sorted."""
    writer_of("")
    return tuple(sorted(_WRITERS))
