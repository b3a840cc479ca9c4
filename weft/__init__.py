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
        amp,
        autograd,
        checkpoints,
        codegen,
        compiler,
        data,
        debug,
        export,
        frontend,
        generation,
        graph,
        ir,
        models,
        nn,
        onnx_backend,
        op,
        optim,
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
    from weft.compiler.autotune import autotune
    from weft.compiler.memory_budget import remat
    from weft.compiler.opcheck import opcheck
    from weft.compiler.transformations.checkpointing import checkpoint, checkpoint_sequential
    from weft.compiler.transformations.custom import custom_jvp, custom_vjp
    from weft.compiler.transformations.gradients import stop_gradient
    from weft.frontend.onnx.user_converters import onnx_converter
    from weft.frontend.source import ModelLike
    from weft.frontend.torch.user_converters import torch_converter
    from weft.generation.generate import generate
    from weft.ir import (
        Attrs,
        Function,
        IRModule,
        OpPattern,
        TensorType,
        attr,
        define_op,
        op_case,
        register_pass,
        rule,
    )
    from weft.ir.python.from_python import function
    from weft.runtime.artifact import load
    from weft.runtime.devices.cuda.array import DeviceArray
    from weft.runtime.devices.sim.description import SimDevice
    from weft.runtime.executable import Executable
    from weft.runtime.run_control import CancellationToken, RunControl
    from weft.support.fallback import FallbackWarning
    from weft.support.insertion import pass_at
    from weft.target import CpuTarget, Target
    from weft.tir.transform.registered import register_tir_pass
    from weft.torch_backend import torch_backend  # noqa: F401
    from weft.transform import register_external_codegen
    from weft.transform.placement.virtual_devices import virtual_devices
    # isort: off
    from weft.eager.anomaly import (  # noqa: F401 - public, by the table below
        detect_anomaly
    )
    from weft.eager.tracing.control_flow import (  # noqa: F401 - public, by the table below
        cond
    )
    from weft.eager.device import (  # noqa: F401 - public, by the table below
        device
    )
    from weft.eager.dtypes import (  # noqa: F401 - public, by the table below
        dtype, float16, float32, float64, bfloat16, uint8, uint16, uint32, uint64, int8, int16,
        int32, int64, bool_, double, half, long, short, get_default_dtype, set_default_dtype
    )
    from weft.eager.functions.creation import (  # noqa: F401 - public, by the table below
        arange, as_tensor, empty, empty_like, eye, from_dlpack, from_numpy, full, full_like,
        linspace, logspace, meshgrid, ones, ones_like, tensor, zeros, zeros_like
    )
    from weft.eager.functions.elementwise import (  # noqa: F401 - public, by the table below
        abs, absolute, acos, add, addcdiv, addcmul, asin, atan, atan2, ceil, clamp, clip, cos,
        cosh, div, divide, eq, erf, exp, exp2, expm1, floor, floor_divide, fmod, ge, greater,
        greater_equal, gt, isfinite, isinf, isnan, le, lerp, less, less_equal, log, log10,
        log1p, log2, lt, maximum, minimum, mul, multiply, nan_to_num, ne, neg, negative,
        not_equal, pow, reciprocal, relu, remainder, round, rsqrt, sigmoid, sign, sin, sinh,
        sqrt, square, sub, subtract, tan, tanh, true_divide, trunc, where
    )
    from weft.eager.functions.indexing import (  # noqa: F401 - public, by the table below
        diag, diagonal, gather, index_select, masked_select, narrow, nonzero, scatter,
        scatter_add, select, take, take_along_dim
    )
    from weft.eager.functions.linear import (  # noqa: F401 - public, by the table below
        addmm, bmm, dot, einsum, matmul, mm, mv, outer
    )
    from weft.eager.functions.logic import (  # noqa: F401 - public, by the table below
        logical_and, logical_or, logical_xor, logical_not, bitwise_and, bitwise_or, bitwise_xor,
        bitwise_not, bitwise_left_shift, bitwise_right_shift
    )
    from weft.eager.functions.random import (  # noqa: F401 - public, by the table below
        Generator, bernoulli, default_generator, get_rng_state, initial_seed, manual_seed,
        multinomial, normal, rand, rand_like, randint, randn, randn_like, randperm,
        set_rng_state
    )
    from weft.eager.functions.reduction import (  # noqa: F401 - public, by the table below
        all, amax, amin, any, argmax, argmin, argsort, cumprod, cumsum, log_softmax, logsumexp,
        max, mean, min, norm, prod, softmax, sort, std, sum, topk, var, var_mean
    )
    from weft.eager.functions.shape import (  # noqa: F401 - public, by the table below
        broadcast_to, cat, chunk, concat, concatenate, flatten, flip, masked_fill, movedim,
        permute, repeat_interleave, reshape, roll, split, squeeze, stack, tile, transpose, tril,
        triu, unbind, unflatten, unsqueeze
    )
    from weft.eager.grad_mode import (  # noqa: F401 - public, by the table below
        no_grad, enable_grad, set_grad_enabled, is_grad_enabled, inference_mode
    )
    from weft.eager.tracing.jit import (  # noqa: F401 - public, by the table below
        jit
    )
    from weft.eager.tracing.traced_module import (  # noqa: F401 - public, by the table below
        trace
    )
    from weft.eager.program_cache import (  # noqa: F401 - public, by the table below
        cache_info
    )
    from weft.eager.promotion import (  # noqa: F401 - public, by the table below
        promote_types
    )
    from weft.eager.tensor import (  # noqa: F401 - public, by the table below
        Tensor, Size
    )
    from weft.eager.tracing.train_step import (  # noqa: F401 - public, by the table below
        train_step, TrainStep
    )
    from weft.eager.tracing.transformations import (  # noqa: F401 - public, by the table below
        grad, value_and_grad, vjp, jvp, jacobian, hessian, vmap
    )
    # isort: on

