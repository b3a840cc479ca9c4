"""``weft.compile``: from a model to an executable."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import weft.op  # noqa: F401 - models and programs refer to operators by name
from weft import ir
from weft.codegen import backend_of
from weft.compiler.compiled_model import CompiledModel, ForeignModel, open_code
from weft.compiler.dynamic_inputs import (
    has_dynamic_inputs,
    manifest_of_module,
    manifest_of_onnx,
    manifest_of_program,
)
from weft.compiler.dynamic_model import CompileAt, DynamicModel
from weft.compiler.executable import Executable
from weft.compiler.extensions import Extensions, PassesLike, RulesLike, TirPassesLike
from weft.compiler.memory_budget import budget_of, within
from weft.compiler.options import CompileOptions, SpecializeLike
from weft.compiler.pipeline import count_passes, phases_of, run_pipeline
from weft.compiler.program.lowering import lower_program, try_lower_program
from weft.compiler.program.model_code import InPlaceError, ModelCode, build_model
from weft.compiler.program.program import Program
from weft.compiler.program.variants import add_variants
from weft.compiler.sources import (
    ModelLike,
    Source,
    cache_key,
    import_model,
    prepare,
    unchanged_file,
)
from weft.compiler.stages import Stages
from weft.compiler.vm.build import build_vm_model
from weft.ir.module import IRModule
from weft.runtime.artifact import check_machine
from weft.runtime.manifest import Manifest
from weft.runtime.sizes import evaluate
from weft.strategy.records import active_records
from weft.support import progress, trace
from weft.support.cache import open_cache
from weft.support.config import config
from weft.support.errors import (
    ArtifactError,
    InternalError,
    OptionError,
    TypeInferenceError,
    UnsupportedModelError,
    WeftError,
)
from weft.support.log import Level, debug, enabled
from weft.support.plugins import load_plugins
from weft.target import Target
from weft.tir.transform.registered import with_insertions
from weft.transform import counts_data

__all__ = ["CompiledModel", "DynamicModel", "Executable", "ForeignModel", "ModelLike", "compile",
           "parse"]


def parse(text: str) -> IRModule:
    """The typed module of a program in weft's text form; ``str(module)`` is such a text.

    Raises ``ParseError`` and ``TypeInferenceError``.
    """
    load_plugins()
    return ir.infer_type(ir.parse(text))


def compile(
    model: ModelLike,
    *,
    target: Target | str | None = None,
    inputs: Mapping[str, Sequence[object]] | None = None,
    example_inputs: Sequence[Any] | Mapping[str, Any] | None = None,
    opt_level: int = 3,
    passes: PassesLike = (),
    rules: RulesLike = (),
    tir_passes: TirPassesLike = (),
    codegens: Sequence[str] = (),
    specialize: SpecializeLike = None,
    state: Mapping[str, str] | None = None,
    **knobs: Any,
) -> Executable:
    """Compile ``model`` for ``target``.

    ``model`` is a path (ONNX, or text of the functional IR in a ``.ir`` file), the bytes of an
    ONNX model, an ``onnx.ModelProto``, a ``torch.nn.Module`` (with ``example_inputs``), a
    ``torch.export.ExportedProgram``, an ``IRModule``, a ``Function`` or a ``@weft.function``.

    ``target`` is a ``Target`` or its text (``"llvm -mcpu=haswell"``); by default this machine.
    ``inputs`` overrides shapes by input name; a name as a size makes it symbolic:
    ``{"x": ("batch", 3, 224, 224)}``. One program then runs at all sizes (``DynamicModel``,
    docs/dynamic_shapes.md); ``specialize`` asks for faster kernels at some sizes:
    ``{"batch": [1, 8, (2, 4)]}``, or ``[{"batch": 1, "seq": (1, 16)}]`` for several at once.
    ``opt_level`` is 0 (no optimisation) to 3.

    ``state`` maps an output to the input that it is the next value of: ``{"present": "past"}``. The
    module keeps that tensor itself, zeros at first, and updates it in place; calls neither take
    nor return it (``CompiledModule.state``).

    ``passes`` are users' passes over the IR, ``rules`` rewrite rules that ``simplify_expr`` applies
    before its own, ``tir_passes`` functions over the loop program of each kernel; ``weft.insert``
    gives a pass its position (docs/tutorials). ``codegens`` name external code generators
    (docs/codegen.md).

    ``knobs`` are settings of ``weft.config`` for this compilation: ``weft.compile(model,
    debug=5)``. ``threads=n`` is also kept in the executable and its artifacts, whose calls use
    ``n`` threads unless ``with weft.config(threads=m)`` around a call overrides it.

    Raises ``InvalidModelError``, ``UnsupportedModelError``, ``TypeInferenceError``,
    ``OptionError``, ``PassError`` and ``TargetError``, all of them ``WeftError``.
    """
    with config(**knobs):
        load_plugins()
        options = CompileOptions.make(target, opt_level, inputs, codegens,
                                      Extensions.make(passes, rules, tir_passes), specialize,
                                      state)
        # Reports unknown positions of passes before any work.
        phases_of(options)
        with_insertions(backend_of(options.target).tir_passes, options.extensions.tir_passes)
        return _executable(prepare(model, example_inputs, inputs), options, knobs)


def _executable(source: Source, options: CompileOptions, knobs: Mapping[str, Any]) -> Executable:
    """The executable of a model; ``knobs`` are the settings of its compilation."""
    threads: int | None = config.override("threads") if "threads" in knobs else None
    made = _compile(source, options)
    if isinstance(made, ModelCode) and not made.manifest.symbols:
        if options.specialize:
            raise OptionError("specialize is for models with symbolic sizes",
                              got=made.manifest.signature(),
                              help='name the sizes: inputs={"x": ("batch", 3, 224, 224)}')
        return _opened(made, Stages(source, options), threads)
    check_file = unchanged_file(source)

    def compile_at(fixed: CompileOptions) -> Executable:
        check_file()
        with config(**knobs), fixed.settings():
            code = _compile(source, fixed)
            if not isinstance(code, ModelCode):
                raise InternalError("a shape is still dynamic after all sizes were given",
                                    got=code.manifest.signature())
            return _opened(code, Stages(source, fixed), threads)

    return _dynamic(made, Stages(source, options), threads, compile_at)


@dataclass(frozen=True, slots=True)
class _PerShape:
    """The signature of a model that is compiled for each set of input shapes, and why."""

    manifest: Manifest
    reason: str


def _dynamic(made: ModelCode | _PerShape, stages: Stages, threads: int | None,
             compile_at: CompileAt) -> DynamicModel | ForeignModel:
    """The executable of a model with dynamic shapes, from its general program or signature."""
    if isinstance(made, _PerShape):
        manifest = replace(made.manifest, threads=threads)
        return DynamicModel(manifest, stages, compile_at, reason=made.reason)
    code = replace(made, manifest=replace(made.manifest, threads=threads))
    try:
        check_machine(code.manifest.target)
    except ArtifactError as reason:
        return ForeignModel(code, stages, reason)
    return DynamicModel(code.manifest, _stages_of(code, stages), compile_at, code)


def _opened(code: ModelCode, stages: Stages, threads: int | None) -> CompiledModel | ForeignModel:
    """The executable of a model's code; its calls use ``threads`` threads unless ``None``."""
    manifest = replace(code.manifest, threads=threads)  # the cache keeps code without it
    with trace.span("load"):
        return open_code(replace(code, manifest=manifest), _stages_of(code, stages))


