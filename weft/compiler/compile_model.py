"""From a model to an executable."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import weft.op  # noqa: F401 - models and programs refer to operators by name
from weft import ir
from weft.codegen import backend_of
from weft.compiler.compiled_model import CompiledModel
from weft.compiler.dynamic_inputs import (
    has_dynamic_inputs,
    manifest_of_module,
    manifest_of_onnx,
    manifest_of_program,
)
from weft.compiler.dynamic_model import CompileAt, DynamicModel
from weft.compiler.executable import Executable
from weft.compiler.extensions import Extensions
from weft.compiler.fallbacks import (
    copied_in_place,
    kernels_compiled_at_calls,
    on_virtual_machine,
    permits_another_plan,
    program_on_host,
    program_per_shapes,
    sizes_of_data_unknown,
)
from weft.compiler.foreign_model import ForeignModel
from weft.compiler.kept_code import KeptCode
from weft.compiler.memory_budget import budget_of, within
from weft.compiler.model_key import ModelKey, NotKept, model_key
from weft.compiler.open_model import MadePerShape, open_code, open_for_all_sizes, started
from weft.compiler.options import CompileOptions
from weft.compiler.pipeline import count_passes, phases_of, run_pipeline
from weft.compiler.program.constants import ConstantMemory
from weft.compiler.program.devices.build import runs_on_lanes
from weft.compiler.program.lowering import lower_program
from weft.compiler.program.model_code import InPlaceError, ModelCode, build_model
from weft.compiler.program.placed_kernels import has_own_memory
from weft.compiler.program.program import Program
from weft.compiler.program.variants import add_variants
from weft.compiler.request import CompileRequest
from weft.compiler.sources import (
    Source,
    first_values,
    import_model,
    import_whole,
    is_onnx,
    prepare,
    unchanged_file,
    with_graph,
)
from weft.compiler.stages import Stages
from weft.compiler.vm.build import build_vm_model
from weft.compiler.warm_start.diagnosis import WARM, changed_since, cold, remember_parts
from weft.compiler.warm_start.record import remember
from weft.compiler.warm_start.state import shows_stages
from weft.frontend.onnx import load_onnx_importer
from weft.ir.module import IRModule
from weft.ir.ports import input_names, output_names
from weft.runtime.manifest import Manifest
from weft.runtime.module import CompiledModule
from weft.runtime.sizes import evaluate
from weft.strategy.records import active_records
from weft.support import progress, trace
from weft.support.cache import open_cache
from weft.support.config import config
from weft.support.dataclass import dataclass
from weft.support.errors import (
    InternalError,
    OptionError,
    TargetError,
    TypeInferenceError,
    UnsupportedModelError,
    WeftError,
)
from weft.support.fallback import FallbackLog, recording, report, report_all
from weft.support.file_content import FileContent
from weft.support.log import Level, debug
from weft.support.plugins import load_plugins
from weft.tir.transform.registered import with_insertions
from weft.transform import counts_data
from weft.transform.analysis.least_sizes import with_least_sizes
from weft.transform.passes.extract_subgraph import extract_subgraph
from weft.transform.placement.annotate import with_placement


def parse_program(text: str) -> IRModule:
    """See ``weft.parse``."""
    load_plugins()
    return ir.infer_type(ir.parse(text))


def compile_model(request: CompileRequest) -> Executable:
    """See ``weft.compile``. A compiled file is remembered for ``weft.compiler.warm_start``."""
    with config(**request.knobs), recording(strict=request.strict):
        source, options = _prepared(request)
        code = _compile(source, options, request)
        executable = _executable(code, source, options, request.knobs)
        if options.state and isinstance(executable, (CompiledModule, DynamicModel)):
            for name, value in first_values(request.model).items():
                if name in executable.state:
                    executable.state[name][...] = value
        return executable


def stages_of(request: CompileRequest, manifest: Manifest) -> Stages:
    """The stages of the compilation of ``request``, which gave a program with this manifest."""
    with config(**request.knobs):
        return _stages_of(manifest, Stages(*_prepared(request)))


def code_of(request: CompileRequest) -> ModelCode:
    """The code of a model that has a program, from the cache or compiled again."""
    with config(**request.knobs):
        code = _compile(*_prepared(request))
        if not isinstance(code, ModelCode):
            raise InternalError("the model has no program for all sizes any more",
                                got=code.reason)
        return code


def compiler_at(request: CompileRequest) -> CompileAt:
    """The function that compiles the model of ``request`` for options that fix its shapes."""
    with config(**request.knobs):
        return _compiler_at(_prepared(request)[0], request.knobs)


def part_of(stages: Stages, fetches: Sequence[str] | None, feeds: Sequence[str],
            memory: ConstantMemory) -> Executable:
    """The program that computes other tensors of a compiled model, or from other tensors.

    Its constants go to ``memory`` if its sizes are fixed and it is first-order.
    """
    if stages.model is None:
        raise OptionError("an unpickled model has no inner tensors",
                          help="run parts in the process that compiled the model")
    with stages.options.settings():
        whole = with_placement(import_whole(stages.model, stages.options),
                               stages.options.placement_names)
        known = input_names(whole)
        wanted = output_names(whole) if fetches is None else fetches
        part = extract_subgraph(whole, wanted, {n: None for n in feeds if n not in known})
        options = replace(stages.options, inputs=(), outputs=None, specialize=())
        if options.placement_names:
            options = replace(options, placement=None)  # the annotations are there
        has_own = has_own_memory(backend_of(options.target)) or options.devices
        if has_own or has_dynamic_inputs(part) or options.state:
            return _executable(_compile(part, options), part, options, {})
        return open_code(_fixed_code(part, options, memory), Stages(part, options))


def _prepared(request: CompileRequest) -> tuple[Source, CompileOptions]:
    load_plugins()
    extensions = Extensions.make(request.passes, request.rules, request.tir_passes)
    options = CompileOptions.make(request.target, request.opt_level, request.inputs,
                                  request.codegens, extensions, request.specialize, request.state,
                                  request.outputs, request.devices, request.placement,
                                  soft_placement=request.soft_placement)
    # Reports unknown positions of passes before any work.
    phases_of(options)
    with_insertions(backend_of(options.target).tir_passes, extensions.tir_passes)
    model, options = with_graph(request.model, options)
    return prepare(model, request.example_inputs, request.inputs), options


def _executable(made: ModelCode | _PerShape, source: Source, options: CompileOptions,
                knobs: Mapping[str, Any]) -> Executable:
    """The executable of a model's code; ``knobs`` are the settings of its compilation."""
    threads: int | None = config.override("threads") if "threads" in knobs else None
    if isinstance(made, ModelCode) and not made.manifest.symbols:
        if options.specialize:
            raise OptionError("specialize is for models with symbolic sizes",
                              got=made.manifest.signature(),
                              help='name the sizes: inputs={"x": ("batch", 3, 224, 224)}')
        return _opened(made, Stages(source, options), threads)
    return _dynamic(made, Stages(source, options), threads, _compiler_at(source, knobs))


