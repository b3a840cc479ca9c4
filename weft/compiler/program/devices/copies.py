"""Inserts copies where a step uses a buffer of another memory.

Each buffer is in one memory. A step that reads a buffer of another memory reads a copy of it in its
own memory, and later steps on the same device read that copy too. A step that writes a buffer of
another memory writes a temporary of its own memory, which is then copied.

Invariant: a copy is read again only while it equals its buffer. So it is shared only if the buffer
is written once in the program, and only by steps on the same path of branches and loops: on another
path the step that copies may not have run.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import field

from weft.compiler.program.program import (
    BufferKind,
    BufferRef,
    CountedSize,
    Jump,
    KernelSource,
    Loop,
    Path,
    Program,
    Step,
    buffer_bytes,
)
from weft.compiler.program.step_writer import copy_function
from weft.ir import Call, Dim, DType, TensorType
from weft.op.device import DeviceCopyAttrs
from weft.runtime.calls import DEVICE_COPY
from weft.runtime.device import Device
from weft.support.dataclass import dataclass
from weft.transform.analysis.graph import op_name


def with_copies(program: Program, devices: Sequence[Device],
                memories: Mapping[BufferRef, Device], *, kernels_of_devices: bool = True
                ) -> Program:
    """The program with its steps on ``devices``, and copies between the memories.

    Buffers that are not in ``memories`` are wherever they are needed. A step that is a copy
    already (``is_copy``) goes from the memory of what it reads to that of what it writes; within
    one memory it is a kernel as any other. With ``kernels_of_devices``, a kernel on two devices is
    two kernels; without, all keep their numbers.
    """
    return _Copies(program, devices, memories, kernels_of_devices).run()


def is_copy(program: Program, step: Step) -> bool:
    """Whether the kernel of the step is the operator ``device_copy`` alone."""
    return copy_attrs(program.kernels[step.kernel]) is not None


def copy_attrs(kernel: KernelSource) -> DeviceCopyAttrs | None:
    """The ends of the copy that a kernel is; ``None`` for other kernels."""
    body = kernel.function.body
    attrs = body.attrs if isinstance(body, Call) and op_name(body) == "device_copy" else None
    return attrs if isinstance(attrs, DeviceCopyAttrs) else None


@dataclass(frozen=True, slots=True)
class _Copied:
    """A copy of a buffer. Steps under ``path``, where it is made, may read it afterwards."""

    ref: BufferRef
    path: Path


@dataclass(slots=True)
class _Copies:
    """Builds the program with copies, step by step.

    ``made`` are the copies that later steps may read, by buffer and device. ``starts`` are the new
    positions of the first steps that each old step became, ``lasts`` those of the last: jumps go to
    the former, and counted sizes are known after the latter.
    """

    program: Program
    devices: Sequence[Device]
    memories: Mapping[BufferRef, Device]
    kernels_of_devices: bool
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
        if not self.kernels_of_devices:
            self.kernels = list(program.kernels)
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
        if is_copy(self.program, step):
            source, target = step.buffers
            # A buffer without a memory is where the other end of the copy is.
            to = self.memories.get(target, device)
            from_ = self.memories.get(source, to)
            if from_ != to:
                self._copy(source, target, from_, to, step.path, step.after)
                self.lasts.append(len(self.steps) - 1)
                return
        local: dict[BufferRef, BufferRef] = {}
        for ref in dict.fromkeys(step.buffers):
            if self.memories.get(ref, device) != device:
                local[ref] = self._copy_in(ref, device, step, writes)
        buffers = tuple(local.get(ref, ref) for ref in step.buffers)
        self.steps.append(dataclasses.replace(step, buffers=buffers, device=device,
                                              kernel=self._kernel(step.kernel, device)))
        for ref in dict.fromkeys(step.writes):
            if ref in local:
                self._copy(local[ref], ref, device, self.memories[ref], step.path)
                # The temporary equals the buffer from here on, so it serves as a copy of it.
                if writes[ref] == 1 and ref not in step.reads:
                    self.made[(ref, device)] = _Copied(local[ref], step.path)
        self.lasts.append(len(self.steps) - 1)

    def _copy_in(self, ref: BufferRef, device: Device, step: Step,
                 writes: Mapping[BufferRef, int]) -> BufferRef:
        """The buffer on ``device`` that replaces ``ref`` in a step."""
        if ref not in step.reads:
            return self._temporary(ref)  # it is written whole, so no old content is needed
        known = self.made.get((ref, device))
        if known is not None and step.path[:len(known.path)] == known.path \
                and ref not in step.writes:
            return known.ref
        copied = self._temporary(ref)
        self._copy(ref, copied, self.memories[ref], device, step.path)
        # A buffer that is written again, in a loop for example, differs from this copy then.
        if writes.get(ref, 0) <= 1 and ref not in step.writes:
            self.made[(ref, device)] = _Copied(copied, step.path)
        return copied

    def _temporary(self, ref: BufferRef) -> BufferRef:
        self.temporaries.append(buffer_bytes(self.program, ref))
        return BufferRef(BufferKind.TEMPORARY, len(self.temporaries) - 1)

    def _copy(self, source: BufferRef, target: BufferRef, from_: Device, to: Device, path: Path,
              after: tuple[BufferRef, ...] = ()) -> None:
        if self.copy_kernel < 0:
            self.copy_kernel = len(self.kernels)
            self.kernels.append(COPY_KERNEL)
        self.steps.append(Step(self.copy_kernel, (source, target), 1, path, to, source=from_,
                               after=after))

    def _kernel(self, number: int, device: Device) -> int:
        if not self.kernels_of_devices:
            return number
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
        # The host reads counts from a kernel on a device after they are copied to it.
        return dataclasses.replace(count, at=self.lasts[count.at])


def _moved(path: Path, loops: Mapping[int, Loop]) -> Path:
    return tuple(loops[scope.number] if isinstance(scope, Loop) else scope for scope in path)


COPY_KERNEL = KernelSource(DEVICE_COPY, DEVICE_COPY,
                           copy_function(TensorType((), DType.of("uint8"))), DEVICE_COPY)
