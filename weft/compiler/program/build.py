"""From an imported module to code, in the form that is chosen for it.

Two things show only while a program is built: that a kernel needs numbers for its sizes, and that
one cannot work in place or that the arena exceeds its budget. ``build_program`` answers the first
by another form, ``_built`` the second by lowering the module again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from weft.compiler import fallbacks
from weft.compiler.memory_budget import budget_of, within
from weft.compiler.options import CompileOptions
from weft.compiler.pipeline import count_passes, run_pipeline
from weft.compiler.program.code import ModelCode, PerShape
from weft.compiler.program.constants import ConstantMemory, Memory, OwnBlock
from weft.compiler.program.forms import (
    Form,
    FormKind,
    choose_form,
    has_dynamic_inputs,
    manifest_of_module,
    manifest_of_source,
)
from weft.compiler.program.lowering import lower_or_refuse, lower_program
from weft.compiler.program.model_code import NotInPlace, build_model
from weft.compiler.program.packing import SourceMemory
from weft.compiler.program.program import Program
from weft.frontend.source import Source
from weft.ir import Constant, post_order
from weft.ir.deferred import memory_of
from weft.ir.module import IRModule
from weft.ir.passes import Instrument, Pass
from weft.runtime.manifest import Manifest
from weft.runtime.sizes import evaluate
from weft.support import progress, trace
from weft.support.config import config
from weft.support.dataclass import dataclass
from weft.support.errors import (
    InternalError,
    TargetError,
    TypeInferenceError,
    UnsupportedModelError,
    WeftError,
)
from weft.support.fallback import report
from weft.support.stage_times import stage
from weft.transform import counts_data
from weft.transform.analysis.least_sizes import with_least_sizes
from weft.transform.passes.fold_constant import FoldConstant
from weft.transform.passes.fold_scale_axis import FoldScaleAxis


def code_of_source(source: Source, options: CompileOptions, memory: Memory
                   ) -> ModelCode | PerShape:
    """The code of a model. A module that cannot be imported for symbolic sizes has one per shape.

    Raises what the import and ``build_program`` raise.
    """
    try:
        with progress.task("importing the model"), trace.span("import"), \
                stage("import of the model"):
            mod = source.import_module(options)
    except (UnsupportedModelError, TypeInferenceError) as error:
        signature = manifest_of_source(source, options)
        # A list of unsupported features, which are the same at fixed sizes.
        lists_features = isinstance(error, UnsupportedModelError) and error.notes
        if signature is None or lists_features:
            raise
        return _per_shape(error, signature, options)
    return build_program(mod, choose_form(mod, options), options, memory)


def build_program(mod: IRModule, form: Form, options: CompileOptions, memory: Memory
                  ) -> ModelCode | PerShape:
    """The code of an imported module in ``form``, or in the one that replaces it.

    Raises what building raises where no other form is a replacement. A module that has no program
    gives its signature. Every change of plan is reported.
    """
    while True:
        try:
            if form.kind is FormKind.FIXED:
                return _fixed(mod, options, memory)
            if form.kind is FormKind.SYMBOLIC:
                return _symbolic(mod, options, memory)
        except WeftError as cause:  # a pass, a schedule or a kernel needs numbers
            form, options = _replacement(mod, form, options, cause)
        if form.kind is FormKind.PER_SHAPE and form.cause is not None:
            return _per_shape(form.cause, manifest_of_module(mod, options), options)


def build_part(mod: IRModule, options: CompileOptions, memory: ConstantMemory) -> ModelCode | None:
    """The code of a part of a model, whose constants go to ``memory``; ``None``: it needs its own.

    Parts share the constants of the model in the memory of the host, if their sizes are fixed.
    """
    has_own = options.backend.launcher.copies_between_memories or options.devices
    if has_own or has_dynamic_inputs(mod) or options.state:
        return None
    return _fixed(mod, options, lambda _: memory)


def _replacement(mod: IRModule, form: Form, options: CompileOptions, cause: WeftError
                 ) -> tuple[Form, CompileOptions]:
    """The form instead of one that ``cause`` prevents, which is raised if there is none."""
    if form.kind is not FormKind.SYMBOLIC or not fallbacks.permits_another_plan(cause):
        raise cause
    if not options.data_sizes or not counts_data(mod):
        return Form.instead(FormKind.PER_SHAPE, cause), options
    report(fallbacks.sizes_of_data_unknown(cause))
    options = replace(options, data_sizes=False)
    return choose_form(mod, options), options


def _per_shape(cause: WeftError, signature: Manifest, options: CompileOptions) -> PerShape:
    """The signature of a model that ``cause`` keeps from one program for all sizes.

    Raises ``cause`` where programs for one size each are no replacement.
    """
    # A program for each set of shapes would have a state for each.
    is_misplaced = bool(options.devices) and isinstance(cause, TargetError)
    if not fallbacks.permits_another_plan(cause) or is_misplaced or options.state \
            or options.outputs is not None:
        raise cause
    report(fallbacks.program_per_shapes(signature, cause, asked=not options.symbolic_sizes))
    return PerShape(signature, cause.what)


def _symbolic(mod: IRModule, options: CompileOptions, memory: Memory) -> ModelCode:
    """The program for all sizes; ``WeftError`` where an operator needs numbers."""
    lowered = run_pipeline(with_least_sizes(mod), options)
    with trace.span("lower program"), stage("program and memory"):
        program = lower_program(lowered, dict(options.state))
    code = _built(program, lowered, options, memory(False))
    if code.callbacks:
        raise UnsupportedModelError("functions of Python need fixed sizes")
    return code


def _fixed(mod: IRModule, options: CompileOptions, memory: Memory) -> ModelCode:
    """The program of fixed sizes, or that of the virtual machine if it is not first-order."""
    budget = budget_of(mod)
    constants = memory(not options.codegens) if budget is None else None
    with progress.task("optimising the graph", count_passes(options)) as task:
        lowered = run_pipeline(mod, options, task=task,
                               instruments=_forgetting(constants, options))
    with trace.span("lower program"), stage("program and memory"):
        program = lower_or_refuse(lowered, dict(options.state), limit=_limit(budget, options))
    if isinstance(program, Program):
        return _built(program, lowered, options, constants, budget)
    if options.state or budget is not None:
        raise program
    return _on_virtual_machine(mod, lowered, program, options, memory)


@dataclass(frozen=True, slots=True)
class _Forget:
    """Gives back the memory of weights that folding replaces, so that both are never there."""

    source: SourceMemory

    def before_pass(self, pass_: Pass, mod: IRModule) -> None:
        """See ``Instrument``."""

    def after_pass(self, pass_: Pass, before: IRModule, after: IRModule,
                   seconds: float) -> None:  # noqa: ARG002
        """See ``Instrument``."""
        if after is not before and isinstance(pass_, (FoldConstant, FoldScaleAxis)):
            self.source.keep_only([memory_of(node.content) for function in after.functions.values()
                                   for node in post_order(function)
                                   if isinstance(node, Constant)])


def _forgetting(memory: ConstantMemory | None, options: CompileOptions) -> tuple[Instrument, ...]:
    """``_Forget``, unless the imported module may be compiled again, or compared."""
    compiles_again = options.backend.launcher.copies_between_memories
    if memory is None or memory.source is None or compiles_again or config.verify >= 2:
        return ()
    return (_Forget(memory.source),)


def _on_virtual_machine(mod: IRModule, lowered: IRModule, cause: UnsupportedModelError,
                        options: CompileOptions, memory: Memory) -> ModelCode:
    """The code of a module that ``cause`` keeps from being first-order."""
    backend = options.backend
    if backend.launcher.runs_devices_at_once:
        raise UnsupportedModelError(
            "the program needs the virtual machine, which runs on one device",
            where=cause.where, got=f"devices {', '.join(map(str, options.devices))}",
            notes=[f"because: {cause.what}"], help="compile without devices")
    if backend.launcher.copies_between_memories:
        report(fallbacks.program_on_host(str(backend.device), cause))
        on_host = replace(options, target=options.host_target, host=None, devices=(),
                          placement=None)
        return _fixed(mod, on_host, memory)
    from weft.compiler.vm.build import build_vm_model

    report(fallbacks.on_virtual_machine(cause))
    code = build_vm_model(lowered, options)
    if code.manifest.vm is not None and code.manifest.vm.has_dynamic_kernels:
        report(fallbacks.kernels_compiled_at_calls(code.manifest, cause,
                                                   asked=not options.symbolic_sizes))
    return code


def _with_variants(program: Program, options: CompileOptions) -> Program:
    from weft.compiler.program.variants import add_variants

    with trace.span("variants"):
        return add_variants(program, options.target, options.specialize, options.frequent)


def _built(program: Program, mod: IRModule, options: CompileOptions,
           memory: ConstantMemory | None, budget: int | None = None) -> ModelCode:
    """The code of ``program``, lowered from ``mod``, whose arena has at most ``budget`` bytes.

    Where a kernel cannot work in place, or the memory plan exceeds the budget, ``mod`` is lowered
    again: values are copied, or more of them computed again.
    """
    refused: frozenset[str] = frozenset()
    limit = budget
    while True:
        if program.is_symbolic:
            program = _with_variants(program, options)
        memory = memory or OwnBlock()
        code = _first_code(program, options, memory) if budget is None else \
            build_model(program, options, memory)
        if isinstance(code, NotInPlace):
            refused |= code.kernels
            report(fallbacks.copied_in_place(
                k.text for k in program.kernels if k.digest in code.kernels))
        else:
            excess = 0 if budget is None else evaluate(code.manifest.arena_bytes, {}) - budget
            if budget is None or limit is None or excess <= 0:
                return code
            # Results in place are placed in memory in another way than the limit assumes.
            limit -= max(excess, budget // 64, 1)
        with trace.span("lower program"), stage("program and memory"):
            program = lower_program(mod, dict(options.state), refused, _limit(limit, options))


def _first_code(program: Program, options: CompileOptions, memory: ConstantMemory
                ) -> ModelCode | NotInPlace:
    """The code of ``program``, which in the tier "fast" can be improved later."""
    is_fast = options.tier == "fast" and options.backend.launched_by == "steps"
    code = build_model(program, options, memory, has_main=not is_fast)
    if not is_fast or isinstance(code, NotInPlace) or code.callbacks:
        return code
    return replace(code, improve=partial(_improved, program, options, memory))


def _improved(program: Program, options: CompileOptions, memory: ConstantMemory) -> ModelCode:
    made = build_model(program, options, memory)
    if isinstance(made, NotInPlace):
        raise InternalError("kernels that worked in place do so no more")
    return made


def _limit(budget: int | None, options: CompileOptions) -> Callable[[Program], Program] | None:
    return None if budget is None else partial(within, budget=budget, options=options)