def _compiler_at(source: Source, knobs: Mapping[str, Any]) -> CompileAt:
    """The function that compiles a model with dynamic shapes for options that fix them."""
    threads: int | None = config.override("threads") if "threads" in knobs else None
    check_file = unchanged_file(source)

    def compile_at(fixed: CompileOptions) -> Executable:
        check_file()
        with config(**knobs), fixed.settings():
            code = _compile(source, fixed)
            if not isinstance(code, ModelCode):
                raise InternalError("a shape is still dynamic after all sizes were given",
                                    got=code.manifest.signature())
            return _opened(code, Stages(source, fixed), threads)

    return compile_at


@dataclass(frozen=True, slots=True)
class _PerShape:
    """The signature of a model that is compiled for each set of input shapes, and why."""

    manifest: Manifest
    reason: str
    start: str = ""


def _dynamic(made: ModelCode | _PerShape, stages: Stages, threads: int | None,
             compile_at: CompileAt) -> DynamicModel | ForeignModel:
    """The executable of a model with dynamic shapes, from its general program or signature."""
    if isinstance(made, _PerShape):
        manifest = replace(made.manifest, threads=threads)
        return started(DynamicModel(manifest, MadePerShape(stages), compile_at,
                                    reason=made.reason), made.start)
    code = replace(made, manifest=replace(made.manifest, threads=threads))
    return started(open_for_all_sizes(code, _stages_of(code.manifest, stages), compile_at),
                   made.start)


