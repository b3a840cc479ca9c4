"""A compiled module: code, weights and a signature, ready to be called."""

from __future__ import annotations

import contextlib
import ctypes
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

import numpy as np

from weft.runtime import threads
from weft.runtime.arena import AlignedBlock, Pool, address_of, aligned_bytes
from weft.runtime.arena_pool import ArenaPool
from weft.runtime.buffers import (
    BoundCall,
    check_apart,
    check_in_place,
    copy_into,
    given_outputs,
    output_buffer,
)
from weft.runtime.call_sizes import fixed_sizes, steps_at
from weft.runtime.counted_outputs import CountedOutputs
from weft.runtime.device import Device
from weft.runtime.explain import explanation
from weft.runtime.frame import Frame
from weft.runtime.library import Kernel, Library, NativeLibrary, function
from weft.runtime.manifest import MAIN_SYMBOL, KernelCall, Manifest, TensorSpec
from weft.runtime.ndarray import to_numpy
from weft.runtime.outputs import output_maker
from weft.runtime.profile import Profile, Stepper, profile_module, report_kernels
from weft.runtime.python_call import NO_ARENA, Builtin, PythonCall, call_template, is_short
from weft.runtime.run_control import RunControl
from weft.runtime.signature import Signature
from weft.runtime.state import State
from weft.support import trace
from weft.support.errors import ArtifactError, InternalError, InvalidInputError
from weft.support.fallback import module_log
from weft.support.log import Level, enabled

_POINTER = ctypes.c_void_p
_NO_LOCK: contextlib.nullcontext[None] = contextlib.nullcontext()


def _declines(*_: Any) -> None:
    """Stands for the call in machine code on interpreters that it does not support."""


