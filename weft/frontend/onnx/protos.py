"""The message classes of ONNX, without the rest of the package ``onnx``.

Importing all of ``onnx`` takes longer than compiling a small model whose kernels are cached. The
module with the messages needs protobuf alone, so it is loaded from its file. Protobuf has one class
for each kind of message: they are those that ``import onnx`` gives, before or later.
"""

from __future__ import annotations

import importlib
import sys
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from onnx import (  # noqa: F401 - other modules import them from here
        IR_VERSION,
        AttributeProto,
        FunctionProto,
        GraphProto,
        ModelProto,
        NodeProto,
        TensorProto,
        TypeProto,
        ValueInfoProto,
    )

_NAMES = ("IR_VERSION", "AttributeProto", "FunctionProto", "GraphProto", "ModelProto", "NodeProto",
          "TensorProto", "TypeProto", "ValueInfoProto")


def _messages() -> ModuleType:
    """The module that protobuf's compiler generated; ``ModuleNotFoundError`` without ``onnx``."""
    package = None if "onnx" in sys.modules else find_spec("onnx")
    for folder in () if package is None else package.submodule_search_locations or ():
        spec = spec_from_file_location("weft_onnx_messages", Path(folder) / "onnx_ml_pb2.py")
        if spec is not None and spec.loader is not None and Path(spec.origin or "").is_file():
            module = module_from_spec(spec)
            spec.loader.exec_module(module)
            return module
    return importlib.import_module("onnx")  # loaded, missing, or in an archive


_found = _messages()
globals().update({name: getattr(_found, name) for name in _NAMES})
