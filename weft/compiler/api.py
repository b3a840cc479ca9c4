"""``weft.compile``: from a model to a module that runs."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import weft.op  # noqa: F401 - models and programs refer to operators by name
from weft import ir
from weft.compiler.compiled_model import CompiledModel, ForeignModel, open_code
from weft.compiler.lowering import is_first_order
from weft.compiler.model_code import ModelCode, build_model
from weft.compiler.options import CompileOptions
from weft.compiler.pipeline import run_pipeline
from weft.compiler.sources import cache_key, import_model
from weft.compiler.stages import Stages
from weft.compiler.vm.build import build_vm_model
from weft.ir.module import IRModule
from weft.support import progress, trace
from weft.support.cache import open_cache
from weft.support.config import config
from weft.support.log import Level, debug, enabled

__all__ = ["CompiledModel", "ForeignModel", "compile", "parse"]


def parse(text: str) -> IRModule:
    """The typed module that weft's text form stands for; ``str(module)`` parses back.

    Raises ``ParseError`` and ``TypeInferenceError``.
    """
    return ir.infer_type(ir.parse(text))


def compile(
    model: Any,
    *,
    target: Any = None,
    inputs: Mapping[str, Sequence[object]] | None = None,
    opt_level: int = 3,
    **knobs: Any,
) -> CompiledModel | ForeignModel:
    """Compile ``model`` for ``target``.

    ``model`` is a path (ONNX, or text of the functional IR in a ``.ir`` file), the bytes of an
    ONNX model, an ``onnx.ModelProto``, an ``IRModule`` or a ``Function``. ``inputs`` overrides
    shapes by input name. ``opt_level`` is 0 (no optimisation) to 3. ``knobs`` are settings of
    ``weft.config`` that hold for this compilation: ``weft.compile(model, debug=5)``. For a target
    that this machine cannot run the result can be exported and printed, not called.

    Raises ``InvalidModelError``, ``UnsupportedModelError``, ``TypeInferenceError``,
    ``OptionError`` and ``TargetError``, all of them ``WeftError``.
    """
    with config(**knobs):
        options = CompileOptions.make(target, opt_level, inputs)
        start = time.perf_counter()
        code = _compile(model, options)
        with trace.span("load"):
            module = open_code(code, Stages(model, options))
        debug(Level.CACHE, "compiler", f"compiled in {time.perf_counter() - start:.2f} s")
        return module


def _compile(model: Any, options: CompileOptions) -> ModelCode:
    # Whoever wants to see the way through must not get it from the cache.
    watched = (enabled(Level.CHOICES) or config.dump_dir or config.print_after
               or config.print_before or config.explain)
    cache = None if watched or config.verify >= 2 or config.time_passes else open_cache()
    key = cache_key(model, options) if cache is not None else None
    found = cache.get(key) if cache is not None and key is not None else None
    if found is not None:
        debug(Level.CACHE, "compiler", "the whole model was in the cache")
        return ModelCode.from_payload(found)
    with progress.task("importing the model"), trace.span("import"):
        mod = import_model(model, options)
    with progress.task("optimising the graph"):
        mod = run_pipeline(mod, options)
    code = build_model(mod, options) if is_first_order(mod) else build_vm_model(mod, options)
    if cache is not None and key is not None:
        cache.put(key, *code.to_parts())
    return code
