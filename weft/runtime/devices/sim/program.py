"""A program on simulated devices, and one run of it."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Sequence

from weft.runtime.call_sizes import CallSizes, steps_at
from weft.runtime.calls import Condition, KernelCall
from weft.runtime.device import HOST, Device
from weft.runtime.devices.cpu.threads import Threading
from weft.runtime.devices.sim.call import SimCall, workers_of
from weft.runtime.devices.sim.description import Links, SimDevice
from weft.runtime.devices.sim.memory import CallMemory
from weft.runtime.devices.sim.segments import Segment, blocks_of, is_copy
from weft.runtime.library import HostLibrary, Kernel, NativeLibrary, function
from weft.runtime.manifest import Manifest
from weft.runtime.profile import StepTime
from weft.runtime.run_control import RunControl
from weft.support.errors import ArtifactError, InternalError


class SimLibrary(HostLibrary):
    """``load`` gives the code anew: the number of threads is a variable of the loaded code."""

    def __init__(self, devices: Sequence[SimDevice], load: Callable[[], NativeLibrary]) -> None:
        self.devices = tuple(devices)
        places = (HOST, *(one.device for one in self.devices))
        self._loaded = {device: load() for device in places}
        self._threading = {device: Threading(code) for device, code in self._loaded.items()}

    def on(self, device: Device) -> NativeLibrary:
        """The code that runs on a device; ``ArtifactError`` for one without."""
        found = self._loaded.get(device)
        if found is None:
            raise ArtifactError(f"the program has no code for {device}",
                                expected=", ".join(map(str, self._loaded)))
        return found

    def kernel(self, symbol: str, num_args: int, device: Device = HOST, stream: int = 0) -> Kernel:
        """See ``Library.kernel``; the launch returns when the kernel is done."""
        return self.on(device).kernel(symbol, num_args, device, stream)

    def apply_threads(self, host: int) -> None:
        """Give each device its own threads, and the host ``host`` threads, from now on."""
        self._threading[HOST].apply(host)
        for one in self.devices:
            self._threading[one.device].apply_own(one.device, one.threads)


_POINTER = ctypes.c_void_p


class SimProgram:
    """The blocks of a program and the code of its segments: what all calls and sizes share."""

    def __init__(self, manifest: Manifest, library: SimLibrary) -> None:
        self.manifest = manifest
        self.library = library
        self.links = Links(manifest.devices)
        self.blocks = blocks_of(manifest.steps, manifest.jumps)
        self.workers = workers_of(self.blocks)
        self._jumps: dict[int, list[tuple[int, tuple[Condition, ...]]]] = {}
        numbers = {block.start: number for number, block in enumerate(self.blocks)}
        numbers[len(manifest.steps)] = len(self.blocks)
        for jump in manifest.jumps:
            self._jumps.setdefault(numbers[jump.at], []).append((numbers[jump.to], jump.guards))
        self.functions: dict[int, Callable[..., int]] = {
            segment.calls[0]: function(library.on(segment.worker[1]), segment.symbol,
                                       ctypes.c_int32, *[_POINTER] * 4)
            for block in self.blocks for segment in block.segments
            if not is_copy(manifest.steps[segment.calls[0]])}

    def next_block(self, after: int, holds: Callable[[Sequence[Condition]], bool]) -> int | None:
        """The number of the block that runs after block ``after``; ``None`` at the end."""
        at = after + 1
        while True:
            back = next((to for to, guards in self._jumps.get(at, ()) if holds(guards)), None)
            if back is not None:
                at = back
            elif at == len(self.blocks):
                return None
            elif holds(self.blocks[at].guards):
                return at
            else:
                at += 1


class SimRun:
    """One run of a program on the buffers of ``memory``; with ``times`` each call is timed."""

    __slots__ = ("_calls", "_memory", "_program", "_times")

    def __init__(self, program: SimProgram, memory: CallMemory, sizes: CallSizes,
                 times: list[StepTime] | None = None) -> None:
        self._program = program
        self._memory = memory
        self._calls = steps_at(program.manifest, sizes)
        self._times = times

    def run(self, control: RunControl | None = None) -> None:
        """Raises the first error of any worker, and those of the limits in ``control``."""
        call = SimCall(self._program.blocks, self, self._program.workers)
        if control is None:
            call.run()
            return
        with control.interrupting(call.cancel):
            call.run()

    def next_block(self, after: int) -> int | None:
        """See ``SegmentRunner``."""
        return self._program.next_block(after, self._holds)

    def run_segment(self, segment: Segment, call: SimCall) -> None:
        """See ``SegmentRunner``."""
        first = self._calls[segment.calls[0]]
        if is_copy(first):
            self._copy(first, call)
        elif self._times is not None:
            for number in segment.calls:
                self._timed(self._calls[number])
        else:
            memory, device = self._memory, segment.worker[1]
            status = self._program.functions[segment.calls[0]](
                memory.inputs_address, memory.outputs_address,
                memory.memories.constants[device], memory.arenas[device])
            if status != 0:
                raise InternalError("the compiled program failed", got=f"status {status}")

    def _copy(self, copy: KernelCall, call: SimCall) -> None:
        start = time.perf_counter()
        source, target = copy.args
        nbytes = int(copy.bytes_moved)
        link = self._program.links.between(copy.source, copy.device)
        ctypes.memmove(self._memory.value(target, copy.device),
                       self._memory.value(source, copy.source), nbytes)
        call.pause(start + link.seconds(nbytes))
        self._note(copy, start)

    def _timed(self, call: KernelCall) -> None:
        kernel = self._program.library.kernel(call.symbol, len(call.args), call.device)
        values = [self._memory.value(argument, call.device) for argument in call.args]
        start = time.perf_counter()
        kernel(*values)
        self._note(call, start)

    def _note(self, call: KernelCall, start: float) -> None:
        if self._times is not None:
            self._times.append(StepTime(call, start, max(time.perf_counter() - start, 1e-9)))

    def _holds(self, guards: Sequence[Condition]) -> bool:
        return all(bool(ctypes.c_uint8.from_address(
            self._memory.value(buffer, HOST)).value) is expected for buffer, expected in guards)
