"""``CudaLauncher``: a program that runs on a GPU, with parts on the host."""

from __future__ import annotations

import contextlib
import functools
import math
import time
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np

from weft.runtime.arena import Pool
from weft.runtime.buffers import copy_into, output_buffer
from weft.runtime.call_sizes import CallSizes
from weft.runtime.devices.cpu import threads
from weft.runtime.devices.cuda.array import DeviceArray, as_device_array
from weft.runtime.devices.cuda.context import DeviceContext
from weft.runtime.devices.cuda.exchange import LEGACY_STREAM, wait_for_compute
from weft.runtime.devices.cuda.frame import DeviceFrame, new_output
from weft.runtime.devices.cuda.library import CudaLibrary
from weft.runtime.devices.cuda.program import DeviceProgram
from weft.runtime.devices.cuda.runner import Runner
from weft.runtime.devices.cuda.step_times import StepTimer, best_of
from weft.runtime.launchers import Code, Launch, Launcher
from weft.runtime.library import Library
from weft.runtime.manifest import TensorSpec
from weft.runtime.ndarray import to_numpy
from weft.runtime.profile import Profile, StepTime, checked_repeat
from weft.runtime.run_control import RunControl
from weft.runtime.state import State
from weft.support.errors import InternalError, InvalidInputError, WeftError
from weft.support.fallback import FallbackLog

Value = np.ndarray | DeviceArray


class CudaLaunch(Launch):
    """A program for a GPU at the sizes of a call; the device is opened by the first call."""

    def __init__(self, launcher: CudaLauncher, sizes: CallSizes) -> None:
        super().__init__(launcher, sizes)
        self._program = launcher.program
        self._frames = Pool(_frame_maker(launcher.program, sizes))

    def launch(self, inputs: list[Any], outputs: list[Any], times: list[StepTime] | None = None,
               control: RunControl | None = None) -> None:  # noqa: ARG002 - see execute_controlled
        """See ``Launch.launch``; kernels are launched ahead of time, so limits do not apply."""
        program = self._program
        frame = self._frames.take()
        try:
            frame.acquire(inputs, outputs)
            try:
                if times is None:
                    Runner(frame).run()
                else:
                    timer = StepTimer(frame)
                    Runner(frame, timer).run()
                    times += timer.times()
                frame.collect(outputs)
                _order_foreign(inputs, program.context)
            finally:
                frame.release()
        except BaseException:
            _drain(program.library)  # work under way may still use the frame
            raise
        finally:
            self._frames.give_back(frame)

    def arrays(self, values: Sequence[Any], *, is_bound: bool = False) -> list[Value]:
        """See ``Launch.arrays``; arrays on the device are used without a copy."""
        self._program.context.activate()
        log = None if is_bound else self.launcher.fallbacks  # bound calls refuse copies
        return [self._input(value, spec, log)
                for value, spec in zip(values, self.sizes.inputs, strict=True)]

    def _input(self, value: Any, spec: TensorSpec, log: FallbackLog | None) -> Value:
        on_device = None if type(value) is np.ndarray else as_device_array(
            value, self._program.context)
        if on_device is None:
            return to_numpy(value, spec, log)
        _check_spec(on_device, spec, f"input {spec.name!r}")
        return on_device

    def new_outputs(self, inputs: Sequence[Any]) -> list[Value]:
        """See ``Launch.new_outputs``; counts are behind the outputs, on the host."""
        given = len(self.manifest.outputs)
        return [self.new_buffer(spec, inputs if number < given else ())
                for number, spec in enumerate(self.sizes.outputs)]

    def new_buffer(self, spec: TensorSpec, inputs: Sequence[Any]) -> Value:
        """An array on the device if an input is there, else on the host."""
        return new_output(self._program, spec, on_device=any(
            isinstance(value, DeviceArray) for value in inputs))

    def given_buffer(self, value: Any, spec: TensorSpec) -> Value:
        """See ``Launch.given_buffer``; the array may be on the device."""
        on_device = as_device_array(value, self._program.context)
        if on_device is None:
            return output_buffer(value, spec)
        _check_spec(on_device, spec, f"output {spec.name!r}")
        return on_device

    def execute(self, values: Sequence[Any], outputs: Sequence[Any] | None = None) -> list[Any]:
        """See ``Launch.execute``; with inputs on the device it returns before work is done."""
        self.launcher.apply_threads()
        return super().execute(values, outputs)

    def execute_into(self, values: Sequence[Any], out: Any) -> Any:
        """See ``Launch.execute_into``."""
        if self.counted is None:
            return super().execute_into(values, out)
        on_host = [value.numpy() if isinstance(value, DeviceArray) else value
                   for value in self.arrays(values)]
        returned = copy_into(self.manifest, out, on_host, self.execute(on_host))
        return returned if self.returns_tuple else returned[0]

    def execute_controlled(self, values: Sequence[Any], control: RunControl) -> list[Any]:
        """Kernels on a GPU are launched ahead of time: the limits hold for the start alone."""
        control.check()
        results = self.execute(values)
        if control.times is not None:
            control.times += self._timed(self.arrays(values))
        return results

    def profile(self, values: Sequence[Any], repeat: int) -> Profile:
        """Time every step over ``repeat`` runs: launches by events of the device."""
        checked_repeat(repeat)
        inputs = self.arrays(values)
        self.execute(inputs)  # loads the code
        runs = [self._timed(inputs) for _ in range(repeat)]
        seconds = []
        for _ in range(repeat):
            start = time.perf_counter()
            self.execute(inputs)
            self._program.library.synchronize()
            seconds.append(time.perf_counter() - start)
        return Profile(best_of(runs), min(seconds), math.nan,
                       threads.num_threads(self.manifest.threads))

    def _timed(self, inputs: list[Any]) -> list[StepTime]:
        made: list[StepTime] = []
        self.launch(inputs, self.new_outputs(inputs), made)
        return made


