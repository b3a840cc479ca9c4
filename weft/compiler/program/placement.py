"""Places the steps of a program on a device and on the host, and inserts the copies between them.

Steps whose kernels the device cannot run are on the host: Python functions, and kernels that its
code generation refused. Conditions of branches and counted sizes are read by the host. Each buffer
lies in one memory. A step that reads a buffer of another memory reads a copy, and one that writes
it writes to a buffer of its own, which is copied. Inputs and constants are wherever they are
needed: the runtime uploads them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from dataclasses import field

from weft.compiler.program.program import (
    BufferKind,
    BufferRef,
    CountedSize,
    Guard,
    Jump,
    KernelSource,
    Loop,
    Path,
    Program,
    Step,
    buffer_bytes,
)
from weft.compiler.program.step_writer import copy_function
from weft.ir.dtype import DType
from weft.ir.shape import Dim
from weft.ir.symbol import typical_size
from weft.ir.types import TensorType
from weft.runtime.calls import DEVICE_COPY
from weft.runtime.device import HOST, Device
from weft.support.dataclass import dataclass
from weft.transform.external.generate_external import external_code_of
from weft.transform.placement.problem import PlacementProblem

# Where both can run a step, the host is chosen only to save copies: its memory is slower, by this
# factor of the bytes that the step touches.
_HOST_SLOWDOWN = 1.0
_SHARED_KINDS = (BufferKind.INPUT, BufferKind.CONSTANT)


def on_device(program: Program, device: Device, refused: Collection[str] = ()) -> Program:
    """The program with its steps on ``device`` where it can run them, and on the host otherwise.

    ``refused`` are the digests of kernels that the device cannot run.
    """
    return _Copies(program, *_solved(program, device, refused)).run()


def must_run_on_host(source: KernelSource) -> bool:
    """Whether no device runs the kernel: code of other generators, as Python functions."""
    return external_code_of(source.function) is not None


def _solved(program: Program, device: Device, refused: Collection[str]
            ) -> tuple[list[Device], dict[BufferRef, Device]]:
    """The device of each step, and the memory of each buffer but inputs and constants."""
    problem = PlacementProblem()
    read_by_host = {guard.condition for step in program.steps for guard in step.guards}
    read_by_host |= {guard.condition for jump in program.jumps for guard in jump.path
                     if isinstance(guard, Guard)}
    read_by_host |= {count.counts for count in program.counts}
    buffers: dict[BufferRef, int] = {}
    steps = []
    for step in program.steps:
        source = program.kernels[step.kernel]
        touched = sum(typical_size(buffer_bytes(program, ref)) for ref in step.buffers
                      if ref.kind not in _SHARED_KINDS)
        costs = {HOST: _HOST_SLOWDOWN * touched + 1.0}
        if source.digest not in refused and not must_run_on_host(source):
            costs[device] = 0.0
        steps.append(problem.add(source.text, costs))
        for ref in dict.fromkeys(step.buffers):
            if ref.kind in _SHARED_KINDS:
                continue
            if ref not in buffers:
                anywhere = {HOST: 0.0} if ref in read_by_host else {device: 0.0, HOST: 0.0}
                buffers[ref] = problem.add(f"{ref.kind.value} {ref.index}", anywhere)
            problem.connect(steps[-1], buffers[ref], typical_size(buffer_bytes(program, ref)))
    chosen = problem.solve()
    return [chosen[n] for n in steps], {ref: chosen[n] for ref, n in buffers.items()}


@dataclass(frozen=True, slots=True)
class _Copied:
    """A copy of a buffer, made under ``path``; later steps on that path may read it."""

    ref: BufferRef
    path: Path


@dataclass(slots=True)
class _Copies:
    """Writes the steps again, with copies where a step uses a buffer of another memory."""

    program: Program
    devices: Sequence[Device]
    memories: Mapping[BufferRef, Device]
    steps: list[Step] = field(default_factory=list)
    temporaries: list[Dim] = field(default_factory=list)
    kernels: list[KernelSource] = field(default_factory=list)
    numbers: dict[tuple[int, Device], int] = field(default_factory=dict)
    made: dict[tuple[BufferRef, Device], _Copied] = field(default_factory=dict)
    starts: list[int] = field(default_factory=list)
    lasts: list[int] = field(default_factory=list)
    copy_kernel: int = -1

    def run(self) -> Program:
        program = self.program
        self.temporaries = list(program.temporaries)
        writes: dict[BufferRef, int] = {}
        for step in program.steps:
            for ref in step.writes:
                writes[ref] = writes.get(ref, 0) + 1
        for step, device in zip(program.steps, self.devices, strict=True):
            self._place(step, device, writes)
        self.starts.append(len(self.steps))
        loops = self._loops()
        return dataclasses.replace(
            program, kernels=tuple(self.kernels), temporaries=tuple(self.temporaries),
            steps=tuple(dataclasses.replace(step, path=_moved(step.path, loops))
                        for step in self.steps),
            jumps=tuple(Jump(self.starts[jump.at], loops[jump.loop.number],
                             _moved(jump.path, loops)) for jump in program.jumps),
            counts=tuple(self._count(count) for count in program.counts))

    def _place(self, step: Step, device: Device, writes: Mapping[BufferRef, int]) -> None:
        self.starts.append(len(self.steps))
        local: dict[BufferRef, BufferRef] = {}
        for ref in dict.fromkeys(step.buffers):
            if ref.kind not in _SHARED_KINDS and self.memories[ref] != device:
                local[ref] = self._copy_in(ref, device, step, writes)
        buffers = tuple(local.get(ref, ref) for ref in step.buffers)
        self.steps.append(dataclasses.replace(step, buffers=buffers, device=device,
                                              kernel=self._kernel(step.kernel, device)))
        for ref in dict.fromkeys(step.writes):
            if ref in local:
                self._copy(local[ref], ref, device, self.memories[ref], step.path)
        self.lasts.append(len(self.steps) - 1)

    def _copy_in(self, ref: BufferRef, device: Device, step: Step,
                 writes: Mapping[BufferRef, int]) -> BufferRef:
        """The buffer on ``device`` that stands for ``ref`` in a step."""
        if ref not in step.reads:
            return self._temporary(ref)
        known = self.made.get((ref, device))
        if known is not None and step.path[:len(known.path)] == known.path \
                and ref not in step.writes:
            return known.ref
        copied = self._temporary(ref)
        self._copy(ref, copied, self.memories[ref], device, step.path)
        # The copy stays right only where nothing writes the buffer again.
        if writes.get(ref, 0) == 1 and ref not in step.writes:
            self.made[(ref, device)] = _Copied(copied, step.path)
        return copied

    def _temporary(self, ref: BufferRef) -> BufferRef:
        self.temporaries.append(buffer_bytes(self.program, ref))
        return BufferRef(BufferKind.TEMPORARY, len(self.temporaries) - 1)

    def _copy(self, source: BufferRef, target: BufferRef, from_: Device, to: Device, path: Path
              ) -> None:
        if self.copy_kernel < 0:
            self.copy_kernel = len(self.kernels)
            self.kernels.append(_COPY_KERNEL)
        self.steps.append(Step(self.copy_kernel, (source, target), 1, path, to, source=from_))

    def _kernel(self, number: int, device: Device) -> int:
        key = number, device
        if key not in self.numbers:
            self.numbers[key] = len(self.kernels)
            self.kernels.append(dataclasses.replace(self.program.kernels[number], device=device))
        return self.numbers[key]

    def _loops(self) -> dict[int, Loop]:
        """The loops by number, with the new positions of their first steps."""
        found = {scope for step in self.program.steps for scope in step.path
                 if isinstance(scope, Loop)} | {jump.loop for jump in self.program.jumps}
        return {loop.number: Loop(loop.number, self.starts[loop.first]) for loop in found}

    def _count(self, count: CountedSize) -> CountedSize:
        # Counts of a kernel on the device are known once they are copied.
        return dataclasses.replace(count, at=self.lasts[count.at])


def _moved(path: Path, loops: Mapping[int, Loop]) -> Path:
    return tuple(loops[scope.number] if isinstance(scope, Loop) else scope for scope in path)


_COPY_KERNEL = KernelSource(DEVICE_COPY, DEVICE_COPY,
                            copy_function(TensorType((), DType.of("uint8"))), DEVICE_COPY)
