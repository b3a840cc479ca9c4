"""weft: a deep learning compiler in Python.

    import weft

    mod = weft.compile("resnet50.onnx")     # or bytes, onnx.ModelProto, torch module, IRModule, ..
    y = mod(x)                              # NumPy arrays, or arrays that support DLPack
    mod.export("resnet50.weft")             # ahead-of-time artifact
    y = weft.load("resnet50.weft")(x)       # runs without a compiler

``import weft`` imports neither the compiler nor a front end: the module that defines a public name
is imported when the name is first used. A program that only loads artifacts needs NumPy alone.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from weft.support import errors
from weft.support.config import config
from weft.support.errors import WeftError
from weft.support.interrupts import interrupts_held

if TYPE_CHECKING:  # what type checkers see; tests compare it with the tables below
    from weft import (  # noqa: F401 - sub-packages, as attributes
        checkpoints,
        codegen,
        compiler,
        data,
        export,
        frontend,
        generation,
        ir,
        models,
        onnx_backend,
        op,
        runtime,
        strategy,
        target,
        te,
        tir,
        topi,
        transform,
        tune,
    )
    from weft.compiler.api import compile, parse
    from weft.compiler.check_operator import check_operator
    from weft.compiler.checkpointing import checkpoint, checkpoint_sequential
    from weft.compiler.compiled_model import CompiledModel
    from weft.compiler.dynamic_model import DynamicModel
    from weft.compiler.executable import Executable
    from weft.compiler.foreign_model import ForeignModel
    from weft.compiler.memory_budget import recompute
    from weft.compiler.sources import ModelLike
    from weft.compiler.transformations.custom import custom_jvp, custom_vjp
    from weft.compiler.transformations.forward import jvp
    from weft.compiler.transformations.gradients import grad, stop_gradient, value_and_grad, vjp
    from weft.compiler.transformations.jacobians import hessian, jacobian
    from weft.compiler.tuning import tune_model
    from weft.compiler.vectorize import vmap
    from weft.generation.generate import generate
    from weft.ir import (
        Attrs,
        Function,
        IRModule,
        OpPattern,
        TensorType,
        attr,
        case,
        define_op,
        register_pass,
        rule,
    )
    from weft.ir.python.from_python import function
    from weft.ir.rewrite.registered import register_rule
    from weft.runtime import CompiledModule
    from weft.runtime.artifact import load
    from weft.support.insertion import insert
    from weft.target import CpuTarget, Target
    from weft.tir.transform.registered import register_tir_pass
    from weft.torch_backend import torch_backend  # noqa: F401
    from weft.transform import register_external_codegen

__version__ = "0.1.0"

# Public name -> the module that defines it.
_LAZY = {
    "compile": "weft.compiler.api",
    "ModelLike": "weft.compiler.sources",
    "Executable": "weft.compiler.executable",
    "CompiledModel": "weft.compiler.compiled_model",
    "ForeignModel": "weft.compiler.foreign_model",
    "DynamicModel": "weft.compiler.dynamic_model",
    "CompiledModule": "weft.runtime",
    "load": "weft.runtime.artifact",
    "parse": "weft.compiler.api",
    # Differentiation: docs/autodiff.md.
    "grad": "weft.compiler.transformations.gradients",
    "value_and_grad": "weft.compiler.transformations.gradients",
    "vjp": "weft.compiler.transformations.gradients",
    "stop_gradient": "weft.compiler.transformations.gradients",
    "jvp": "weft.compiler.transformations.forward",
    "jacobian": "weft.compiler.transformations.jacobians",
    "custom_jvp": "weft.compiler.transformations.custom",
    "custom_vjp": "weft.compiler.transformations.custom",
    "hessian": "weft.compiler.transformations.jacobians",
    "vmap": "weft.compiler.vectorize",
    "recompute": "weft.compiler.memory_budget",
    "checkpoint": "weft.compiler.checkpointing",
    "checkpoint_sequential": "weft.compiler.checkpointing",
    "tune_model": "weft.compiler.tuning",
    "generate": "weft.generation.generate",
    "function": "weft.ir.python.from_python",
    "IRModule": "weft.ir",
    "Function": "weft.ir",
    "CpuTarget": "weft.target",
    "Target": "weft.target",
    # Users' operators: docs/tutorials/add_operator.md.
    "Attrs": "weft.ir",
    "OpPattern": "weft.ir",
    "TensorType": "weft.ir",
    "attr": "weft.ir",
    "case": "weft.ir",
    "check_operator": "weft.compiler.check_operator",
    "define_op": "weft.ir",
    # Users' passes and rules: add_pass.md, add_rule.md and add_tir_pass.md there.
    "insert": "weft.support.insertion",
    "register_pass": "weft.ir",
    "register_rule": "weft.ir.rewrite.registered",
    "register_tir_pass": "weft.tir.transform.registered",
    "rule": "weft.ir",
    # Users' code generators: docs/codegen.md.
    "register_external_codegen": "weft.transform",
}
_SUBMODULES = ("checkpoints", "codegen", "compiler", "data", "export", "frontend", "generation",
               "ir", "models", "onnx_backend", "op", "runtime", "strategy", "target", "te", "tir",
               "topi", "torch_backend", "transform", "tune")

__all__ = [
    "Attrs",
    "CompiledModel",
    "CompiledModule",
    "CpuTarget",
    "DynamicModel",
    "Executable",
    "ForeignModel",
    "Function",
    "IRModule",
    "ModelLike",
    "OpPattern",
    "Target",
    "TensorType",
    "WeftError",
    "__version__",
    "attr",
    "case",
    "check_operator",
    "checkpoint",
    "checkpoint_sequential",
    "compile",
    "config",
    "custom_jvp",
    "custom_vjp",
    "define_op",
    "errors",
    "function",
    "generate",
    "grad",
    "hessian",
    "insert",
    "jacobian",
    "jvp",
    "load",
    "parse",
    "recompute",
    "register_external_codegen",
    "register_pass",
    "register_rule",
    "register_tir_pass",
    "rule",
    "stop_gradient",
    "tune_model",
    "value_and_grad",
    "vjp",
    "vmap",
]


# Hidden from type checkers, which would otherwise accept any attribute as ``Any``.
if not TYPE_CHECKING:

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
