"""The one order of the graph passes, in phases.

The phase ``import`` ends with the module that the front end gives. After ``lowered``, ``main``
calls primitive functions, one per kernel, which ``compiler/program/lowering.py`` makes a program
of. Users' passes are inserted at the positions that they name (``phases_of``).
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import Any

from weft.compiler.options import CompileOptions
from weft.compiler.phases import Phase, with_passes
from weft.compiler.precision import with_precision
from weft.ir import (
    OPS,
    PASSES,
    DumpInstrument,
    ExplainInstrument,
    IRModule,
    Pass,
    PassContext,
    PrintInstrument,
    TimingInstrument,
    VerifyInstrument,
    infer_type,
    run_pass,
    verify_module,
)
from weft.ir.instruments import readable
from weft.ir.passes import Instrument
from weft.ir.rewrite.rules import KNOWN_RULES, RuleSet
from weft.strategy.cached_hooks import cached_layout_hooks, cached_legalizations
from weft.support import progress, trace
from weft.support.config import config
from weft.support.errors import OptionError
from weft.support.log import Level, debug, enabled
from weft.support.stage_times import stage
from weft.support.suggestion import did_you_mean
from weft.transform import (
    AlterOpLayout,
    BindDataSizes,
    CanonicalizeOps,
    CombineMatmulSums,
    ComputeInFloat32,
    DeadCodeElimination,
    DynamicToStatic,
    EliminateCommonSubexpr,
    FakeQuantizationToInteger,
    FoldConstant,
    FoldScaleAxis,
    FuseAttention,
    FuseOps,
    Legalize,
    PackBlockWeights,
    PlanDevices,
    QnnCanonicalize,
    RemoveUnusedFunctions,
    SimplifyExpr,
    SimplifyInference,
    ToGraphNormalForm,
)
from weft.transform.analysis.effects import touches_references
from weft.transform.rules import SIMPLIFICATIONS

PIPELINE: tuple[Phase, ...] = (
    Phase("import", ()),
    Phase("canonical", (
        PlanDevices(),              # borders of regions, ahead of passes that change the program
        ToGraphNormalForm(),        # shared nodes instead of lets: rules match through them
        BindDataSizes(),            # symbols for sizes that data determines
        FakeQuantizationToInteger(closing=False),  # 8-bit GEMMs and convolutions
        QnnCanonicalize(),          # scales and zero points become arithmetic
        SimplifyInference(),        # batch norm becomes arithmetic, dropout disappears
        CanonicalizeOps(),          # one spelling for each computation
        EliminateCommonSubexpr(),   # before folding, so that a constant is folded once
        DeadCodeElimination(),
    )),
    Phase("optimized", (
        PackBlockWeights(),         # before folding would make floats of quantised weights
        SimplifyExpr(),             # removes nodes between a convolution and its scale
        FoldConstant(),             # computes scales, shifts and shapes
        DynamicToStatic(),          # constant shape operands become attributes
        CombineMatmulSums(),        # gradients of weights that several steps share
        FuseAttention(),            # before folding moves the scale of the scores
        FoldScaleAxis(),            # moves scales into the weights
        FoldConstant(),             # computes the scaled weights
        SimplifyExpr(),             # joins additions that scales stood between
        Legalize(),                 # Winograd convolution where it is faster
        AlterOpLayout(),            # blocked channels from the first convolution to the last
        SimplifyExpr(),             # cancels adjacent layout changes
        FoldConstant(),             # packs the weights
        EliminateCommonSubexpr(),   # merges layout changes of one tensor
        DeadCodeElimination(),
    )),
    Phase("lowered", (
        FuseOps(),                  # one primitive function per kernel
        ComputeInFloat32(),         # a kernel rounds to 16 bits only when it stores
        RemoveUnusedFunctions(),    # so that only called functions are compiled
    )),
)  # fmt: skip

PHASE_NAMES = tuple(phase.name for phase in PIPELINE)


def pipeline_text() -> str:
    """A line per phase with its passes, in the form that ``weft opt -p`` reads."""
    return "\n".join(map(str, PIPELINE))


def run_pipeline(
    mod: IRModule, options: CompileOptions, *, stop_at: str = "lowered",
    task: progress.Task = progress.UNWATCHED, instruments: Sequence[Instrument] = (),
) -> IRModule:
    """The module at the end of the phase ``stop_at``; ``task`` advances with every pass.

    ``instruments`` are called around each pass, beside those that the configuration asks for.
    Raises ``OptionError`` for an unknown phase, and what ``phases_of`` and the passes raise.
    """
    if stop_at not in PHASE_NAMES:
        raise OptionError(f"unknown phase {stop_at!r}", expected=", ".join(PHASE_NAMES))
    timing = TimingInstrument()
    context = make_context(options, timing, *instruments)
    with stage("type inference of the import"):
        mod = infer_type(mod)
    for phase in phases_of(options):
        with trace.span(phase.name, "phase"):
            mod = _run_phase(phase, mod, context, task)
        if phase.name == stop_at:
            break
    if config.time_passes:
        sys.stderr.write(timing.table() + "\n")
    return mod


def count_passes(options: CompileOptions) -> int:
    """How many passes ``run_pipeline`` advances its task by."""
    return sum(len(phase.passes) for phase in phases_of(options))


def phases_of(options: CompileOptions) -> tuple[Phase, ...]:
    """The pipeline of a compilation: ``PIPELINE`` with external code generators and users' passes.

    Raises ``OptionError`` for a user's pass whose position names an unknown phase or pass.
    """
    phases = _with_codegens(options.codegens) if options.codegens else PIPELINE
    if not options.data_sizes:
        phases = tuple(Phase(phase.name, tuple(
            pass_ for pass_ in phase.passes if not isinstance(pass_, BindDataSizes)))
            for phase in phases)
    if options.device_names:
        planned = PlanDevices(devices=options.device_names, soft=options.soft_placement)
        phases = tuple(Phase(phase.name, tuple(
            planned if isinstance(pass_, PlanDevices) else pass_ for pass_ in phase.passes))
            for phase in phases)
    return with_passes(with_precision(phases, options.precision), options.extensions.passes)


def _with_codegens(codegens: Sequence[str]) -> tuple[Phase, ...]:
    """``PIPELINE`` with external code generators ahead of every pass that changes the program."""
    from weft.transform import GenerateExternal, Inline, PartitionGraph

    passes: list[Pass] = [ToGraphNormalForm()]  # regions are cut along sharing, not along lets
    for name in codegens:
        passes += [PartitionGraph(compiler=name), GenerateExternal(compiler=name)]
    passes += [Inline(), RemoveUnusedFunctions()]  # replaces each region by its generated form
    imported, canonical, *rest = PIPELINE
    return imported, Phase(canonical.name, (*passes, *canonical.passes)), *rest


def _run_phase(phase: Phase, mod: IRModule, context: PassContext, task: progress.Task
               ) -> IRModule:
    for pass_ in phase.passes:
        if pass_.opt_level <= context.opt_level:
            with trace.span(pass_.name, "pass"), stage(f"pass {pass_.name}"):
                mod = run_pass(pass_, mod, context)
        task.advance(pass_.name)
    if config.verify >= 1:
        with stage("verification between phases"):
            verify_module(mod, after=f"phase {phase.name}")
    if enabled(Level.PHASES):
        debug(Level.PHASES, "ir", f"after phase {phase.name}\n{readable(mod)}")
    return mod


def make_context(options: CompileOptions, *further: Instrument) -> PassContext:
    """The context of the passes: target, hooks, and the instruments that ``weft.config`` asks for.

    Raises ``OptionError`` where a setting names an unknown pass, rule or operator.
    """
    instruments: list[Instrument] = list(further)
    passes = {*PASSES, *(i.item.name for i in options.extensions.passes)}
    _check_names("WEFT_PRINT_BEFORE", config.print_before, "pass", passes)
    _check_names("WEFT_PRINT_AFTER", config.print_after, "pass", passes)
    if config.explain:
        known = {rule.name for rule in SIMPLIFICATIONS}.union(KNOWN_RULES)
        _check_names("WEFT_EXPLAIN", config.explain, "rule or operator",
                     ("placement", *known, *OPS))
    after = ("all",) if enabled(Level.PASSES) else config.print_after
    if after or config.print_before:
        instruments.append(PrintInstrument(before=config.print_before, after=after))
    if config.dump_dir is not None:
        instruments.append(DumpInstrument(config.dump_dir))
    if config.verify >= 2:
        compare = compare_modules if config.verify >= 3 else compare_effects
        instruments.append(VerifyInstrument(compare))
    facts: dict[str, Any] = {
        "alter_layout": cached_layout_hooks(options.target),
        "legalize": cached_legalizations(options.target),
        "winograd": options.winograd,
    }
    if options.extensions.rules:
        facts["simplify_rules"] = RuleSet(*options.extensions.rules, SIMPLIFICATIONS)
    if config.explain:
        from weft.compiler.decisions import ExplainDecisions

        explain = ExplainInstrument(config.explain)
        facts |= {"explain": config.explain, "rewrite_stats": explain.stats}
        instruments += [explain, ExplainDecisions(options.target)]
    return PassContext(options.opt_level, options.target, tuple(instruments), facts)


def _check_names(knob: str, names: Iterable[str], what: str, known: Iterable[str]) -> None:
    """An unknown name would silently print nothing."""
    allowed = {"all", *known}
    for name in names:
        if name not in allowed:
            raise OptionError(f"{knob} names an unknown {what}", got=name,
                              expected=f"the name of a {what}, or all",
                              help=did_you_mean(name, allowed))


def compare_modules(before: IRModule, after: IRModule) -> None:
    """Level 3: evaluate both on the same random inputs; ``InternalError`` if results differ.

    Programs whose inputs are tuples or have dynamic shapes are not compared.
    """
    from weft.transform import check_same_values

    check_same_values(before, after, seed=config.seed)


def compare_effects(before: IRModule, after: IRModule) -> None:
    """Level 2: ``compare_modules`` of programs with references, whose effects have no types."""
    if touches_references(before) or touches_references(after):
        compare_modules(before, after)