def _stages_of(code: ModelCode, stages: Stages) -> Stages:
    """The stages of the compilation that gave ``code``, which may have left sizes unknown."""
    if code.manifest.counts:
        return stages
    return replace(stages, options=replace(stages.options, data_sizes=False))


def _compile(model: Source, options: CompileOptions) -> ModelCode | _PerShape:
    """The code of a model, or its signature if its inputs have dynamic shapes."""
    start = time.perf_counter()
    code = _compile_cached(model, options)
    debug(Level.CACHE, "compiler", f"compiled in {time.perf_counter() - start:.2f} s")
    return code


def _compile_cached(model: Source, options: CompileOptions) -> ModelCode | _PerShape:
    # Settings that show or verify the stages of a compilation need it to run.
    watched = (enabled(Level.CHOICES) or config.dump_dir or config.print_after
               or config.print_before or config.explain)
    cache = None if watched or config.verify >= 2 or config.time_passes else open_cache()
    key = cache_key(model, options) if cache is not None else None
    found = cache.get(key) if cache is not None and key is not None else None
    if found is not None:
        debug(Level.CACHE, "compiler", "the whole model was in the cache")
        return ModelCode.from_payload(found)
    code = _code_of_source(model, options)
    if isinstance(code, _PerShape):
        return code
    is_current = active_records().digest == options.records  # not if tuning ran meanwhile
    if cache is not None and key is not None and is_current:
        cache.put(key, *code.to_parts())
    return code


