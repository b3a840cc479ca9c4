"""``python -m benchmarks.symbolic_kernels``: kernels for all sizes against kernels for one size.

Each program of ``benchmarks.symbolic_families`` is compiled once with symbols, for the ranges of
sizes that deserve a kernel of their own, and once for each of its points. At every point the
results are compared, then both run in turn on one thread; minima count. A loop in machine code
makes the calls, so that kernels of a few nanoseconds are timed too.
"""

from __future__ import annotations

import functools
import math
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import click
import numpy as np
from llvmlite import binding as llvm
from rich.console import Console
from rich.table import Table

from benchmarks.agreement import DisagreementError
from benchmarks.symbolic_families import KERNELS, SymbolicKernel
from weft.codegen import backend_of
from weft.codegen.llvm.jit import JitLibrary
from weft.codegen.llvm.target_machine import object_code, optimized_module
from weft.compiler.options import CompileOptions
from weft.compiler.pipeline import run_pipeline
from weft.ir import IRModule, infer_type, parse
from weft.ir.dynamic import result_types
from weft.ir.expr import Function
from weft.ir.symbol import size_of_dim
from weft.ir.types import TensorType, TupleType, Type
from weft.ir.visitor import post_order
from weft.runtime.arena import AlignedBlock
from weft.runtime.sizes import evaluate
from weft.strategy import LoweredKernel, lower_function
from weft.strategy.specialize import specialize
from weft.strategy.variants import Variant, variants_that_pay
from weft.support.errors import WeftError
from weft.target import CpuTarget

SAMPLE_SECONDS = 100e-6
WORST, MEAN = 1.25, 1.05  # the bars of the slowest point and of the geometric mean


@dataclass
class Compiled:
    """The machine code of a primitive function, and its types."""

    function: Function
    kernel: LoweredKernel
    library: JitLibrary
    workspace: AlignedBlock = field(default_factory=lambda: AlignedBlock(0))

    def types(self) -> list[TensorType]:
        """The types of the buffers: parameters, then results."""
        params = [t for p in self.function.params for t in _tensors(p.checked_type)]
        return [*params, *result_types(self.function)]

    def arguments(self, buffers: Sequence[AlignedBlock], point: Mapping[str, int]) -> list[int]:
        """Addresses of the buffers, the sizes, and the address of the workspace if any."""
        scalars = [evaluate(size, point) for size in self.kernel.sizes]
        scratch = evaluate(self.kernel.func.attrs.get("workspace_bytes", 0), point)
        self.workspace = AlignedBlock(scratch)
        takes = len(self.kernel.func.params) > len(buffers) + len(scalars)
        return [*(b.address for b in buffers), *scalars,
                *([self.workspace.address] if scratch or takes else [])]


def _tensors(type_: Type | None) -> list[TensorType]:
    if isinstance(type_, TupleType):
        return [t for t in type_.fields if isinstance(t, TensorType)]
    return [type_] if isinstance(type_, TensorType) else []


def compiled(text: str, options: CompileOptions) -> list[Compiled]:
    """The primitive functions of a program, as machine code."""
    module = run_pipeline(infer_type(parse(text)), options)
    return [built(function, options) for function in _primitives(module)]


def built(function: Function, options: CompileOptions) -> Compiled:
    """A primitive function as machine code."""
    kernel = lower_function(function, options.target)
    backend = backend_of(options.target)
    code = backend.build_kernel(kernel.func, options.target)
    objects = [code, *backend.support_objects(options.target)]
    return Compiled(function, kernel, JitLibrary(objects))


def variants(general: Compiled, options: CompileOptions) -> list[tuple[Variant, Compiled]]:
    """The kernels for the sizes that pay, in the order in which a program tests them."""
    found = []
    for variant in variants_that_pay(general.function, options.target):
        made = specialize(general.function, variant)
        if made is not None and not made.sizes:
            found.append((variant, built(made.function, options)))
    return found


def _primitives(module: IRModule) -> Iterator[Function]:
    for node in post_order(module["main"]):
        if isinstance(node, Function) and node.attrs.get("primitive"):
            yield node


@functools.cache
def repeater(count: int) -> JitLibrary:
    """``repeat(function, calls, *arguments)``, which calls a function of ``count`` integers."""
    names = ", ".join(f"i64 %a{i}" for i in range(count))
    text = f"""
define void @repeat(ptr %f, i64 %calls, {names}) {{
entry:
  br label %again
again:
  %i = phi i64 [ 0, %entry ], [ %next, %again ]
  call void %f({names})
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %calls
  br i1 %more, label %again, label %done
done:
  ret void
}}
"""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    target = CpuTarget.host()
    code = object_code(optimized_module(text, target), target, reduce_strength=False)
    return JitLibrary([code])


@dataclass
class Trial:
    """One kernel with its arguments: ``calls`` of it take about ``SAMPLE_SECONDS``."""

    address: int
    arguments: list[int]
    calls: int = 1
    best: float = math.inf

    def sample(self) -> None:
        """Time ``calls`` calls; the shortest seconds per call of all samples are kept."""
        repeat = repeater(len(self.arguments)).kernel("repeat", len(self.arguments) + 2)
        start = time.perf_counter()
        repeat(self.address, self.calls, *self.arguments)
        self.best = min(self.best, (time.perf_counter() - start) / self.calls)


@dataclass
class Result:
    """Seconds of the general kernel and of the one compiled for a point."""

    kernel: SymbolicKernel
    point: Mapping[str, int]
    general: float
    fixed: float

    @property
    def ratio(self) -> float:
        return self.general / self.fixed