class CudaLauncher(Launcher):
    """A program whose kernels run on a device with memory of its own.

    Inputs are arrays of the host, or arrays on the device that support DLPack or
    ``__cuda_array_interface__``, which are used without a copy. Results are NumPy arrays, or
    ``DeviceArray`` objects if an input is on the device; the call then returns before they are
    computed.
    """

    takes_device_arrays: ClassVar[bool] = True
    copies_between_memories: ClassVar[bool] = True

    def __init__(self, code: Code, library: Library) -> None:
        super().__init__(code, library)
        if not isinstance(library, CudaLibrary):
            raise InternalError("a program for a GPU needs a library for it",
                                got=type(library).__name__)
        if library.host is not None:
            self.threading = threads.threading_of(library.host)
        self.program = DeviceProgram(self.manifest, library, self.constants)

    def at(self, sizes: CallSizes) -> Launch:
        """See ``Launcher.at``."""
        return CudaLaunch(self, sizes)

    @functools.cached_property
    def state(self) -> State:
        """See ``Launcher.state``; what the device updates are device arrays."""
        return self.program.state

    def apply_threads(self) -> None:
        """See ``Launcher.apply_threads``; a program without kernels on the host has no threads."""
        if not isinstance(self.threading, threads.Unthreaded):
            super().apply_threads()


def _order_foreign(inputs: Sequence[Value], context: DeviceContext) -> None:
    """Let the default stream wait if inputs are memory of other libraries, which may reuse it."""
    if any(isinstance(value, DeviceArray) and value.is_foreign for value in inputs):
        wait_for_compute(context, LEGACY_STREAM)


def _frame_maker(program: DeviceProgram, sizes: CallSizes) -> Callable[[], DeviceFrame]:
    return functools.partial(DeviceFrame, program, sizes)


def _drain(library: CudaLibrary) -> None:
    with contextlib.suppress(WeftError):  # the first error is being raised
        library.synchronize()


def _check_spec(array: DeviceArray, spec: TensorSpec, name: str) -> None:
    for part, good in (("dtype", array.dtype == spec.numpy_dtype),
                       ("shape", array.shape == spec.shape)):
        if not good:
            raise InvalidInputError(f"{name} has the wrong {part}", expected=spec,
                                    got=f"Tensor[{array.shape}, {array.dtype}]")