def _opened(code: ModelCode, stages: Stages, threads: int | None) -> CompiledModel | ForeignModel:
    """The executable of a model's code; its calls use ``threads`` threads unless ``None``."""
    manifest = replace(code.manifest, threads=threads)  # the cache keeps code without it
    with trace.span("load"):
        made = open_code(replace(code, manifest=manifest), _stages_of(code.manifest, stages))
    return started(made, code.start)


def _stages_of(manifest: Manifest, stages: Stages) -> Stages:
    """The stages of the compilation of a program, which may have left sizes unknown."""
    if manifest.counts:
        return stages
    return replace(stages, options=replace(stages.options, data_sizes=False))


def _compile(model: Source, options: CompileOptions, request: CompileRequest | None = None
             ) -> ModelCode | _PerShape:
    """The code of a model, or its signature if its inputs have dynamic shapes.

    ``request`` is remembered if given. The manifest lists the changes of plan.
    """
    start = time.perf_counter()
    with model.held() if isinstance(model, FileContent) else contextlib.nullcontext(), \
            recording() as log:
        made = _compile_cached(model, options, request, log)
    debug(Level.CACHE, "compiler", f"compiled in {time.perf_counter() - start:.2f} s")
    return made


def _compile_cached(model: Source, options: CompileOptions, request: CompileRequest | None,
                    log: FallbackLog) -> ModelCode | _PerShape:
    cache = None if shows_stages() else open_cache()
    if isinstance(model, FileContent) and is_onnx(model) and model.is_being_read:
        load_onnx_importer()  # meanwhile
    made_key = NotKept("settings turn the cache off, or ask to show or verify stages") \
        if cache is None else model_key(model, options)
    key = made_key if isinstance(made_key, ModelKey) else None

    def then() -> None:
        if key is not None and cache is not None:
            remember_parts(cache, key.identity, key.parts)
        if request is not None and key is not None and key.files:
            remember(request, key.files, key.text)

    found = cache.get(key.text) if cache is not None and key is not None else None
    if found is not None:
        debug(Level.CACHE, "compiler", "the whole model was in the cache")
        then()
        code = replace(ModelCode.from_payload(found), start=WARM)
        report_all(code.manifest.fallbacks)
        return code
    start = cold(made_key.reason if isinstance(made_key, NotKept)
                 else changed_since(cache, made_key.identity, made_key.parts))
    debug(Level.CACHE, "compiler", start)
    kept = KeptCode(model, cache, key)
    try:
        made = _code_of_source(model, options, kept)
        code = replace(made, manifest=replace(made.manifest, fallbacks=log.found), start=start)
        is_current = active_records().digest == options.records  # not if tuning ran meanwhile
        if isinstance(code, ModelCode) and is_current and key is not None and key.is_current:
            kept.keep(code, then)
        return code
    finally:
        kept.close()


def _imported(model: Source, options: CompileOptions) -> IRModule:
    with progress.task("importing the model"), trace.span("import"):
        return import_model(model, options)


def _code_of_source(model: Source, options: CompileOptions, kept: KeptCode
                    ) -> ModelCode | _PerShape:
    """The code of a model; of one with dynamic shapes the program for all sizes, if it has one."""
    try:
        mod = _imported(model, options)
    except (UnsupportedModelError, TypeInferenceError) as error:
        signature = manifest_of_onnx(model, options) or manifest_of_program(model, options)
        # A list of unsupported features, which are the same at fixed sizes.
        lists_features = isinstance(error, UnsupportedModelError) and error.notes
        if signature is None or lists_features:
            raise
        return _per_shape(error, signature, options)
    if options.data_sizes and counts_data(mod):
        try:
            return _general_code(mod, options, kept)
        except WeftError as error:
            if not permits_another_plan(error):
                raise
            report(sizes_of_data_unknown(error))
            options = replace(options, data_sizes=False)
    if not has_dynamic_inputs(mod):
        return _fixed_code(mod, options, kept.block(is_last=not options.codegens))
    try:
        return _general_code(mod, options, kept)
    except WeftError as error:
        return _per_shape(error, manifest_of_module(mod, options), options)


