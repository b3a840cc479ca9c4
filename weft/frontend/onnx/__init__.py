"""Import of ONNX models as weft modules.

The optional ``onnx`` package takes 0.25 s to import, so it is imported on the first use.
"""

from __future__ import annotations

import contextlib
import importlib
import os
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from weft.ir.module import IRModule
from weft.support.errors import OptionError
from weft.support.interpreter import interrupts_held

if TYPE_CHECKING:
    from weft.frontend.onnx.graph_inputs import Declared

__all__ = ["from_onnx", "load_onnx_importer", "onnx_signature"]


def from_onnx(
    model: str | os.PathLike[str] | bytes | Any,
    *,
    inputs: Mapping[str, Sequence[object] | None] | None = None,
) -> IRModule:
    """Convert an ONNX model to a typed module.

    ``model`` is a path, the bytes of a file, or an ``onnx.ModelProto``. ``inputs`` overrides the
    shapes of graph inputs: ``{"x": ("1 <= batch <= 64", 3, 224, 224)}``; ``weft.ir.size_syntax``
    describes the sizes. For a sequence it gives one shape per tensor, and for an optional value
    either ``None`` (absent) or the shape of its element. The tensors of a sequence ``x`` become
    separate parameters ``x[0]``, ``x[1]`` and so on. The module's ``attrs`` hold the names of the
    graph inputs and outputs as ``input_names`` and ``output_names``.

    Raises ``InvalidModelError`` for a damaged or inconsistent model, ``UnsupportedModelError`` for
    unsupported operators, attributes, opsets and dtypes (one error lists all operators and
    attributes), and ``TypeInferenceError`` for shapes that do not match.
    """
    return _load("importer").import_model(model, inputs or {})


def import_for(model: Any, inputs: Mapping[str, Sequence[object] | None], outputs: Sequence[str],
               given: Collection[str]) -> IRModule:
    """``from_onnx`` with values of the graph as outputs, and the nodes alone that they need.

    The whole graph if another node computes a value that is ``given``.
    """
    return _load("importer").import_model(model, inputs, outputs, given)


def onnx_signature(
    model: str | os.PathLike[str] | bytes | Any,
    *,
    inputs: Mapping[str, Sequence[object] | None] | None = None,
) -> tuple[Declared, Declared]:
    """Return the declared name and type of every input and output; ``inputs`` overrides shapes.

    No node is converted, so this also works for models that need fixed sizes to be converted.
    """
    return _load("graph_inputs").declared_signature(model, inputs or {})


def load_onnx_importer() -> None:
    """Import the importer if onnx is installed; if it is not, ``from_onnx`` reports it."""
    with contextlib.suppress(OptionError):
        _load("importer")


def _load(name: str) -> Any:
    try:
        with interrupts_held():
            return importlib.import_module(f"weft.frontend.onnx.{name}")
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] not in ("onnx", "google"):
            raise
        raise OptionError(
            "reading ONNX models needs the onnx package",
            got=f"no module named {error.name!r}",
            help="pip install weft[onnx]",
        ) from None
