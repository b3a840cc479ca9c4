"""TensorFlow Lite files as weft modules.

The package ``tflite``, which holds the schema of the files, is imported on the first use.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from weft.support.errors import OptionError
from weft.support.interpreter import interrupts_held

if TYPE_CHECKING:
    from weft.ir.module import IRModule

__all__ = ["from_tflite", "load_tflite_part"]


def from_tflite(
    model: str | os.PathLike[str] | bytes, *,
    inputs: Mapping[str, Sequence[object] | None] | None = None, signature: str | None = None,
) -> IRModule:
    """Import a TensorFlow Lite model, a path or the bytes of a file, as a typed module.

    ``signature`` names the signature to import (by default the first subgraph). Inputs and
    outputs have the names of the signature, else those of their tensors. ``inputs`` gives shapes
    of inputs: other numbers, or symbols, for sizes that the model leaves open. Variables are inputs
    and outputs that the module's ``attrs["state"]`` pairs.

    Raises ``InvalidModelError`` for a damaged file, and ``UnsupportedModelError`` that lists all
    operators and types that weft does not support.
    """
    reader, importer = load_tflite_part("reader"), load_tflite_part("importer")
    return importer.import_model(  # type: ignore[no-any-return]
        reader.read_model(model), inputs or {}, signature)


def load_tflite_part(name: str) -> Any:
    """A module of this package; ``OptionError`` where the schema is not installed."""
    try:
        with interrupts_held():
            return importlib.import_module(f"weft.frontend.tflite.{name}")
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] not in ("tflite", "flatbuffers"):
            raise
        raise OptionError("reading TensorFlow Lite files needs the package tflite",
                          got=f"no module named {error.name!r}",
                          help="pip install weft[tflite]") from None
