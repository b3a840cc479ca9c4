"""weft: a deep learning compiler in Python.

    import weft

    mod = weft.compile("resnet50.onnx")     # path, bytes, onnx.ModelProto, IRModule or Function
    y = mod(x)                              # NumPy, or anything that speaks DLPack
    mod.export("resnet50.weft")             # ahead-of-time artifact
    y = weft.load("resnet50.weft")(x)       # runs without a compiler

Importing weft loads neither a compiler nor a frontend: names are looked up where they live when
they are first used, so a program that only loads artifacts needs NumPy alone.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from weft.support import errors
from weft.support.config import config
from weft.support.errors import WeftError
from weft.support.interrupts import interrupts_held

if TYPE_CHECKING:
    from weft.compiler.api import CompiledModel, DynamicModel, ForeignModel, compile, parse
    from weft.compiler.differentiate import grad
    from weft.compiler.tuning import tune_model
    from weft.ir import Function, IRModule
    from weft.ir.python.from_python import function
    from weft.runtime import CompiledModule
    from weft.runtime.artifact import load
    from weft.target import CpuTarget, Target

__version__ = "0.1.0"

# Public name -> the module that defines it.
_LAZY = {
    "compile": "weft.compiler.api",
    "CompiledModel": "weft.compiler.api",
    "DynamicModel": "weft.compiler.api",
    "ForeignModel": "weft.compiler.api",
    "CompiledModule": "weft.runtime",
    "load": "weft.runtime.artifact",
    "parse": "weft.compiler.api",
    "grad": "weft.compiler.differentiate",
    "function": "weft.ir.python.from_python",
    "IRModule": "weft.ir",
    "Function": "weft.ir",
    "CpuTarget": "weft.target",
    "Target": "weft.target",
    # For operators of one's own: docs/tutorials/add_operator.md.
    "Attrs": "weft.ir",
    "OpPattern": "weft.ir",
    "TensorType": "weft.ir",
    "attr": "weft.ir",
    "case": "weft.ir",
    "define_op": "weft.ir",
    # For code generators of one's own: docs/codegen.md.
    "register_external_codegen": "weft.transform",
    "insert": "weft.support.insertion",
    "check_operator": "weft.compiler.check_operator",
    "tune_model": "weft.compiler.tuning",
}
_SUBMODULES = ("ir", "op", "te", "tir", "topi", "transform", "strategy", "target", "runtime",
               "frontend", "export", "compiler", "tune", "onnx_backend", "torch_backend")

__all__ = [
    "Attrs",
    "CompiledModel",
    "CompiledModule",
    "CpuTarget",
    "DynamicModel",
    "ForeignModel",
    "Function",
    "IRModule",
    "OpPattern",
    "Target",
    "TensorType",
    "WeftError",
    "__version__",
    "attr",
    "case",
    "check_operator",
    "compile",
    "config",
    "define_op",
    "errors",
    "function",
    "grad",
    "load",
    "parse",
    "register_external_codegen",
    "tune_model",
]


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        value = getattr(_import(_LAZY[name]), name)
        globals()[name] = value
        return value
    if name in _SUBMODULES:
        return _import(f"weft.{name}")
    raise AttributeError(f"module 'weft' has no attribute {name!r}")


def _import(module: str) -> Any:
    with interrupts_held():
        return importlib.import_module(module)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_SUBMODULES})
