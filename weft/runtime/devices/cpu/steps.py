"""``Steps``: a program whose kernels the runtime launches, one by one."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from weft.runtime.arena import ArenaPool, Pool, Region, address_of
from weft.runtime.call_sizes import CallSizes, steps_at
from weft.runtime.calls import KernelCall
from weft.runtime.device import Device
from weft.runtime.devices.cpu import threads
from weft.runtime.devices.cpu.frame import Frame
from weft.runtime.devices.cpu.stepper import Stepper, least_seconds, profile_module
from weft.runtime.launchers import Code, Launch, Launcher
from weft.runtime.library import Kernel, Library
from weft.runtime.profile import Profile, StepTime
from weft.runtime.run_control import RunControl


class StepsLaunch(Launch):
    """Walks the steps and jumps of the manifest.

    The library launches a kernel on a device and stream; branch conditions and results are read
    once all launches are done.
    """

    def __init__(self, launcher: Steps, sizes: CallSizes) -> None:
        super().__init__(launcher, sizes)
        self._program = launcher
        self._calls: tuple[KernelCall, ...] | None = None
        # Not a bound method, which would keep this object alive until cycles are collected.
        self.frames = Pool(functools.partial(Frame, self.manifest, launcher.library,
                                             launcher.arenas, sizes, launcher.extras(sizes)))

    def launch(self, inputs: list[Any], outputs: list[Any], times: list[StepTime] | None = None,
               control: RunControl | None = None) -> None:
        """See ``Launch.launch``; ``control`` is asked ahead of each kernel."""
        self.launcher.apply_threads()
        with self._stepper(inputs, outputs) as stepper:
            made = stepper.run(is_timed=times is not None,
                               check=None if control is None else control.check)
        if times is not None:
            times += made

    def profile(self, values: Sequence[Any], repeat: int) -> Profile:
        """Time every kernel over ``repeat`` runs, and measure the FMA peak of the machine."""
        inputs = self.arrays(values)
        self.launcher.apply_threads()
        with self._stepper(inputs, self.new_outputs(inputs)) as stepper:
            return profile_module(stepper, lambda: self.execute(inputs), repeat,
                                  threads.num_threads(self.manifest.threads))

    def kernel_seconds(self, values: Sequence[Any], budget: float = 0.004) -> list[float]:
        """Seconds of each kernel called alone, again and again, for about ``budget`` seconds each.

        Its data stay in the caches that hold them. A kernel that takes longer than a time slice of
        the scheduler is timed by the clock of the thread, which stands still while others run.
        """
        inputs = self.arrays(values)
        self.launcher.apply_threads()
        with self._stepper(inputs, self.new_outputs(inputs)) as stepper:
            return [least_seconds(stepper, at, step.seconds, budget)
                    for at, step in enumerate(stepper.run())]

    def _stepper(self, inputs: list[Any], outputs: list[Any]) -> Stepper:
        return Stepper(self.manifest, self._steps, self._functions_of,
                       self._program.constants_address, self.frames, inputs, outputs,
                       self._program.library)

    @property
    def _steps(self) -> tuple[KernelCall, ...]:
        if self._calls is None:
            self._calls = steps_at(self.manifest, self.sizes)
        return self._calls

    def _functions_of(self, steps: Sequence[KernelCall]) -> list[Kernel]:
        kernel = self._program.kernel
        return [kernel(step.symbol, len(step.args), step.device, step.stream) for step in steps]


class Steps(Launcher):
    """A program without a main function in machine code, for any ``Library``."""

    def __init__(self, code: Code, library: Library) -> None:
        super().__init__(code, library)
        self.arenas = ArenaPool()
        self.constants_address = address_of(self.constants)

    def at(self, sizes: CallSizes) -> Launch:
        """See ``Launcher.at``."""
        return StepsLaunch(self, sizes)

    def extras(self, sizes: CallSizes) -> list[int]:
        """The pointers behind those to the inputs: the states, and the values of the symbols."""
        states = [address_of(array) for array in self.state.values()]
        return [*states, sizes.address] if self.manifest.symbols else states

    @functools.cached_property
    def kernel(self) -> Callable[[str, int, Device, int], Kernel]:
        """The kernels of the library, each looked up once."""
        return functools.cache(self.library.kernel)

    def memory(self) -> dict[str, list[Region]]:
        """See ``Launcher.memory``."""
        return {**super().memory(), "arenas": self.arenas.regions}

    @property
    def arena_nbytes(self) -> int:
        """See ``Launcher.arena_nbytes``."""
        return self.arenas.nbytes