__version__ = "0.1.0"

# Public name -> the module that defines it.
_LAZY = {
    "compile": "weft.compiler.api",
    "ModelLike": "weft.frontend.source",
    "Executable": "weft.runtime.executable",
    "load": "weft.runtime.artifact",
    "CancellationToken": "weft.runtime.run_control",
    "RunControl": "weft.runtime.run_control",
    "DeviceArray": "weft.runtime.devices.cuda.array",
    "SimDevice": "weft.runtime.devices.sim.description",
    "parse": "weft.compiler.api",
    # Differentiation: docs/autodiff.md.
    "stop_gradient": "weft.compiler.transformations.gradients",
    "custom_jvp": "weft.compiler.transformations.custom",
    "custom_vjp": "weft.compiler.transformations.custom",
    "remat": "weft.compiler.memory_budget",
    "checkpoint": "weft.compiler.transformations.checkpointing",
    "checkpoint_sequential": "weft.compiler.transformations.checkpointing",
    "autotune": "weft.compiler.autotune",
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
    "define_op": "weft.ir",
    "op_case": "weft.ir",
    "opcheck": "weft.compiler.opcheck",
    # Users' passes and rules: add_pass.md, add_rule.md and add_tir_pass.md there.
    "FallbackWarning": "weft.support.fallback",
    "pass_at": "weft.support.insertion",
    # Users' converters: add_converter.md there.
    "onnx_converter": "weft.frontend.onnx.user_converters",
    "torch_converter": "weft.frontend.torch.user_converters",
    "register_pass": "weft.ir",
    "register_tir_pass": "weft.tir.transform.registered",
    "rule": "weft.ir",
    # Users' code generators: docs/codegen.md.
    "register_external_codegen": "weft.transform",
    "virtual_devices": "weft.transform.placement.virtual_devices",
}

