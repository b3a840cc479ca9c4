"""``python -m benchmarks.kernel_compile``: compile time of each primitive function, in ms.

Every distinct primitive function of the kernels of ``benchmarks.kernels`` is scheduled, lowered
and compiled in this process, without any cache, and each phase is timed.
"""

from __future__ import annotations

import fnmatch
import gc
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import click
from rich.console import Console
from rich.table import Table

from benchmarks.attention_kernels import ATTENTIONS
from benchmarks.contraction_kernels import CONTRACTIONS
from benchmarks.kernel_models import KERNELS
from weft.codegen.llvm.build import emit_llvm
from weft.codegen.llvm.target_machine import object_code, optimized_module, wants_strength_reduction
from weft.compiler.options import CompileOptions
from weft.compiler.pipeline import run_pipeline
from weft.compiler.program.lowering import lower_program
from weft.compiler.program.program import KernelSource
from weft.frontend.source import open_source
from weft.strategy import schedule_function
from weft.target import Target
from weft.tir.func import PrimFunc
from weft.tir.transform.pipeline import TIR_PIPELINE, lower_prim_func

TIR = tuple(apply.__name__ for apply in TIR_PIPELINE)
OUTER = ("schedule", "te lower", "write IR", "optimise", "emit")
MEDIAN_BAR, MAXIMUM_BAR = 50.0, 200.0  # ms


@dataclass
class Clock:
    """Milliseconds by phase; an instrument of the tir pipeline."""

    phases: dict[str, float] = field(default_factory=dict)
    last: float = field(default_factory=time.perf_counter)

    def lap(self, phase: str) -> None:
        now = time.perf_counter()
        self.phases[phase] = 1e3 * (now - self.last)
        self.last = time.perf_counter()

    def after_pass(self, name: str, before: PrimFunc, after: PrimFunc) -> None:  # noqa: ARG002
        self.lap(name)

    @property
    def total(self) -> float:
        return sum(self.phases.values())


@dataclass(frozen=True)
class Row:
    """One primitive function: the kernel that needs it, what it computes, and its fastest build."""

    kernel: str
    text: str
    implementation: str
    clock: Clock


def build(source: KernelSource, target: Target) -> tuple[str, Clock]:
    """The implementation chosen, and the time of each phase of one build."""
    gc.collect()
    clock = Clock()
    scheduled = schedule_function(source.function, target)
    clock.lap("schedule")
    nest = scheduled.loop_nest(source.name)
    clock.lap("te lower")
    func = lower_prim_func(nest, instruments=(clock,))
    text = emit_llvm(func, target)
    clock.lap("write IR")
    module = optimized_module(text, target)
    clock.lap("optimise")
    object_code(module, target, reduce_strength=wants_strength_reduction(text))
    clock.lap("emit")
    return scheduled.implementation, clock


def functions(only: str, options: CompileOptions) -> Iterator[tuple[str, KernelSource]]:
    """The distinct primitive functions of the kernels that match, each with its first kernel."""
    seen: set[str] = set()
    for kernel in (*KERNELS, *CONTRACTIONS, *ATTENTIONS):
        if not fnmatch.fnmatch(kernel.name, only):
            continue
        imported = open_source(kernel.build(), None, options).import_module(options)
        module = run_pipeline(imported, options, stop_at="lowered")
        for source in lower_program(module).kernels:
            if source.digest not in seen:
                seen.add(source.digest)
                yield kernel.name, source


def table_of(rows: Sequence[Row]) -> Table:
    table = Table(title="ms to the code of a primitive function")
    table.add_column("kernel", max_width=30)
    table.add_column("primitive function", max_width=44, no_wrap=True)
    for name in ("schedule", "te lower", "tir", "slowest pass", *OUTER[2:], "total"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        phases = row.clock.phases
        slowest = max(TIR, key=phases.__getitem__)
        numbers = [phases["schedule"], phases["te lower"], sum(phases[p] for p in TIR)]
        table.add_row(
            row.kernel, f"{row.implementation}: {row.text}", *(f"{n:.1f}" for n in numbers),
            f"{slowest} {phases[slowest]:.1f}", *(f"{phases[p]:.1f}" for p in OUTER[2:]),
            f"{row.clock.total:.1f}",
        )
    return table


def phase_table(rows: Sequence[Row]) -> Table:
    """Mean, median and maximum time of each phase, and its share of the total."""
    table = Table(title=f"phases over {len(rows)} functions, ms")
    for name in ("phase", "mean", "median", "max", "%"):
        table.add_column(name, justify="left" if name == "phase" else "right")
    total = sum(row.clock.total for row in rows)
    for phase in (*OUTER[:2], *TIR, *OUTER[2:]):
        times = [row.clock.phases[phase] for row in rows]
        table.add_row(phase, f"{statistics.mean(times):.2f}", f"{statistics.median(times):.2f}",
                      f"{max(times):.1f}", f"{100 * sum(times) / total:.0f}")
    return table


@click.command()
@click.option("--only", default="*", help="Pattern of the kernels' names.")
@click.option("--repeats", default=3, help="Builds of each function; the fastest counts.")
def main(only: str, repeats: int) -> None:
    """Milliseconds from each primitive function of the benchmarked kernels to object code."""
    options = CompileOptions.make()
    rows = []
    for kernel, source in functions(only, options):
        builds = [build(source, options.target) for _ in range(repeats)]
        implementation, clock = min(builds, key=lambda built: built[1].total)
        rows.append(Row(kernel, source.text, implementation, clock))
    if not rows:
        raise click.ClickException(f"no kernel is named {only!r}")
    rows.sort(key=lambda row: row.clock.total)
    console = Console(width=170)
    console.print(table_of(rows))
    console.print(phase_table(rows))
    totals = [row.clock.total for row in rows]
    slow = sum(total > MAXIMUM_BAR for total in totals)
    console.print(f"{len(rows)} functions: median {statistics.median(totals):.1f} ms "
                  f"(bar {MEDIAN_BAR:.0f}), maximum {max(totals):.1f} ms (bar {MAXIMUM_BAR:.0f}; "
                  f"above it: {slow})")


if __name__ == "__main__":
    main()
