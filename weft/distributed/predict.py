"""The time of a step on more devices than there are, from the cost model and the links of a mesh.

The kernels of each device's program are lowered, and the machine model of the target predicts them;
one device is one core, or one GPU. Collectives take the times of ``transform.sharding.costs`` over
the links, one at a time, behind the calls that the order of steps gives them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import field
from typing import Any

from weft.compiler.build.kernel import lower_kernel
from weft.compiler.options import CompileOptions
from weft.compiler.pipeline import run_pipeline
from weft.compiler.program.lowering import try_lower_program
from weft.compiler.report.plots import Bar, bars_svg
from weft.distributed.parts import program_of
from weft.ir import IRModule
from weft.ir.sharding import Mesh
from weft.support.dataclass import dataclass
from weft.support.errors import OptionError
from weft.transform.sharding.blocks import Block, Branch, Compute, Start, Step, Wait
from weft.transform.sharding.costs import call_bytes, call_cost
from weft.transform.sharding.partition import Partitioned
from weft.transform.sharding.steps import block_of

COUNTS = (8, 16, 32, 64, 128, 256, 512, 1024)


@dataclass(frozen=True, slots=True)
class PredictedStep:
    """When a device begins a step, and when it is done; a collective ends by itself."""

    step: str
    begin: float
    end: float
    nbytes: float = 0.0


@dataclass(frozen=True, slots=True)
class Predicted:
    """A step on so many devices; ``why`` says what hinders a plan for them, which has no times.

    ``ideal`` is the time of one device divided by their number. ``computing`` and ``exchanging``
    are the parts of ``seconds``; an exchange that calls hide counts as computing. ``steps`` are
    those of one device; ``print`` shows them.
    """

    devices: int
    ideal: float
    seconds: float = math.nan
    computing: float = math.nan
    nbytes: float = math.nan
    why: str = ""
    steps: tuple[PredictedStep, ...] = field(default=(), repr=False)

    @property
    def exchanging(self) -> float:
        return self.seconds - self.computing

    def __str__(self) -> str:
        from weft.distributed.visualize import printed

        return printed(self)

    def __rich__(self) -> Any:
        from weft.distributed.visualize import steps_table

        return steps_table(self)


@dataclass(frozen=True, slots=True)
class Prediction:
    """A row for each number of devices: ``print`` shows a table, ``svg`` draws it."""

    axis: str
    target: str
    rows: tuple[Predicted, ...]

    def svg(self) -> str:
        """Bars of the times, the ideal ones marked, on a logarithmic scale."""
        known = [r for r in self.rows if not r.why]
        least = min((r.ideal for r in known), default=1.0) / 2
        return bars_svg(
            f"predicted step over {self.axis}",
            [Bar(f"{r.devices} devices", r.seconds, f"{r.seconds * 1e6:,.1f} us", r.ideal)
             for r in known], note=f"a device is {self.target}; the mark is the ideal", least=least)

    def __str__(self) -> str:
        from weft.distributed.visualize import printed

        return printed(self)

    def __rich__(self) -> Any:
        from weft.distributed.visualize import prediction_table

        return prediction_table(self)


def predict(cut: Callable[[Mesh], Partitioned], mesh: Mesh, axis: str, counts: Sequence[int],
            options: CompileOptions) -> Prediction:
    """Predict the program that ``cut`` makes for the mesh with ``axis`` at other sizes.

    Raises ``OptionError`` for a mesh without links.
    """
    missing = [name for name in mesh.axes if name not in mesh.links]
    if missing:
        raise OptionError(f"a prediction needs the links along {', '.join(missing)}",
                          help='Mesh(axes, {"data": Link(bandwidth, latency)})')
    mesh.size_of(axis)
    seconds = _KernelSeconds(options)
    whole = cut(Mesh(dict.fromkeys(mesh.axes, 1), mesh.links))
    alone = seconds.of(program_of(whole, 0))
    rows = tuple(_row(cut, mesh, axis, count, seconds, alone / count) for count in counts)
    return Prediction(axis, _described(options), rows)


def _row(cut: Callable[[Mesh], Partitioned], mesh: Mesh, axis: str, count: int,
         seconds: _KernelSeconds, ideal: float) -> Predicted:
    others = mesh.size // mesh.axes[axis]
    if count % others:
        return Predicted(count, ideal, why=f"the other axes have {others} devices")
    try:
        part = cut(Mesh({**mesh.axes, axis: count // others}, mesh.links))
    except OptionError as error:
        return Predicted(count, ideal, why=error.what)
    found = _Timeline(part.mesh, seconds).run(block_of(program_of(part, 0)))
    return Predicted(count, ideal, found.now, found.computing, part.bytes_received,
                     steps=tuple(found.steps))


class _Timeline:
    """Runs the steps of a block; one collective is under way at a time.

    Of two branches the longer one counts, and a loop runs once.
    """

    def __init__(self, mesh: Mesh, seconds: _KernelSeconds, start: float = 0.0) -> None:
        self._mesh, self._seconds = mesh, seconds
        self.now = self.network = start
        self.computing = 0.0
        self.steps: list[PredictedStep] = []
        self._done: dict[Any, float] = {}

    def run(self, block: Block) -> _Timeline:
        for step in block.steps:
            self._step(step)
        if block.chosen is not None:
            self._longest(block.chosen[1:])
        return self

    def _step(self, step: Step) -> None:
        begin = self.now
        if isinstance(step, Compute):
            self.now += self._seconds.of(step.module)
            self.computing += self.now - begin
        elif isinstance(step, Start):
            begin = max(self.now, self.network)
            self.network = self._done[step.call] = begin + call_cost(step.call, self._mesh)
            self.steps.append(PredictedStep(
                str(step), begin, self.network, call_bytes(step.call, self._mesh)))
            return
        elif isinstance(step, Wait):
            self.now = max(self.now, self._done[step.call])
        else:
            self._longest((step.yes, step.no) if isinstance(step, Branch) else (step.body,))
            return
        self.steps.append(PredictedStep(str(step), begin, self.now))

    def _longest(self, blocks: Sequence[Block]) -> None:
        start = max(self.now, self.network)
        tried = [_Timeline(self._mesh, self._seconds, start).run(block) for block in blocks]
        longest = max(tried, key=lambda t: t.now)
        self.now, self.network = longest.now, max(self.network, longest.network)
        self.computing += longest.computing
        self.steps += longest.steps


class _KernelSeconds:
    """Predicts functions; a kernel that several have is lowered once."""

    def __init__(self, options: CompileOptions) -> None:
        self._options = options
        self._known: dict[str, float] = {}

    def of(self, module: IRModule) -> float:
        options = self._options
        with options.settings():
            lowered = run_pipeline(module, options, stop_at="lowered")
            program = try_lower_program(lowered)
            if program is None:
                raise OptionError("a prediction needs a program of kernels alone")
            return sum(self._kernel(program.kernels[step.kernel])
                       for step in program.steps if step.source is None)

    def _kernel(self, kernel: Any) -> float:
        if kernel.digest not in self._known:
            lowered = lower_kernel(kernel.name, kernel.function, self._options.target)
            self._known[kernel.digest] = lowered.seconds
        return self._known[kernel.digest]


def _described(options: CompileOptions) -> str:
    return f"one core of {getattr(options.target, 'cpu', '')}" \
        if options.target.kind == "cpu" else str(options.target)