class CompiledModule:
    """A program in machine code; subclasses run other programs (``StepModule``, ``VmModule``).

    Several Python threads may call it at once: each call works in its own arena, and Python's lock
    is released while compiled code runs. Arguments are arrays of exactly the declared shapes and
    dtypes (see ``weft.runtime.ndarray.to_numpy``), results are new NumPy arrays.

    ``_start`` says how the model started, for ``explain``.

    ``constants`` are the bytes that the manifest's constant offsets point into; memory aligned to
    64 bytes is used directly, other memory is copied.
    """

    _quick: Builtin = staticmethod(_declines)
    _start: str = "from compiled code, as an artifact holds it"

    def __init__(self, manifest: Manifest, library: Library,
                 constants: bytes | memoryview | np.ndarray | AlignedBlock) -> None:
        self._sizes = fixed_sizes(manifest)
        self._arenas = ArenaPool()
        self._state = State(manifest.states)
        self.manifest = manifest
        self._fallbacks = module_log(manifest.fallbacks)
        self.library = library
        self._constants = aligned_bytes(constants)
        if self._constants.nbytes < manifest.constants_bytes:
            raise InternalError("the block of constants is too short", got=self._constants.nbytes,
                                expected=f"{manifest.constants_bytes} bytes")
        self._state.start(manifest.initial, self._constants)
        self._threading = threads.threading_of(library)
        self._signature = Signature(manifest)
        self._returns_tuple = manifest.output_is_tuple or len(manifest.outputs) != 1
        # Read once: reading these settings takes longer than a small call.
        self._watched = enabled(Level.KERNELS) or trace.recorder() is not None
        self._bind_code()

    def _bind_code(self) -> None:
        """Find ``weft_main`` and prepare its calls."""
        library = self.library
        if not isinstance(library, NativeLibrary):
            raise InternalError("a program in machine code needs a library with addresses",
                                got=type(library).__name__)
        self._constants_address = address_of(self._constants)
        self._main = function(library, MAIN_SYMBOL, ctypes.c_int32, *[_POINTER] * 4)
        self._template = call_template(library, self._constants)
        self._bind_sizes()

    def _bind_sizes(self) -> None:
        """Prepare calls at the sizes of this module."""
        sizes = self._sizes
        # Blocks as large as the bounds of counted sizes are not worth keeping.
        self._makers = [output_maker(s, reuses=not self.manifest.counts) for s in sizes.outputs]
        self._frames = self._frame_pool()
        self._call = None if self._template is None else PythonCall(
            self._template, sizes, self._makers, self._arenas, extras=self._extras(),
            releases=not is_short(self.manifest, sizes))
        if self._call is not None:
            self._quick = self._call.quick
        self._counted = (CountedOutputs(self.manifest, sizes.symbols) if self.manifest.counts
                         else None)

    @property
    def inputs(self) -> tuple[TensorSpec, ...]:
        """Name, dtype and shape of every input."""
        return self._sizes.inputs

    @property
    def outputs(self) -> tuple[TensorSpec, ...]:
        """Name, dtype and shape of every output; sizes that data determines are names."""
        return self.manifest.outputs if self.manifest.counts else self._sizes.outputs

    @property
    def state(self) -> State:
        """The tensors that the module keeps from call to call, by the name of their input."""
        return self._state

    def share_state(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Keep states in memory of the caller, which several modules may share (``State.share``).

        No call may run at the same time.
        """
        self._state.share(arrays)
        self._bind_sizes()

    def explain(self) -> str:
        """What weft does instead of what was asked for, with cause, cost and cure, as text.

        Lists the changes of plan of the compilation and those that calls have met so far, and says
        whether the model came from the disk cache and if not, why.
        """
        return explanation(self.manifest.signature(), self._start, self._fallbacks)

    @property
    def threads(self) -> int | None:
        """The number of threads of this module's calls; ``None``: that of the process.

        ``with weft.config(threads=n)`` around a call overrides it.
        """
        return self.manifest.threads

    def __call__(self, /, *args: Any, out: Any = None, **kwargs: Any) -> Any:
        """Run on inputs given by position or by name; one output alone, several as a tuple.

        ``out`` is the array that the result is written to (a tuple for several outputs, a mapping
        by name for some of them), and is returned. It is C-contiguous, has the dtype and shape of
        the output, and shares no memory with inputs. If the module has an input called ``out``,
        the keyword is that input. Raises ``InvalidInputError`` for arguments that do not fit.
        """
        if out is not None:
            return self._call_into(out, args, kwargs)
        results = self._execute(self._signature.bind(args, kwargs))
        return tuple(results) if self._returns_tuple else results[0]

    def bind(self, /, *args: Any, out: Any = None, **kwargs: Any) -> BoundCall:
        """A call without arguments on these buffers: ``run = mod.bind(x, out=y); run()``.

        Each call reads the current contents of the inputs, without a copy; outputs that ``out``
        does not give are allocated once. Raises ``InvalidInputError`` for arguments that do not
        fit, and for inputs that would have to be copied.
        """
        if self._signature.takes("out"):
            kwargs, out = _with_out(out, kwargs), None
        self._check_fixed_outputs()
        values = self._signature.bind(args, kwargs)
        arrays = self._arrays(values, is_bound=True)
        check_in_place(self.manifest, values, arrays)
        outputs, results = self._into(out, arrays)
        return BoundCall(self._bound(arrays, outputs), arrays, results)

    def _bound(self, arrays: list[np.ndarray], outputs: list[np.ndarray]) -> Callable[[], object]:
        """A function that runs the program on these buffers, one call at a time."""
        if self._watched:
            return functools.partial(self._execute, arrays, outputs)
        # The arena is freed with the bound call.
        frame = Frame(self.manifest, self.library, ArenaPool(), self._sizes, self._extras())
        frame.acquire()
        frame.point_at(arrays, outputs)
        addresses = (frame.inputs_address, frame.outputs_address, self._constants_address,
                     frame.arena)
        return functools.partial(self._run_at, addresses, (frame, arrays, outputs))

    def _run_at(self, addresses: tuple[int, ...], _kept: object) -> None:
        """Run on the buffers at these addresses, which ``_kept`` keeps alive."""
        self._threading.apply(threads.num_threads(self.manifest.threads))
        with self._state.lock if self._state else _NO_LOCK:
            _check_status(self._main(*addresses))

    def _call_into(self, out: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        if self._signature.takes("out"):
            results = self._execute(self._signature.bind(args, _with_out(out, kwargs)))
            return tuple(results) if self._returns_tuple else results[0]
        values = self._signature.bind(args, kwargs)
        given = _entries(out) if self._returns_tuple else (out,)
        if given and self._runs_into(values, given):
            return given if self._returns_tuple else out
        arrays = self._arrays(values)
        if self._counted is not None:
            returned = copy_into(self.manifest, out, arrays, self._execute(arrays))
            return returned if self._returns_tuple else returned[0]
        outputs, results = self._into(out, arrays)
        self._execute(arrays, outputs)
        return results

    def _runs_into(self, values: Sequence[Any], given: Sequence[Any]) -> bool:
        """Run in machine code on arrays that fit exactly; ``False`` without running for others."""
        if self._watched or self._counted is not None:
            return False
        self._threading.apply(threads.num_threads(self.manifest.threads))
        if not self._state:
            status = self._quick(*values, *given)
        else:
            with self._state.lock:
                status = self._quick(*values, *given)
        if status == 0:
            return True
        if status is None or status == NO_ARENA:
            return False
        raise InternalError("the compiled program failed", got=f"status {status}")

    def _into(self, out: Any, arrays: list[np.ndarray]) -> tuple[list[np.ndarray], Any]:
        """The buffers of the outputs, and the result of the call: entries of ``out`` if given."""
        specs = self.outputs
        given = [None] * len(specs) if out is None else given_outputs(self.manifest, out)
        outputs = [np.empty(spec.concrete_shape, spec.numpy_dtype) if value is None
                   else output_buffer(value, spec)
                   for value, spec in zip(given, specs, strict=True)]
        check_apart(self.manifest, arrays, outputs)
        results = tuple(array if value is None else value
                        for value, array in zip(given, outputs, strict=True))
        return outputs, results if self._returns_tuple else results[0]

    def run(self, output_names: Sequence[str] | None, feeds: Mapping[str, Any],
            control: RunControl | None = None) -> list[np.ndarray]:
        """ONNX Runtime's signature: the named outputs (``None`` for all) for inputs by name.

        With ``control``, the run has a time limit, can be cancelled, or is traced
        (``weft.RunControl``). Raises ``RunTimeoutError`` and ``RunCancelledError``; the state of
        the module is then as before.
        """
        if type(feeds) is not dict and not isinstance(feeds, Mapping):
            raise InvalidInputError("feeds are not a mapping", got=type(feeds).__name__,
                                    expected=f"arrays by name: {self.manifest.signature()}")
        wanted = None if output_names is None else self._signature.output_numbers(output_names)
        values = self._signature.bind((), feeds)
        results = self._execute(values) if control is None else self._controlled(values, control)
        return results if wanted is None else [results[number] for number in wanted]

    def profile(self, /, *args: Any, repeat: int = 20, **kwargs: Any) -> Profile:
        """Time every kernel over ``repeat`` runs, and measure the FMA peak of the machine."""
        arrays = self._arrays(self._signature.bind(args, kwargs))
        count = threads.num_threads(self.manifest.threads)
        self._threading.apply(count)
        outputs = [make() for make in self._makers]
        with self._stepper(arrays, outputs) as stepper:
            return profile_module(stepper, lambda: self._execute(arrays), repeat, count)

    def __copy__(self) -> Self:
        """The module itself, which is immutable."""
        return self

    def __deepcopy__(self, memo: Mapping[int, Any]) -> Self:
        return self

    def __reduce__(self) -> Any:
        raise ArtifactError(
            "a loaded module cannot be pickled", got=self.manifest.signature(),
            help="pass the path of its artifact, and call weft.load there",
        )

    def __repr__(self) -> str:
        target = self.manifest.target
        return (f"<{type(self).__name__} {self.manifest.signature()}, "
                f"{len(self.manifest.steps)} kernel calls, for {target.cpu}>")

    def _execute(self, values: Sequence[Any], outputs: Sequence[np.ndarray] | None = None
                 ) -> list[np.ndarray]:
        """The results, in ``outputs`` if given; ``values`` are then arrays that fit."""
        if not self._state:
            results = self._run(values, outputs)
        else:
            with self._state.lock:
                results = self._run(values, outputs)
        return results if self._counted is None else self._counted.cut(results)

    def _controlled(self, values: Sequence[Any], control: RunControl) -> list[np.ndarray]:
        """The results of a run with limits."""
        arrays = self._arrays(values)
        self._apply_threads()
        with control.holding(self._state):
            results = self._run_controlled(arrays, control)
        return results if self._counted is None else self._counted.cut(results)

    def _run_controlled(self, inputs: list[np.ndarray], control: RunControl) -> list[np.ndarray]:
        outputs = self._made_outputs()
        with self._stepper(inputs, outputs) as stepper:
            times = stepper.run(is_timed=control.times is not None, check=control.check)
        if control.times is not None:
            control.times += times
        return outputs

    def _run(self, values: Sequence[Any], outputs: Sequence[np.ndarray] | None
             ) -> list[np.ndarray]:
        self._threading.apply(threads.num_threads(self.manifest.threads))
        if self._watched:
            return self._run_stepwise(self._arrays(values), outputs)
        if outputs is not None:
            return self._run_main(values, outputs)
        results = self._quick(*values)
        if type(results) is list:  # the usual case; the general path follows
            return results
        arrays = self._arrays(values)
        return self._run_main(arrays) if self._call is None else self._call.run(arrays)

    def _arrays(self, values: Sequence[Any], *, is_bound: bool = False) -> list[np.ndarray]:
        log = None if is_bound else self._fallbacks  # bound calls refuse copies
        return [to_numpy(value, spec, log)
                for value, spec in zip(values, self._sizes.inputs, strict=True)]

    def _run_main(self, inputs: Sequence[np.ndarray], given: Sequence[np.ndarray] | None = None
                  ) -> list[np.ndarray]:
        """Call ``weft_main`` through ctypes: into given memory, or without ``PythonCall``."""
        outputs = self._made_outputs() if given is None else list(given)
        frame = self._frames.take()
        frame.acquire()
        try:
            frame.point_at(inputs, outputs)
            status = self._main(frame.inputs_address, frame.outputs_address,
                                self._constants_address, frame.arena)
        finally:
            frame.release()
            self._frames.give_back(frame)
        _check_status(status)
        return outputs

    def _frame_pool(self) -> Pool[Frame]:
        # Not a bound method, which would keep the module alive until cycles are collected.
        return Pool(functools.partial(Frame, self.manifest, self.library, self._arenas,
                                      self._sizes, self._extras()))

    def _extras(self) -> list[int]:
        """The pointers behind those to the inputs: the states, and the values of the symbols."""
        states = [address_of(array) for array in self._state.values()]
        return [*states, self._sizes.address] if self.manifest.symbols else states

    def _made_outputs(self) -> list[np.ndarray]:
        return [make() for make in self._makers]

    def _run_stepwise(self, inputs: list[np.ndarray], given: Sequence[np.ndarray] | None
                      ) -> list[np.ndarray]:
        """Run and time the kernels one by one, for ``WEFT_DEBUG=2`` or ``WEFT_TRACE``."""
        outputs = self._made_outputs() if given is None else list(given)
        with self._stepper(inputs, outputs) as stepper:
            report_kernels(stepper.run())
        return outputs

    def _stepper(self, inputs: list[np.ndarray], outputs: list[np.ndarray]) -> Stepper:
        return Stepper(self.manifest, self._steps, self._functions_of, self._constants_address,
                       self._frames, inputs, outputs, self.library)

    @functools.cached_property
    def _steps(self) -> tuple[KernelCall, ...]:
        """The kernel calls at the sizes of this module."""
        return steps_at(self.manifest, self._sizes)

    def _functions_of(self, steps: Sequence[KernelCall]) -> list[Kernel]:
        """The kernel of every step."""
        return [self._kernel(step.symbol, len(step.args), step.device, step.stream)
                for step in steps]

    @functools.cached_property
    def _kernel(self) -> Callable[[str, int, Device, int], Kernel]:
        return functools.cache(self.library.kernel)

    def _check_fixed_outputs(self) -> None:
        """Raise ``InvalidInputError`` if data determines sizes of outputs."""
        if self.manifest.counts:
            names = ", ".join(count.name for count in self.manifest.counts)
            raise InvalidInputError(
                f"a module cannot be bound where data determines sizes ({names})",
                got=self.manifest.signature(), help="call it")

    def _apply_threads(self) -> None:
        self._threading.apply(threads.num_threads(self.manifest.threads))


def _entries(out: Any) -> tuple[Any, ...]:
    """The arrays of a sequence ``out``, one for each output; none of anything else."""
    return tuple(out) if isinstance(out, (tuple, list)) else ()


def _check_status(status: int) -> None:
    if status != 0:
        raise InternalError("the compiled program failed", got=f"status {status}")


def _with_out(value: Any, kwargs: dict[str, Any]) -> dict[str, Any]:
    """The keywords of a call of a module with an input called ``out``."""
    return kwargs if value is None else {**kwargs, "out": value}