def _per_shape(error: WeftError, signature: Manifest, options: CompileOptions) -> _PerShape:
    """The signature of a model that has no program for all sizes because of ``error``.

    Raises ``error`` where programs for one size each are no replacement.
    """
    # A program for each set of shapes would have a state for each.
    is_misplaced = bool(options.devices) and isinstance(error, TargetError)
    if not permits_another_plan(error) or is_misplaced or options.state \
            or options.outputs is not None:
        raise error
    report(program_per_shapes(signature, error, asked=not options.symbolic_sizes))
    return _PerShape(signature, error.what)


def _general_code(mod: IRModule, options: CompileOptions, kept: KeptCode) -> ModelCode:
    """The program for all sizes of a module with symbolic inputs.

    Raises ``WeftError`` where a size is not determined by the inputs, or an operator needs numbers.
    """
    if not options.symbolic_sizes:
        raise UnsupportedModelError("WEFT_SYMBOLIC_SIZES=0 asks for programs of fixed sizes")
    if not backend_of(options.target).takes_sizes:
        raise UnsupportedModelError(f"kernels of {options.target.kind} targets need fixed sizes")
    if options.codegens:
        raise UnsupportedModelError("external code generators take regions of fixed sizes")
    mod = run_pipeline(with_least_sizes(mod), options)
    with trace.span("lower program"):
        program = _lowered(mod, options)
    code = _program_code(program, mod, options, memory=kept.block(is_last=False))
    if code.callbacks:
        raise UnsupportedModelError("functions of Python need fixed sizes")
    return code


def _fixed_code(mod: IRModule, options: CompileOptions, memory: ConstantMemory | None = None
                ) -> ModelCode:
    budget, imported = budget_of(mod), mod
    with progress.task("optimising the graph", count_passes(options)) as task:
        mod = run_pipeline(mod, options, task=task)
    if budget is not None:
        return _code_within(budget, mod, options)
    try:
        with trace.span("lower program"):
            program = _lowered(mod, options)
    except UnsupportedModelError as error:
        if options.state:
            raise
        return _vm_code(mod, imported, options, memory, error)
    return _program_code(program, mod, options, memory=memory)


def _vm_code(mod: IRModule, imported: IRModule, options: CompileOptions,
             memory: ConstantMemory | None, reason: UnsupportedModelError) -> ModelCode:
    """The code of a lowered module that is not first-order for ``reason``."""
    if runs_on_lanes(options):
        raise UnsupportedModelError(
            "the program needs the virtual machine, which runs on one device",
            where=reason.where, got=f"devices {', '.join(map(str, options.devices))}",
            notes=[f"because: {reason.what}"], help="compile without devices")
    backend = backend_of(options.target)
    if has_own_memory(backend):
        report(program_on_host(str(backend.device), reason))
        on_host = replace(options, target=options.host_target, host=None, devices=(),
                          placement=None)
        return _fixed_code(imported, on_host, memory)
    report(on_virtual_machine(reason))
    code = build_vm_model(mod, options)
    if code.manifest.vm is not None and code.manifest.vm.has_dynamic_kernels:
        report(kernels_compiled_at_calls(code.manifest, reason,
                                         asked=not options.symbolic_sizes))
    return code


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
                  limit: Callable[[Program], Program] | None = None,
                  memory: ConstantMemory | None = None) -> ModelCode:
    """The code of ``program``, lowered from ``mod``.

    Where a kernel cannot work in place, ``mod`` is lowered again, and values are copied.
    """
    refused: frozenset[str] = frozenset()
    while True:
        with trace.span("variants"):
            made = add_variants(program, options.target, options.specialize)
        try:
            return build_model(made, options, memory)
        except InPlaceError as error:
            refused |= error.kernels
            texts = [k.text for k in made.kernels if k.digest in error.kernels]
            report(copied_in_place(texts))
            program = _lowered(mod, options, refused, limit)
