"""``DeviceModule``: a compiled program that runs on a GPU, with parts on the host."""

from __future__ import annotations

import contextlib
import functools
import math
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft.runtime.arena import Pool, address_of
from weft.runtime.buffers import (
    BoundCall,
    check_extents,
    check_viewed,
    copy_into,
    given_outputs,
    output_buffer,
)
from weft.runtime.call_sizes import CallSizes
from weft.runtime.counted_outputs import CountedOutputs
from weft.runtime.devices.cuda.array import DeviceArray, as_device_array
from weft.runtime.devices.cuda.context import DeviceContext
from weft.runtime.devices.cuda.exchange import LEGACY_STREAM, wait_for_compute
from weft.runtime.devices.cuda.frame import DeviceFrame, new_outputs
from weft.runtime.devices.cuda.library import CudaLibrary
from weft.runtime.devices.cuda.program import DeviceProgram
from weft.runtime.devices.cuda.runner import Runner
from weft.runtime.devices.cuda.step_times import StepTimer, best_of
from weft.runtime.manifest import TensorSpec
from weft.runtime.module import CompiledModule
from weft.runtime.ndarray import to_numpy
from weft.runtime.profile import Profile, StepTime, report_kernels
from weft.runtime.run_control import RunControl
from weft.runtime.state import State
from weft.runtime.threads import Unthreaded, num_threads, threading_of
from weft.support.errors import InternalError, InvalidInputError, OptionError, WeftError
from weft.support.fallback import FallbackLog

Value = np.ndarray | DeviceArray


