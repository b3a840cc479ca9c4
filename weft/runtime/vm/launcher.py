"""``VirtualMachine``: the launcher of programs in bytecode."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft.runtime.arena import Pool
from weft.runtime.buffers import BoundCall, copy_all, copy_into
from weft.runtime.call_sizes import CallSizes
from weft.runtime.devices.cpu import threads
from weft.runtime.devices.cpu.rates import measure_fma_peak
from weft.runtime.dtypes import numpy_dtype
from weft.runtime.launchers import Code, Launch, Launcher
from weft.runtime.library import Library
from weft.runtime.manifest import KernelCall
from weft.runtime.ndarray import to_numpy, with_sizes
from weft.runtime.profile import Profile, StepTime, checked_repeat, report_kernels
from weft.runtime.run_control import RunControl
from weft.runtime.vm.kernels import KernelTable, Scratch
from weft.runtime.vm.machine import Image, Machine, Reading
from weft.runtime.vm.value import Value
from weft.support.errors import InternalError, InvalidInputError


class VmLaunch(Launch):
    """A program on the virtual machine; one object serves all sizes."""

    def __init__(self, launcher: VirtualMachine, sizes: CallSizes) -> None:
        super().__init__(launcher, sizes)
        self._vm = launcher
        self.counted = None  # results have their sizes

    def launch(self, inputs: list[Any], outputs: list[Any], times: list[StepTime] | None = None,
               control: RunControl | None = None) -> None:
        """See ``Launch.launch``; the results are copied to the outputs."""
        copy_all(self._results(inputs, times, control), outputs)

    def arrays(self, values: Sequence[Any], *, is_bound: bool = False) -> list[np.ndarray]:
        """Arguments as arrays; the first argument with a symbolic dimension binds its value."""
        sizes: dict[str, int] = {}
        log = None if is_bound else self.launcher.fallbacks
        arrays = [to_numpy(value, with_sizes(spec, value, sizes), log)
                  for value, spec in zip(values, self.manifest.inputs, strict=True)]
        if self._vm.program.returns_value:
            return [array.copy() for array in arrays]  # the caller keeps the right to write to his
        return arrays

    def execute(self, values: Sequence[Any], outputs: Sequence[Any] | None = None) -> list[Any]:
        """See ``Launch.execute``."""
        times: list[StepTime] | None = [] if self.launcher.watched else None
        results = self._results(self.arrays(values), times)
        if times:
            report_kernels(times)
        if outputs is None:
            return results
        copy_all(results, outputs)
        return list(outputs)

    def execute_controlled(self, values: Sequence[Any], control: RunControl) -> list[Any]:
        """See ``Launch.execute_controlled``; the limits are asked between instructions."""
        return self._results(self.arrays(values), control.times, control)

    def execute_into(self, values: Sequence[Any], out: Any) -> Any:
        """The machine allocates results, since shapes may depend on data; they are copied."""
        arrays = self.arrays(values)
        returned = copy_into(self.manifest, out, arrays, self.execute(arrays))
        return returned if self.returns_tuple else returned[0]

    def bind(self, values: Sequence[Any], out: Any) -> BoundCall:
        """See ``Launch.bind``; outputs with dynamic shapes cannot be bound."""
        sizes = [size for spec in self.manifest.outputs for size in spec.shape]
        if self._vm.program.returns_value or not all(isinstance(size, int) for size in sizes):
            raise InvalidInputError(
                "a module whose outputs have no fixed sizes cannot be bound",
                got=self.manifest.signature(), help="call it, or fix the sizes and compile again")
        return super().bind(values, out)

    def profile(self, values: Sequence[Any], repeat: int) -> Profile:
        """Time the kernels of the fastest of ``repeat`` runs, in the order in which they ran."""
        checked_repeat(repeat)
        arrays = self.arrays(values)
        vm, count = self._vm, threads.num_threads(self.manifest.threads)
        vm.apply_threads()
        vm.interpret(arrays, None)  # memory is touched, sizes met for the first time compiled
        best, readings = min((vm.timed(arrays) for _ in range(repeat)), key=lambda run: run[0])
        start = readings[0][1] if readings else 0.0
        steps = tuple(_step_time(reading, start) for reading in readings)
        return Profile(steps, best, measure_fma_peak(vm.library, count), count)

    def _results(self, arrays: list[np.ndarray], times: list[StepTime] | None,
                 control: RunControl | None = None) -> list[Any]:
        vm = self._vm
        vm.apply_threads()
        readings: list[Reading] | None = None if times is None else []
        result = vm.interpret(arrays, readings, None if control is None else control.check)
        if times is not None:
            times += [_step_time(reading) for reading in readings or ()]
        return [result] if vm.program.returns_value else vm.own(result, arrays)


class VirtualMachine(Launcher):
    """A program with control flow, closures or data types, or with sizes that vary.

    ``Code.specialize`` compiles kernels for sizes met for the first time; without it they are
    refused.
    """

    def __init__(self, code: Code, library: Library) -> None:
        super().__init__(code, library)
        if self.manifest.vm is None:
            raise InternalError("missing bytecode in a module for the virtual machine")
        self.program = self.manifest.vm
        self.kernels = KernelTable(self.program, library, code.specialize, code.owner)
        self._image = Image(self.program, self.kernels, self._constant_arrays())
        self._scratches: Pool[Scratch] = Pool(Scratch)
        if self.program.returns_value:
            self.returns_tuple = False

    def at(self, sizes: CallSizes) -> Launch:
        """See ``Launcher.at``."""
        return VmLaunch(self, sizes)

    def apply_threads(self) -> None:
        """See ``Launcher.apply_threads``; kernels compiled in calls are libraries of their own."""
        super().apply_threads()
        self.kernels.apply_threads(threads.num_threads(self.manifest.threads))

    def summary(self) -> str:
        """See ``Launcher.summary``."""
        return f"{len(self.program.functions)} functions on the virtual machine"

    def interpret(self, arrays: Sequence[np.ndarray], readings: list[Reading] | None,
                  check: Callable[[], None] | None = None) -> Value:
        """The result of the program; ``readings`` gets the time of each kernel call."""
        scratch = self._scratches.take()
        try:
            machine = Machine(self._image, scratch, readings)
            return machine.run(self.program.entry, arrays, check)
        finally:
            self._scratches.give_back(scratch)

    def timed(self, arrays: Sequence[np.ndarray]) -> tuple[float, list[Reading]]:
        """The seconds of a run, and those of its kernel calls."""
        readings: list[Reading] = []
        start = time.perf_counter()
        self.interpret(arrays, readings)
        return time.perf_counter() - start, readings

    def own(self, results: Sequence[np.ndarray], arrays: Sequence[np.ndarray]
            ) -> list[np.ndarray]:
        """The results, copied where they alias arguments, constants or each other."""
        taken = [self.constants, *arrays]
        own: list[np.ndarray] = []
        for result in results:
            if any(np.may_share_memory(result, other) for other in taken):
                result = result.copy()  # noqa: PLW2901
            own.append(result)
            taken.append(result)
        return own

    def _constant_arrays(self) -> list[np.ndarray]:
        arrays = []
        for spec in self.manifest.constants:
            raw = self.constants[spec.offset : spec.offset + spec.nbytes]
            array = raw.view(numpy_dtype(spec.dtype)).reshape(spec.shape)
            array.flags.writeable = False
            arrays.append(array)
        return arrays


def _step_time(reading: Reading, origin: float = 0.0) -> StepTime:
    kernel, start, end = reading
    facts = kernel.facts
    call = KernelCall(facts.symbol, (), facts.implementation, facts.op, facts.flops,
                      facts.bytes_moved)
    return StepTime(call, start - origin, max(end - start, 1e-9))