def buffers_for(one: Compiled, point: Mapping[str, int]) -> list[AlignedBlock]:
    """Arguments of the kernel at a point: random floats, zeros for integers."""
    rng, blocks = np.random.default_rng(0), []
    for type_ in one.types():
        shape = tuple(evaluate(size_of_dim(d), point) for d in type_.shape)
        dtype = type_.dtype.numpy
        block = AlignedBlock(math.prod(shape) * dtype.itemsize)
        values = rng.uniform(-1, 1, shape) if type_.dtype.is_float else np.zeros(shape)
        block.array[:] = np.ascontiguousarray(values, dtype).reshape(-1).view(np.uint8)
        blocks.append(block)
    return blocks


def agree(one: Compiled, general: Sequence[AlignedBlock], fixed: Sequence[AlignedBlock]) -> bool:
    """Whether the results of two runs are equal but for rounding."""
    for type_, a, b in zip(one.types(), general, fixed, strict=True):
        left, right = a.array.view(type_.dtype.numpy), b.array.view(type_.dtype.numpy)
        if not np.allclose(left, right, rtol=1e-3, atol=1e-4, equal_nan=True):
            return False
    return True


def measure(kernel: SymbolicKernel, general: Compiled, fixed: Compiled, point: Mapping[str, int],
            rounds: int) -> Result:
    """Compare results at a point, then time both kernels in turn on the same buffers."""
    blocks, others = buffers_for(general, point), buffers_for(general, point)
    trials = [Trial(one.library.address(one.kernel.func.name), one.arguments(own, point))
              for one, own in ((general, blocks), (fixed, others))]
    for trial in trials:
        trial.sample()
    if not agree(general, blocks, others):
        raise DisagreementError(f"results differ at {dict(point)}")
    trials[1].arguments = fixed.arguments(blocks, point)
    for trial in trials:
        trial.sample()
        trial.calls = max(1, min(100_000, int(SAMPLE_SECONDS / max(trial.best, 1e-9))))
        trial.best = math.inf
    for _ in range(rounds):
        for trial in trials:
            trial.sample()
    return Result(kernel, point, trials[0].best, trials[1].best)


def results_of(kernel: SymbolicKernel, rounds: int, options: CompileOptions) -> list[Result]:
    """One result per point at which the fixed program has the same kernels as the general one."""
    [general] = compiled(kernel.symbolic(), options)
    special = variants(general, options)
    found = []
    for point in kernel.points:
        fixed = compiled(kernel.fixed(point), options)
        if len(fixed) == 1:  # a copy of one element, for instance, needs no kernel
            chosen = next((own for variant, own in special if all(
                evaluate(size_of_dim(one.size), point) in one.sizes for one in variant)), general)
            found.append(measure(kernel, chosen, fixed[0], point, rounds))
    return found


def mean_ratio(results: Sequence[Result]) -> float:
    """The geometric mean of the ratios."""
    return math.exp(statistics.mean(math.log(r.ratio) for r in results))


def table_of(results: Mapping[str, Sequence[Result]], failed: Mapping[str, str]) -> Table:
    """A row per kernel: its time over that of the fixed kernel at every point."""
    table = Table(title="kernel for all sizes: time / time of the kernel for one size, one thread")
    for name in ("kernel", "time / fixed at each point", "mean", "worst"):
        table.add_column(name, justify="left" if name[0] in "kt" else "right")
    for name, found in results.items():
        shown = ", ".join(f"{_point(r.point)}: {_colored(r.ratio)}" for r in found)
        table.add_row(name, shown, f"{mean_ratio(found):.2f}", f"{max(r.ratio for r in found):.2f}")
    for name, reason in failed.items():
        table.add_row(name, f"[red]{reason}[/red]", "-", "-")
    every = [r for found in results.values() for r in found]
    if every:
        worst = sum(r.ratio > WORST for r in every)
        table.caption = (f"geometric mean {mean_ratio(every):.3f} (bar {MEAN}); above {WORST}: "
                         f"{worst} of {len(every)} points; failed kernels: {len(failed)}")
    return table


def _point(point: Mapping[str, int]) -> str:
    return "x".join(str(size) for size in point.values())


def _colored(ratio: float) -> str:
    return f"[red]{ratio:.2f}[/red]" if ratio > WORST else f"{ratio:.2f}"


@click.command()
@click.option("--family", default=None, help="Only the kernels of this family.")
@click.option("--only", default="", help="Only the kernels whose name contains this text.")
@click.option("--rounds", default=40, help="Samples of each kernel, in turn.")
@click.option("--details", is_flag=True, help="Print the microseconds of every point.")
def main(family: str | None, only: str, rounds: int, details: bool) -> None:
    """Time of general kernels over that of kernels for fixed sizes, and geometric means."""
    options, console = CompileOptions.make(), Console(width=150)
    results: dict[str, Sequence[Result]] = {}
    failed: dict[str, str] = {}
    for kernel in KERNELS:
        if (family and kernel.family != family) or only not in kernel.name:
            continue
        try:
            results[kernel.name] = results_of(kernel, rounds, options)
        except (WeftError, DisagreementError) as error:
            failed[kernel.name] = str(error).splitlines()[0][:90]
        if details and kernel.name in results:
            for r in results[kernel.name]:
                console.print(f"{kernel.name} {_point(r.point)}: {1e6 * r.general:.3f} us, fixed "
                              f"{1e6 * r.fixed:.3f} us, {_colored(r.ratio)}")
    console.print(table_of(results, failed))


if __name__ == "__main__":
    main()