# Names of tensors and their functions, by module: docs/training.md.
_EAGER = {
    "weft.eager.anomaly": (
        "detect_anomaly"
    ),
    "weft.eager.tracing.control_flow": (
        "cond"
    ),
    "weft.eager.device": (
        "device"
    ),
    "weft.eager.dtypes": (
        "dtype float16 float32 float64 bfloat16 uint8 uint16 uint32 uint64 int8 int16 int32 int64 "
        "bool_ double half long short get_default_dtype set_default_dtype"
    ),
    "weft.eager.functions.creation": (
        "arange as_tensor empty empty_like eye from_dlpack from_numpy full full_like linspace "
        "logspace meshgrid ones ones_like tensor zeros zeros_like"
    ),
    "weft.eager.functions.elementwise": (
        "abs absolute acos add addcdiv addcmul asin atan atan2 ceil clamp clip cos cosh div "
        "divide eq erf exp exp2 expm1 floor floor_divide fmod ge greater greater_equal gt "
        "isfinite isinf isnan le lerp less less_equal log log10 log1p log2 lt maximum minimum mul "
        "multiply nan_to_num ne neg negative not_equal pow reciprocal relu remainder round rsqrt "
        "sigmoid sign sin sinh sqrt square sub subtract tan tanh true_divide trunc where"
    ),
    "weft.eager.functions.indexing": (
        "diag diagonal gather index_select masked_select narrow nonzero scatter scatter_add "
        "select take take_along_dim"
    ),
    "weft.eager.functions.linear": (
        "addmm bmm dot einsum matmul mm mv outer"
    ),
    "weft.eager.functions.logic": (
        "logical_and logical_or logical_xor logical_not bitwise_and bitwise_or bitwise_xor "
        "bitwise_not bitwise_left_shift bitwise_right_shift"
    ),
    "weft.eager.functions.random": (
        "Generator bernoulli default_generator get_rng_state initial_seed manual_seed multinomial "
        "normal rand rand_like randint randn randn_like randperm set_rng_state"
    ),
    "weft.eager.functions.reduction": (
        "all amax amin any argmax argmin argsort cumprod cumsum log_softmax logsumexp max mean "
        "min norm prod softmax sort std sum topk var var_mean"
    ),
    "weft.eager.functions.shape": (
        "broadcast_to cat chunk concat concatenate flatten flip masked_fill movedim permute "
        "repeat_interleave reshape roll split squeeze stack tile transpose tril triu unbind "
        "unflatten unsqueeze"
    ),
    "weft.eager.grad_mode": (
        "no_grad enable_grad set_grad_enabled is_grad_enabled inference_mode"
    ),
    "weft.eager.tracing.jit": (
        "jit"
    ),
    "weft.eager.tracing.traced_module": (
        "trace"
    ),
    "weft.eager.program_cache": (
        "cache_info"
    ),
    "weft.eager.promotion": (
        "promote_types"
    ),
    "weft.eager.tensor": (
        "Tensor Size"
    ),
    "weft.eager.tracing.train_step": (
        "train_step TrainStep"
    ),
    "weft.eager.tracing.transformations": (
        "grad value_and_grad vjp jvp jacobian hessian vmap"
    ),
}
_LAZY |= {name: module for module, names in _EAGER.items() for name in names.split()}
_SUBMODULES = ("amp", "autograd", "checkpoints", "codegen", "compiler", "data", "debug", "export",
               "frontend", "generation", "graph", "ir", "models", "nn", "onnx_backend", "op",
               "optim", "runtime", "strategy", "target", "te", "tir", "topi",
               "torch_backend", "transform", "tune")

# Old name -> the new one, until 0.3: docs/renamed.md.
_RENAMED = {
    "case": "op_case",
    "check_operator": "opcheck",
    "insert": "pass_at",
    "module_of": "trace",
    "recompute": "remat",
    "tune_model": "autotune",
}

# Classes that ``Executable`` replaces, until 0.3.
_EXECUTABLES = ("CompiledModel", "CompiledModule", "DynamicModel", "ForeignModel")

__all__ = [
    "Attrs",
    "CancellationToken",
    "CpuTarget",
    "DeviceArray",
    "Executable",
    "FallbackWarning",
    "Function",
    "IRModule",
    "ModelLike",
    "OpPattern",
    "RunControl",
    "SimDevice",
    "Target",
    "TensorType",
    "WeftError",
    "__version__",
    "attr",
    "autotune",
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
    "load",
    "onnx_converter",
    "op_case",
    "opcheck",
    "parse",
    "pass_at",
    "register_external_codegen",
    "register_pass",
    "register_tir_pass",
    "remat",
    "rule",
    "stop_gradient",
    "torch_converter",
    "virtual_devices",
]
__all__ += [name for names in _EAGER.values() for name in names.split()]


# Hidden from type checkers, which would otherwise accept any attribute as ``Any``.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        if name in _LAZY:
            value = getattr(_import(_LAZY[name]), name)
            globals()[name] = value
            return value
        if name in _SUBMODULES:
            return _import(f"weft.{name}")
        if name in _RENAMED:
            from weft.support.deprecation import renamed_attribute

            return renamed_attribute("weft", name, _RENAMED[name])
        if name in _EXECUTABLES:
            from weft.support.deprecation import warn_renamed

            warn_renamed(f"weft.{name}", "weft.Executable")
            return getattr(_import("weft.runtime.old_classes"), name)
        if name == "register_rule":
            return _import("weft.ir.rewrite.rules").register_rule
        from weft.support.suggestion import missing_attribute

        raise missing_attribute("weft", name, [*_LAZY, *_SUBMODULES])


def _import(module: str) -> Any:
    with interrupts_held():
        return importlib.import_module(module)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_SUBMODULES})