class DeviceModule(CompiledModule):
    """A program whose kernels run on a device with memory of its own.

    Inputs are arrays of the host, or arrays on the device that support DLPack or
    ``__cuda_array_interface__``, which are used without a copy. Results are NumPy arrays, or
    ``DeviceArray`` objects if an input is on the device; the call then returns before they are
    computed. The device is opened by the first call.
    """

    def _bind_code(self) -> None:
        library = self.library
        if not isinstance(library, CudaLibrary):
            raise InternalError("a program for a GPU needs a library for it",
                                got=type(library).__name__)
        if library.host is not None:
            self._threading = threading_of(library.host)
        self._program = DeviceProgram(self.manifest, library, self._constants)
        self._bind_sizes()

    def _bind_sizes(self) -> None:
        self._device_frames = Pool(_frame_maker(self._program, self._sizes))
        self._counted = (CountedOutputs(self.manifest, self._sizes.symbols)
                         if self.manifest.counts else None)

    @property
    def state(self) -> State:
        """See ``CompiledModule.state``; what the device updates are device arrays."""
        return self._program.state

    def bind(self, /, *args: Any, out: Any = None, **kwargs: Any) -> BoundCall:
        """A call without arguments on these buffers: ``run = mod.bind(x, out=y); run()``.

        Inputs and outputs may be device arrays; a run then returns before its work is done.
        """
        if self._signature.takes("out"):
            kwargs, out = kwargs if out is None else {**kwargs, "out": out}, None
        self._check_fixed_outputs()
        values = self._signature.bind(args, kwargs)
        inputs = self._device_values(values, is_bound=True)
        _check_in_place(self._sizes.inputs, values, inputs)
        outputs, results = self._given(out, inputs)
        return BoundCall(functools.partial(self._execute, inputs, outputs), inputs, results)

    def _call_into(self, out: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        if self._signature.takes("out"):
            results = self._execute(self._signature.bind(args, {**kwargs, "out": out}))
            return tuple(results) if self._returns_tuple else results[0]
        inputs = self._device_values(self._signature.bind(args, kwargs))
        if self._counted is not None:
            on_host = [value.numpy() if isinstance(value, DeviceArray) else value
                       for value in inputs]
            returned = copy_into(self.manifest, out, on_host, self._execute(on_host))
            return returned if self._returns_tuple else returned[0]
        outputs, results = self._given(out, inputs)
        self._execute(inputs, outputs)
        return results

    def _given(self, out: Any, inputs: Sequence[Value]) -> tuple[list[Value], Any]:
        """The buffers of the outputs, and the result of the call: entries of ``out`` if given."""
        self._check_fixed_outputs()
        given = [None] * len(self.outputs) if out is None else given_outputs(self.manifest, out)
        made = new_outputs(self._program, self._sizes, on_device=_any_on_device(inputs))
        buffers = [new if value is None else self._output(value, spec)
                   for value, new, spec in zip(given, made, self._sizes.outputs, strict=True)]
        check_extents(self.manifest, list(map(_extent, inputs)), list(map(_extent, buffers)))
        results = tuple(buffer if value is None else value
                        for value, buffer in zip(given, buffers, strict=True))
        return buffers, results if self._returns_tuple else results[0]

    def _output(self, value: Any, spec: TensorSpec) -> Value:
        on_device = as_device_array(value, self._program.context)
        if on_device is None:
            return output_buffer(value, spec)
        _check_spec(on_device, spec, f"output {spec.name!r}")
        return on_device

    def _device_values(self, values: Sequence[Any], *, is_bound: bool = False) -> list[Value]:
        log = None if is_bound else self._fallbacks  # bound calls refuse copies
        return [self._input(value, spec, log)
                for value, spec in zip(values, self._sizes.inputs, strict=True)]

    def _input(self, value: Any, spec: TensorSpec, log: FallbackLog | None) -> Value:
        if type(value) is np.ndarray:
            return to_numpy(value, spec, log)
        on_device = as_device_array(value, self._program.context)
        if on_device is None:
            return to_numpy(value, spec, log)
        _check_spec(on_device, spec, f"input {spec.name!r}")
        return on_device

    def _execute(self, values: Sequence[Any], outputs: Sequence[Any] | None = None) -> list[Any]:
        if not isinstance(self._threading, Unthreaded):
            self._threading.apply(num_threads(self.manifest.threads))
        if not self.manifest.states:
            results = self._run_on_device(values, outputs)
        else:
            with self._program.state.lock:
                results = self._run_on_device(values, outputs)
        return results if self._counted is None else self._counted.cut(results)

    def _controlled(self, values: Sequence[Any], control: RunControl) -> list[Any]:
        """Kernels on a GPU are launched ahead of time: the limits hold for the start alone."""
        control.check()
        results = self._execute(values)
        if control.times is not None:
            control.times += self._timed_run(self._device_values(values))
        return results

    def profile(self, /, *args: Any, repeat: int = 20, **kwargs: Any) -> Profile:
        """Time every step over ``repeat`` runs: launches by events of the device."""
        if not isinstance(repeat, int) or isinstance(repeat, bool) or repeat < 1:
            raise OptionError("invalid repeat", expected="a whole number above 0", got=repr(repeat))
        self._program.context.activate()
        values = self._device_values(self._signature.bind(args, kwargs))
        self._execute(values)  # loads the code
        runs = [self._timed_run(values) for _ in range(repeat)]
        seconds = []
        for _ in range(repeat):
            start = time.perf_counter()
            self._execute(values)
            self._program.library.synchronize()
            seconds.append(time.perf_counter() - start)
        return Profile(best_of(runs), min(seconds), math.nan, num_threads(self.manifest.threads))

    def _run_steps(self, frame: DeviceFrame, times: list[StepTime] | None) -> None:
        if times is None and not self._watched:
            Runner(frame).run()
            return
        timer = StepTimer(frame)
        Runner(frame, timer).run()
        found = timer.times()
        if times is None:
            report_kernels(found)
        else:
            times += found

    def _timed_run(self, values: Sequence[Value]) -> list[StepTime]:
        made: list[StepTime] = []
        self._run_on_device(values, None, made)
        return made

    def _run_on_device(self, values: Sequence[Any], given: Sequence[Any] | None,
                       times: list[StepTime] | None = None) -> list[Any]:
        """The outputs; ``times`` gets the times of the steps."""
        program = self._program
        program.context.activate()
        inputs = self._device_values(values)
        outputs = list(given) if given is not None else new_outputs(
            program, self._sizes, on_device=_any_on_device(inputs))
        frame = self._device_frames.take()
        try:
            frame.acquire(inputs, outputs)
            try:
                self._run_steps(frame, times)
                frame.collect(outputs)
                _order_foreign(inputs, program.context)
            finally:
                frame.release()
        except BaseException:
            _drain(program.library)  # work under way may still use the frame
            raise
        finally:
            self._device_frames.give_back(frame)
        return outputs


def _order_foreign(inputs: Sequence[Value], context: DeviceContext) -> None:
    """Let the default stream wait if inputs are memory of other libraries, which may reuse it."""
    if any(isinstance(value, DeviceArray) and value.is_foreign for value in inputs):
        wait_for_compute(context, LEGACY_STREAM)


def _frame_maker(program: DeviceProgram, sizes: CallSizes) -> Callable[[], DeviceFrame]:
    return functools.partial(DeviceFrame, program, sizes)


def _any_on_device(values: Sequence[Any]) -> bool:
    return any(isinstance(value, DeviceArray) for value in values)


def _drain(library: CudaLibrary) -> None:
    with contextlib.suppress(WeftError):  # the first error is being raised
        library.synchronize()


def _extent(value: Value) -> tuple[int, int]:
    start = value.address if isinstance(value, DeviceArray) else address_of(value)
    return start, start + value.nbytes


def _check_in_place(specs: Sequence[TensorSpec], values: Sequence[Any], inputs: Sequence[Value]
                    ) -> None:
    """Raise ``InvalidInputError`` for arrays of the host that had to be copied."""
    for spec, value, found in zip(specs, values, inputs, strict=True):
        if isinstance(found, np.ndarray):
            check_viewed(spec, value, found)


def _check_spec(array: DeviceArray, spec: TensorSpec, name: str) -> None:
    for part, good in (("dtype", array.dtype == spec.numpy_dtype),
                       ("shape", array.shape == spec.shape)):
        if not good:
            raise InvalidInputError(f"{name} has the wrong {part}", expected=spec,
                                    got=f"Tensor[{array.shape}, {array.dtype}]")