def _imported(model: Source, options: CompileOptions) -> IRModule:
    with progress.task("importing the model"), trace.span("import"):
        return import_model(model, options)


def _code_of_source(model: Source, options: CompileOptions) -> ModelCode | _PerShape:
    """The code of a model; of one with dynamic shapes the program for all sizes, if it has one."""
    try:
        mod = _imported(model, options)
    except (UnsupportedModelError, TypeInferenceError) as error:
        signature = manifest_of_onnx(model, options) or manifest_of_program(model, options)
        # A list of unsupported features, which are the same at fixed sizes.
        lists_features = isinstance(error, UnsupportedModelError) and error.notes
        if signature is None or lists_features:
            raise
        return _signature_after(error, signature, options)
    if options.data_sizes and counts_data(mod):
        try:
            return _general_code(mod, options)
        except OptionError:
            raise
        except WeftError as error:
            debug(Level.CACHE, "compiler", f"sizes that data determines stay unknown: {error}")
            options = replace(options, data_sizes=False)
    if not has_dynamic_inputs(mod):
        return _fixed_code(mod, options)
    try:
        return _general_code(mod, options)
    except WeftError as error:
        return _signature_after(error, manifest_of_module(mod, options), options)


def _signature_after(error: WeftError, signature: Manifest, options: CompileOptions) -> _PerShape:
    """The signature of a model that has no program for all sizes because of ``error``.

    Raises ``error`` where programs for one size each are no replacement.
    """
    # A program for each set of shapes would have a state for each.
    if isinstance(error, OptionError) or options.state:
        raise error
    debug(Level.CACHE, "compiler", f"not compiled for all sizes: {error}")
    return _PerShape(signature, error.what)


def _general_code(mod: IRModule, options: CompileOptions) -> ModelCode:
    """The program for all sizes of a module with symbolic inputs.

    Raises ``WeftError`` where a size is not determined by the inputs, or an operator needs numbers.
    """
    if not options.symbolic_sizes:
        raise UnsupportedModelError("WEFT_SYMBOLIC_SIZES=0 asks for programs of fixed sizes")
    if not backend_of(options.target).takes_sizes:
        raise UnsupportedModelError(f"kernels of {options.target.kind} targets need fixed sizes")
    if options.codegens:
        raise UnsupportedModelError("external code generators take regions of fixed sizes")
    mod = run_pipeline(mod, options)
    with trace.span("lower program"):
        program = _lowered(mod, options)
    code = _program_code(program, mod, options)
    if code.callbacks:
        raise UnsupportedModelError("functions of Python need fixed sizes")
    return code


def _fixed_code(mod: IRModule, options: CompileOptions) -> ModelCode:
    budget = budget_of(mod)
    with progress.task("optimising the graph", count_passes(options)) as task:
        mod = run_pipeline(mod, options, task=task)
    if budget is not None:
        return _code_within(budget, mod, options)
    with trace.span("lower program"):
        program = _lowered(mod, options) if options.state else try_lower_program(mod)
    return (build_vm_model(mod, options) if program is None
            else _program_code(program, mod, options))


def _code_within(budget: int, mod: IRModule, options: CompileOptions) -> ModelCode:
    """The code of a lowered module whose arena has at most ``budget`` bytes."""
    limit = budget
    while True:
        shrink = partial(within, budget=limit, options=options)
        with trace.span("lower program"):
            program = _lowered(mod, options, limit=shrink)
        code = _program_code(program, mod, options, limit=shrink)
        excess = evaluate(code.manifest.arena_bytes, {}) - budget
        if excess <= 0:
            return code
        # Results in place are placed in memory in another way than the limit assumes.
        limit -= max(excess, budget // 64, 1)


def _lowered(mod: IRModule, options: CompileOptions, refused: frozenset[str] = frozenset(),
             limit: Callable[[Program], Program] | None = None) -> Program:
    return lower_program(mod, dict(options.state), refused, limit)


def _program_code(program: Program, mod: IRModule, options: CompileOptions,
                  limit: Callable[[Program], Program] | None = None) -> ModelCode:
    """The code of ``program``, lowered from ``mod``.

    Where a kernel cannot work in place, ``mod`` is lowered again, and values are copied.
    """
    refused: frozenset[str] = frozenset()
    while True:
        with trace.span("variants"):
            made = add_variants(program, options.target, options.specialize)
        try:
            return build_model(made, options)
        except InPlaceError as error:
            refused |= error.kernels
            program = _lowered(mod, options, refused, limit)
