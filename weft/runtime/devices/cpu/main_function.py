"""``MainFunction``: a program whose kernels ``weft_main`` calls, in machine code."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from weft.runtime.arena import ArenaPool
from weft.runtime.call_sizes import CallSizes
from weft.runtime.devices.cpu.frame import Frame
from weft.runtime.devices.cpu.python_call import (
    NO_ARENA,
    Builtin,
    PythonCall,
    call_template,
    is_short,
)
from weft.runtime.devices.cpu.steps import Steps, StepsLaunch
from weft.runtime.devices.cpu.threads import num_threads
from weft.runtime.launchers import Code, Launch
from weft.runtime.library import Library, NativeLibrary, function
from weft.runtime.manifest import MAIN_SYMBOL
from weft.runtime.profile import StepTime
from weft.runtime.run_control import RunControl
from weft.support.errors import InternalError

_POINTER = ctypes.c_void_p


def _declines(*_: Any) -> None:
    """Stands for the call in machine code on interpreters that it does not support."""


class MainLaunch(StepsLaunch):
    """Calls ``weft_main``, through a builtin where the arguments fit exactly.

    Runs that are timed or limited launch the kernels one by one.
    """

    def __init__(self, launcher: MainFunction, sizes: CallSizes) -> None:
        super().__init__(launcher, sizes)
        self._main = launcher.main
        self._constants_address = launcher.constants_address
        self._arenas = launcher.arenas
        self._extras = launcher.extras(sizes)
        self._apply_threads = launcher.threading.apply
        self._watched = launcher.watched
        self._threads = self.manifest.threads
        self._state = launcher.state if self.manifest.states else None
        self._is_plain = not self._watched and self._state is None and self.counted is None
        self.call = None if launcher.template is None else PythonCall(
            launcher.template, sizes, self.makers, launcher.arenas, extras=self._extras,
            releases=not is_short(self.manifest, sizes))
        self._quick: Builtin = _declines if self.call is None else self.call.quick

    def execute(self, values: Sequence[Any], outputs: Sequence[Any] | None = None) -> list[Any]:
        """See ``Launch.execute``."""
        if outputs is None and self._is_plain:  # the usual case, a copy of what ``_run`` does
            self._apply_threads(num_threads(self._threads))
            results = self._quick(*values)
            return results if type(results) is list else self._run_arrays(values)
        if self._watched:
            return super().execute(values, outputs)
        if self._state is None:
            results = self._run(values, outputs)
        else:
            with self._state.lock:
                results = self._run(values, outputs)
        return results if self.counted is None else self.counted.cut(results)

    def _run(self, values: Sequence[Any], outputs: Sequence[Any] | None) -> list[Any]:
        self._apply_threads(num_threads(self._threads))
        if outputs is not None:
            return self._run_main(values, list(outputs))
        results = self._quick(*values)
        return results if type(results) is list else self._run_arrays(values)

    def _run_arrays(self, values: Sequence[Any]) -> list[Any]:
        """Run on values of which some do not fit exactly."""
        inputs = self.arrays(values)
        if self.call is None:
            return self._run_main(inputs, self.new_outputs(inputs))
        return self.call.run(inputs)

    def launch(self, inputs: list[Any], outputs: list[Any], times: list[StepTime] | None = None,
               control: RunControl | None = None) -> None:
        """See ``Launch.launch``."""
        if times is not None or control is not None:
            super().launch(inputs, outputs, times, control)
        else:
            self.launcher.apply_threads()
            self._run_main(inputs, outputs)

    def _run_main(self, inputs: Sequence[Any], outputs: list[Any]) -> list[Any]:
        """Call ``weft_main`` through ctypes: into given memory, or without ``PythonCall``."""
        frame = self.frames.take()
        frame.acquire()
        try:
            frame.point_at(inputs, outputs)
            status = self._main(frame.inputs_address, frame.outputs_address,
                                self._constants_address, frame.arena)
        finally:
            frame.release()
            self.frames.give_back(frame)
        _check_status(status)
        return outputs

    def execute_into(self, values: Sequence[Any], out: Any) -> Any:
        """See ``Launch.execute_into``; arrays that fit exactly are written in machine code."""
        if not self.returns_tuple:
            given: tuple[Any, ...] = (out,)
        else:
            given = tuple(out) if isinstance(out, (tuple, list)) else ()
        if given and self._runs_into(values, given):
            return given if self.returns_tuple else out
        return super().execute_into(values, out)

    def _runs_into(self, values: Sequence[Any], given: Sequence[Any]) -> bool:
        """Run in machine code on arrays that fit exactly; ``False`` without running for others."""
        if self._is_plain:
            self._apply_threads(num_threads(self._threads))
            status = self._quick(*values, *given)
        elif self._watched or self.counted is not None or self._state is None:
            return False
        else:
            self._apply_threads(num_threads(self._threads))
            with self._state.lock:
                status = self._quick(*values, *given)
        if status == 0:
            return True
        if status is None or status == NO_ARENA:
            return False
        raise InternalError("the compiled program failed", got=f"status {status}")

    def bound(self, inputs: list[Any], outputs: list[Any]) -> Callable[[], object]:
        """See ``Launch.bound``."""
        if self._watched:
            return super().bound(inputs, outputs)
        # The arena is freed with the bound call.
        frame = Frame(self.manifest, self.launcher.library, ArenaPool(), self.sizes, self._extras)
        frame.acquire()
        frame.point_at(inputs, outputs)
        addresses = (frame.inputs_address, frame.outputs_address, self._constants_address,
                     frame.arena)
        return functools.partial(self._run_at, addresses, (frame, inputs, outputs))

    def _run_at(self, addresses: tuple[int, ...], _kept: object) -> None:
        """Run on the buffers at these addresses, which ``_kept`` keeps alive."""
        self._apply_threads(num_threads(self._threads))
        with self.locked():
            _check_status(self._main(*addresses))


class MainFunction(Steps):
    """A program whose library contains ``weft_main``, the function that calls all kernels."""

    starts_from_objects: ClassVar[bool] = True

    def __init__(self, code: Code, library: Library) -> None:
        super().__init__(code, library)
        if not isinstance(library, NativeLibrary):
            raise InternalError("a program in machine code needs a library with addresses",
                                got=type(library).__name__)
        self.main = function(library, MAIN_SYMBOL, ctypes.c_int32, *[_POINTER] * 4)
        self.template = call_template(library, self.constants)

    def at(self, sizes: CallSizes) -> Launch:
        """See ``Launcher.at``."""
        return MainLaunch(self, sizes)


def _check_status(status: int) -> None:
    if status != 0:
        raise InternalError("the compiled program failed", got=f"status {status}")
