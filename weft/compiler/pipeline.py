"""THE order of the graph passes: the only place that has one.

``import`` is what the frontend gives. Each phase below turns the module of the phase before into
its own; ``lowered`` is a ``main`` that calls kernels, which ``lowering`` takes apart.
"""

from __future__ import annotations

import difflib
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

from weft.compiler.options import CompileOptions
from weft.compiler.verification import compare_effects, compare_modules
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
from weft.ir.rewrite.driver import KNOWN_RULES
from weft.strategy import layout_hooks, legalizations, multiplies_bytes
from weft.support import progress, trace
from weft.support.config import config
from weft.support.errors import OptionError
from weft.support.log import Level, debug, enabled
from weft.transform import (
    AlterOpLayout,
    CanonicalizeOps,
    ComputeInFloat32,
    DeadCodeElimination,
    DynamicToStatic,
    EliminateCommonSubexpr,
    FakeQuantizationToInteger,
    FoldConstant,
    FoldScaleAxis,
    FuseAttention,
    FuseOps,
    GenerateExternal,
    Inline,
    Legalize,
    PartitionGraph,
    QnnCanonicalize,
    RemoveUnusedFunctions,
    SimplifyExpr,
    SimplifyInference,
    ToGraphNormalForm,
)


@dataclass(frozen=True, slots=True)
class Phase:
    """A named stretch of the pipeline; ``as_text`` shows the module at its end."""

    name: str
    passes: tuple[Pass, ...]

    def __str__(self) -> str:
        return f"{self.name}: {','.join(map(str, self.passes))}"


PIPELINE: tuple[Phase, ...] = (
    Phase("import", ()),
    Phase("canonical", (
        ToGraphNormalForm(),        # sharing instead of lets, which the rules below match through
        FakeQuantizationToInteger(closing=False),  # products of quantised numbers, of bytes
        QnnCanonicalize(),          # scales and zero points are arithmetic
        SimplifyInference(),        # batch norm is arithmetic, dropout is nothing
        CanonicalizeOps(),          # one spelling for each computation
        EliminateCommonSubexpr(),   # before folding, so that a constant is folded once
        DeadCodeElimination(),
    )),
    Phase("optimized", (
        SimplifyExpr(),             # fewer nodes between a convolution and its scale
        FoldConstant(),             # scales and shifts become constants
        DynamicToStatic(),          # and shapes, which fixes sizes
        FuseAttention(),            # before the scale of its scores moves anywhere
        FoldScaleAxis(),            # and disappear into the weights
        FoldConstant(),             # which are computed here
        SimplifyExpr(),             # additions that scales stood between meet
        Legalize(),                 # convolutions by fewer products where that pays
        AlterOpLayout(),            # blocks of channels, from the first convolution to the last
        SimplifyExpr(),             # layout changes that meet cancel
        FoldConstant(),             # weights are packed here
        EliminateCommonSubexpr(),   # what layouts have made equal
        DeadCodeElimination(),
    )),
    Phase("lowered", (
        FuseOps(),                  # one primitive function per kernel
        ComputeInFloat32(),         # which rounds to 16 bits only what it stores
        RemoveUnusedFunctions(),    # what is compiled is what is called
    )),
)  # fmt: skip

PHASE_NAMES = tuple(phase.name for phase in PIPELINE)


def pipeline_text() -> str:
    """The pipeline as the command line prints it and ``weft opt -p`` reads its parts."""
    return "\n".join(map(str, PIPELINE))


def run_pipeline(
    mod: IRModule, options: CompileOptions, *, stop_at: str = "lowered",
    task: progress.Task = progress.UNWATCHED,
) -> IRModule:
    """The module at the end of the phase ``stop_at``; ``task`` advances with every pass."""
    if stop_at not in PHASE_NAMES:
        raise OptionError(f"unknown phase {stop_at!r}", expected=", ".join(PHASE_NAMES))
    timing = TimingInstrument()
    context = make_context(options, timing)
    mod = infer_type(mod)
    for phase in _phases(options):
        with trace.span(phase.name, "phase"):
            mod = _run_phase(phase, mod, context, task)
        if phase.name == stop_at:
            break
    if config.time_passes:
        sys.stderr.write(timing.table() + "\n")
    return mod


def count_passes(options: CompileOptions) -> int:
    """How often ``run_pipeline`` advances its task."""
    return sum(len(phase.passes) for phase in _phases(options))


def _phases(options: CompileOptions) -> tuple[Phase, ...]:
    """The pipeline, with the code generators of others before all that changes the program."""
    if not options.codegens:
        return PIPELINE
    passes: list[Pass] = [ToGraphNormalForm()]  # regions are cut along sharing, not along lets
    for name in options.codegens:
        passes += [PartitionGraph(compiler=name), GenerateExternal(compiler=name)]
    passes += [Inline(), RemoveUnusedFunctions()]  # what stands for a region
    imported, canonical, *rest = PIPELINE
    return imported, Phase(canonical.name, (*passes, *canonical.passes)), *rest


def _run_phase(phase: Phase, mod: IRModule, context: PassContext, task: progress.Task
               ) -> IRModule:
    for pass_ in phase.passes:
        if pass_.opt_level <= context.opt_level:
            with trace.span(pass_.name, "pass"):
                mod = run_pass(pass_, mod, context)
        task.advance(pass_.name)
    if config.verify >= 1:
        verify_module(mod, after=f"phase {phase.name}")
    if enabled(Level.PHASES):
        debug(Level.PHASES, "ir", f"after phase {phase.name}\n{readable(mod)}")
    return mod


def make_context(options: CompileOptions, *further: Instrument) -> PassContext:
    """What passes run with: target, layout hooks, and the instruments the configuration wants."""
    instruments: list[Instrument] = list(further)
    _check_names("WEFT_PRINT_BEFORE", config.print_before, "pass", PASSES)
    _check_names("WEFT_PRINT_AFTER", config.print_after, "pass", PASSES)
    _check_names("WEFT_EXPLAIN", config.explain, "rule or operator", (*KNOWN_RULES, *OPS))
    after = ("all",) if enabled(Level.PASSES) else config.print_after
    if after or config.print_before:
        instruments.append(PrintInstrument(before=config.print_before, after=after))
    if config.dump_dir is not None:
        instruments.append(DumpInstrument(config.dump_dir))
    if config.verify >= 2:
        compare = compare_modules if config.verify >= 3 else compare_effects
        instruments.append(VerifyInstrument(compare))
    facts: dict[str, Any] = {
        "alter_layout": layout_hooks(options.target),
        "legalize": legalizations(options.target),
        "multiplies_bytes": partial(multiplies_bytes, target=options.target),
        "winograd": options.winograd,
    }
    if config.explain:
        explain = ExplainInstrument(config.explain)
        facts |= {"explain": config.explain, "rewrite_stats": explain.stats}
        instruments.append(explain)
    return PassContext(options.opt_level, options.target, tuple(instruments), facts)


def _check_names(knob: str, names: Iterable[str], what: str, known: Iterable[str]) -> None:
    """An unknown name would silently print nothing."""
    there = {"all", *known}
    for name in names:
        if name not in there:
            close = difflib.get_close_matches(name, sorted(there), n=1)
            raise OptionError(f"{knob} names an unknown {what}", got=name,
                              expected=f"the name of a {what}, or all",
                              help=f"did you mean {close[0]!r}?" if close else None)
