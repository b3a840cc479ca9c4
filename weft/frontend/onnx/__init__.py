"""ONNX models as weft modules.

The ``onnx`` package is an extra and takes a quarter of a second to import, so it is imported when
the first model arrives.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from weft.ir.module import IRModule
from weft.support.errors import OptionError
from weft.support.interrupts import interrupts_held

if TYPE_CHECKING:
    from weft.frontend.onnx.signature import Declared

__all__ = ["from_onnx", "onnx_signature"]


def from_onnx(
    model: str | os.PathLike[str] | bytes | Any,
    *,
    inputs: Mapping[str, Sequence[object] | None] | None = None,
) -> IRModule:
    """The typed module that an ONNX model stands for.

    ``model`` is a path, the bytes of a file, or an ``onnx.ModelProto``. ``inputs`` overrides the
    shapes of graph inputs: ``{"x": ("batch", 3, 224, 224)}``. For a sequence it gives one shape
    for each tensor, for an optional value ``None`` or what it holds; the tensors of a sequence
    ``x`` become separate parameters, ``x[0]`` and so on. The module's ``attrs`` keep the names
    of the graph's inputs and outputs as ``input_names`` and ``output_names``.

    Raises ``InvalidModelError`` for a model that is damaged or contradicts itself,
    ``UnsupportedModelError``, naming everything at once, for operators, attributes, opsets and
    dtypes that weft lacks, and ``TypeInferenceError`` where shapes do not fit.
    """
    return _load("importer").import_model(model, inputs or {})


def onnx_signature(
    model: str | os.PathLike[str] | bytes | Any,
    *,
    inputs: Mapping[str, Sequence[object] | None] | None = None,
) -> tuple[Declared, Declared]:
    """Name and type of every input and output, as the model declares them and ``inputs`` overrides.

    This also serves models whose nodes can only be converted once all sizes are known.
    """
    return _load("signature").declared_signature(model, inputs or {})


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
