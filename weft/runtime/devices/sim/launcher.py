"""``SimLauncher``: a program that runs on simulated devices."""

from __future__ import annotations

from typing import Any, ClassVar

from weft.runtime.arena import address_of
from weft.runtime.call_sizes import CallSizes
from weft.runtime.devices.cpu import threads
from weft.runtime.devices.sim.memory import (
    CallMemory,
    DeviceMemories,
    arena_bytes,
    check_memories,
)
from weft.runtime.devices.sim.program import SimLibrary, SimProgram, SimRun
from weft.runtime.launchers import Code, Launch, Launcher
from weft.runtime.library import Library, native
from weft.runtime.profile import StepTime
from weft.runtime.run_control import RunControl
from weft.support.errors import InternalError


class SimLaunch(Launch):
    """A program on simulated devices at the sizes of a call."""

    def __init__(self, launcher: SimLauncher, sizes: CallSizes) -> None:
        super().__init__(launcher, sizes)
        self._sim = launcher
        check_memories(self.manifest, sizes)
        self.arena_bytes = arena_bytes(self.manifest, sizes)

    def launch(self, inputs: list[Any], outputs: list[Any], times: list[StepTime] | None = None,
               control: RunControl | None = None) -> None:
        """See ``Launch.launch``."""
        sim = self._sim
        sim.code.apply_threads(threads.num_threads(self.manifest.threads))
        memory = self.memory_of(inputs, outputs)
        try:
            memory.acquire(self.arena_bytes)
            SimRun(sim.program, memory, self.sizes, times).run(control)
        finally:
            memory.release()

    def memory_of(self, inputs: list[Any], outputs: list[Any]) -> CallMemory:
        """The addresses of a call on these arrays, before it has arenas."""
        states = [address_of(array) for array in self._sim.state.values()]
        extras = [*states, self.sizes.address] if self.manifest.symbols else states
        return CallMemory(self._sim.memories, self.sizes, inputs, outputs, extras)


class SimLauncher(Launcher):
    """Kernels run on simulated devices, and copies between them take the time of their links.

    Results are the same bytes as on one device. Profiles are timelines with a row per device.
    """

    runs_devices_at_once: ClassVar[bool] = True

    def __init__(self, code: Code, library: Library) -> None:
        super().__init__(code, library)
        if not isinstance(library, SimLibrary):
            raise InternalError("a program for simulated devices needs code for each",
                                got=type(library).__name__)
        self.code = library
        self.memories = DeviceMemories(self.manifest, self.constants)
        self.program = SimProgram(self.manifest, library)

    @classmethod
    def load(cls, code: Code) -> Library:
        """The code of each device: the number of threads is a variable of the loaded code."""
        return SimLibrary(code.manifest.devices, lambda: native(code.load()))

    def at(self, sizes: CallSizes) -> Launch:
        """See ``Launcher.at``."""
        return SimLaunch(self, sizes)
