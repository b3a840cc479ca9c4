"""``weft.compile``: from a model to a module that runs."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import weft.op  # noqa: F401 - models and programs refer to operators by name
from weft import ir
from weft.compiler.compiled_model import CompiledModel, ForeignModel, open_code
from weft.compiler.dynamic_inputs import (
    has_dynamic_inputs,
    manifest_of_module,
    manifest_of_onnx,
    manifest_of_program,
)
from weft.compiler.dynamic_model import DynamicModel
from weft.compiler.options import CompileOptions
from weft.compiler.pipeline import count_passes, run_pipeline
from weft.compiler.program.lowering import try_lower_program
from weft.compiler.program.model_code import ModelCode, build_model
from weft.compiler.sources import cache_key, import_model, prepare, unchanged_file
from weft.compiler.stages import Stages
from weft.compiler.vm.build import build_vm_model
from weft.ir.module import IRModule
from weft.runtime.manifest import Manifest
from weft.strategy.records import records_in_force
from weft.support import progress, trace
from weft.support.cache import open_cache
from weft.support.config import config
from weft.support.errors import InternalError, UnsupportedModelError
from weft.support.log import Level, debug, enabled
from weft.support.plugins import load_plugins

__all__ = ["CompiledModel", "DynamicModel", "ForeignModel", "compile", "parse"]


def parse(text: str) -> IRModule:
    """The typed module that weft's text form stands for; ``str(module)`` parses back.

    Raises ``ParseError`` and ``TypeInferenceError``.
    """
    load_plugins()
    return ir.infer_type(ir.parse(text))


def compile(
    model: Any,
    *,
    target: Any = None,
    inputs: Mapping[str, Sequence[object]] | None = None,
    example_inputs: Sequence[Any] | Mapping[str, Any] | None = None,
    opt_level: int = 3,
    codegens: Sequence[str] = (),
    **knobs: Any,
) -> CompiledModel | DynamicModel | ForeignModel:
    """Compile ``model`` for ``target``.

    ``model`` is a path (ONNX, or text of the functional IR in a ``.ir`` file), the bytes of an
    ONNX model, an ``onnx.ModelProto``, a ``torch.nn.Module`` (with ``example_inputs``), a
    ``torch.export.ExportedProgram``, an ``IRModule`` or a ``Function``. ``inputs`` overrides
    shapes by input name; a size that is a name stays open, and the model is compiled for each that
    it meets (``DynamicModel``). ``opt_level`` is 0 (no optimisation) to 3. ``codegens`` name code
    generators of others that take parts of the program (docs/codegen.md). ``knobs`` are settings of
    ``weft.config`` that hold for this compilation: ``weft.compile(model, debug=5)``. ``threads=n``
    is kept in the module, and in artifacts: its calls use that many threads, unless ``with
    weft.config(threads=m)`` around a call says otherwise. For a target that this machine cannot
    run the result can be exported and printed, not called.

    Raises ``InvalidModelError``, ``UnsupportedModelError``, ``TypeInferenceError``,
    ``OptionError`` and ``TargetError``, all of them ``WeftError``.
    """
    with config(**knobs):
        load_plugins()
        options = CompileOptions.make(target, opt_level, inputs, codegens)
        model = prepare(model, example_inputs, inputs)
        manifest = manifest_of_program(model, options)
        threads: int | None = config.override("threads") if "threads" in knobs else None
        made = manifest if manifest is not None else _compile(model, options)
        if isinstance(made, ModelCode):
            return _opened(made, Stages(model, options), threads)
        check_file = unchanged_file(model)

        def compile_at(fixed: CompileOptions) -> CompiledModel | ForeignModel:
            check_file()
            with config(**knobs):
                code = _compile(model, fixed)
                if not isinstance(code, ModelCode):
                    raise InternalError("sizes are open after all were given", got=code.signature())
                return _opened(code, Stages(model, fixed), threads)

        return DynamicModel(replace(made, threads=threads), Stages(model, options), compile_at)


def _opened(code: ModelCode, stages: Stages, threads: int | None) -> CompiledModel | ForeignModel:
    """The module of a model's code, whose calls use ``threads`` threads where that is given."""
    manifest = replace(code.manifest, threads=threads)  # not part of what the cache keeps
    with trace.span("load"):
        return open_code(replace(code, manifest=manifest), stages)


def _compile(model: Any, options: CompileOptions) -> ModelCode | Manifest:
    """The code of a model; its signature alone where sizes of its inputs are open."""
    start = time.perf_counter()
    code = _compile_cached(model, options)
    debug(Level.CACHE, "compiler", f"compiled in {time.perf_counter() - start:.2f} s")
    return code


def _import_or_signature(model: Any, options: CompileOptions) -> IRModule | Manifest:
    """The module; the signature of a model that can only be imported once its sizes are known."""
    try:
        return import_model(model, options)
    except UnsupportedModelError as error:
        # Missing operators are listed in notes, and known sizes would not help them.
        manifest = None if error.notes else manifest_of_onnx(model, options)
        if manifest is None:
            raise
        return manifest


def _compile_cached(model: Any, options: CompileOptions) -> ModelCode | Manifest:
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
        mod = _import_or_signature(model, options)
    if isinstance(mod, Manifest):
        return mod
    if has_dynamic_inputs(mod):
        return manifest_of_module(mod, options)
    with progress.task("optimising the graph", count_passes(options)) as task:
        mod = run_pipeline(mod, options, task=task)
    with trace.span("lower program"):
        program = try_lower_program(mod)
    code = build_vm_model(mod, options) if program is None else build_model(program, options)
    is_current = records_in_force().digest == options.records  # none were added meanwhile
    if cache is not None and key is not None and is_current:
        cache.put(key, *code.to_parts())
    return code
