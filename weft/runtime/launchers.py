"""Launchers, which run a loaded program; the manifest states the name of its launcher.

A ``Launcher`` is the code of a program, loaded once; ``Launcher.at`` gives a ``Launch``, the
program at the sizes of one set of input shapes, which takes arrays and gives arrays. A back end
brings its own: it registers the class by ``register_launcher`` and names it in
``Backend.launched_by``, which the compiler writes to the manifest (``Manifest.launched_by``).
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, TypeAlias

import numpy as np

from weft.runtime.arena import AlignedBlock, Region, address_of, aligned_bytes
from weft.runtime.buffers import (
    BoundCall,
    check_apart,
    check_in_place,
    copy_into,
    given_outputs,
    output_buffer,
)
from weft.runtime.call_sizes import CallSizes
from weft.runtime.devices.cpu import threads
from weft.runtime.devices.cpu.host import host_features, machine, system
from weft.runtime.library import HostLibrary, Library, NativeLibrary
from weft.runtime.manifest import MAIN_SYMBOL, Manifest, TargetSpec, TensorSpec
from weft.runtime.ndarray import to_numpy
from weft.runtime.outputs import Blocks, CountedOutputs, no_blocks, output_maker
from weft.runtime.profile import Profile, StepTime, checked_repeat, report_kernels
from weft.runtime.run_control import RunControl
from weft.runtime.state import State
from weft.support import trace
from weft.support.dataclass import dataclass
from weft.support.errors import ArtifactError, InternalError, InvalidInputError, TargetError
from weft.support.fallback import module_log
from weft.support.log import Level, enabled
from weft.support.registry import Registry

if TYPE_CHECKING:
    from weft.runtime.vm.kernels import Specialize

# Makes the context of a call.
Around: TypeAlias = "Callable[[], AbstractContextManager[None]]"
_NO_LOCK: contextlib.nullcontext[None] = contextlib.nullcontext()

# The class of each launcher, as "module:class": the runtime of a device is imported with the first
# program for it. Artifacts state these names.
LAUNCHERS: Registry[str] = Registry("launcher")


def register_launcher(name: str, where: str) -> None:
    """Run the programs that name the launcher ``name`` by the class ``where``, "module:class"."""
    LAUNCHERS.register(name, where)


register_launcher(MAIN_SYMBOL, "weft.runtime.devices.cpu.main_function:MainFunction")
register_launcher("steps", "weft.runtime.devices.cpu.steps:Steps")
register_launcher("vm", "weft.runtime.vm.launcher:VirtualMachine")
register_launcher("device", "weft.runtime.devices.cuda.launcher:CudaLauncher")
register_launcher("lanes", "weft.runtime.devices.sim.launcher:SimLauncher")


@dataclass(frozen=True, slots=True)
class Code:
    """The code of a program, from a compilation or an artifact.

    ``load`` gives the loaded code each time that it is called. ``constants`` are the bytes that the
    manifest's offsets of constants point into; memory aligned to 64 bytes is used directly, other
    memory is copied. ``around`` makes a context for each call, which raises the errors of Python
    functions that the code calls. ``specialize`` compiles kernels of the virtual machine for sizes
    met for the first time; without it they are refused. ``start`` is how the program started, for
    ``Executable.explain``. The threads of an ``owner`` work for it alone.
    """

    manifest: Manifest
    load: Callable[[], Library]
    constants: bytes | memoryview | np.ndarray | AlignedBlock
    around: Around | None = None
    specialize: Specialize | None = None
    start: str = "from compiled code, as an artifact holds it"
    owner: Hashable = None


class Launch(ABC):
    """A program at the sizes of one set of input shapes.

    ``values`` are the arguments of a call, one for each input; ``out`` is what a user passes as
    ``out=``. A back end for arrays of the host defines ``launch`` alone. Several Python threads may
    call it at once.
    """

    def __init__(self, launcher: Launcher, sizes: CallSizes) -> None:
        self.launcher = launcher
        self.manifest = launcher.manifest
        self.sizes = sizes
        self.returns_tuple = launcher.returns_tuple
        self._makers: list[Callable[[], Any]] | None = None
        self.counted = (CountedOutputs(self.manifest, sizes.symbols) if self.manifest.counts
                        else None)

    @abstractmethod
    def launch(self, inputs: list[Any], outputs: list[Any], times: list[StepTime] | None = None,
               control: RunControl | None = None) -> None:
        """Run on arrays of exactly the declared shapes and dtypes.

        ``times`` gets the time of each kernel call; ``control`` limits the run.
        """

    def on(self, launcher: Launcher) -> Launch:
        """The program at these sizes, run by another launcher of the same program."""
        return launcher.at(self.sizes)

    @property
    def makers(self) -> list[Callable[[], Any]]:
        """The allocator of each output, made at the first use: shapes may be symbolic."""
        if self._makers is None:
            self._makers = [*map(output_maker, self.sizes.outputs, self.launcher.output_blocks)]
        return self._makers

    def new_outputs(self, inputs: Sequence[Any]) -> list[Any]:  # noqa: ARG002 - for devices
        """Uninitialised arrays for the outputs of a call with these inputs."""
        return [make() for make in self.makers]

    def arrays(self, values: Sequence[Any], *, is_bound: bool = False) -> list[Any]:
        """The arguments as arrays; ``InvalidInputError`` for those that do not fit."""
        log = None if is_bound else self.launcher.fallbacks  # bound calls refuse copies
        return [to_numpy(value, spec, log)
                for value, spec in zip(values, self.sizes.inputs, strict=True)]

    def execute(self, values: Sequence[Any], outputs: Sequence[Any] | None = None) -> list[Any]:
        """The results, in ``outputs`` if given; ``values`` are then arrays that fit."""
        inputs = self.arrays(values)
        results = self.new_outputs(inputs) if outputs is None else list(outputs)
        times: list[StepTime] | None = [] if self.launcher.watched else None
        with self.locked():
            self.launch(inputs, results, times)
        if times is not None:
            report_kernels(sorted(times, key=lambda step: step.start))
        return results if self.counted is None else self.counted.cut(results)

    def execute_controlled(self, values: Sequence[Any], control: RunControl) -> list[Any]:
        """The results of a run with limits."""
        inputs = self.arrays(values)
        results = self.new_outputs(inputs)
        with control.holding(self.launcher.state):
            self.launch(inputs, results, control.times, control)
        return results if self.counted is None else self.counted.cut(results)

    def execute_into(self, values: Sequence[Any], out: Any) -> Any:
        """Write the results to the arrays of ``out``, and return them as the call does."""
        inputs = self.arrays(values)
        if self.counted is not None:
            returned = copy_into(self.manifest, out, inputs, self.execute(inputs))
            return returned if self.returns_tuple else returned[0]
        outputs, results = self.output_buffers(out, inputs)
        self.execute(inputs, outputs)
        return results

    def bind(self, values: Sequence[Any], out: Any) -> BoundCall:
        """A call on these buffers; ``InvalidInputError`` for inputs that would be copied."""
        self.check_fixed_outputs()
        inputs = self.arrays(values, is_bound=True)
        check_in_place(self.sizes.inputs, values, inputs)
        outputs, results = self.output_buffers(out, inputs)
        return BoundCall(self.bound(inputs, outputs), inputs, results)

    def bound(self, inputs: list[Any], outputs: list[Any]) -> Callable[[], object]:
        """A function that runs the program on these buffers, one call at a time."""
        return functools.partial(self.execute, inputs, outputs)

    def profile(self, values: Sequence[Any], repeat: int) -> Profile:
        """The timeline of the fastest of ``repeat`` runs, without a roofline."""
        checked_repeat(repeat)
        inputs = self.arrays(values)
        self.execute(inputs)  # page faults and cold caches
        runs = [self._timed_run(inputs) for _ in range(repeat)]
        seconds = []
        for _ in range(repeat):
            start = time.perf_counter()
            self.execute(inputs)
            seconds.append(time.perf_counter() - start)
        best = min(runs, key=lambda steps: max((s.start + s.seconds for s in steps), default=0.0))
        return Profile(tuple(best), min(seconds), math.nan,
                       threads.num_threads(self.manifest.threads))

    def _timed_run(self, inputs: list[Any]) -> list[StepTime]:
        """The calls of a run in the order of their starts, from 0 on."""
        times: list[StepTime] = []
        first = time.perf_counter()
        with self.locked():
            self.launch(inputs, self.new_outputs(inputs), times)
        made = [StepTime(one.call, one.start - first, one.seconds) for one in times]
        return sorted(made, key=lambda step: step.start)

    def locked(self) -> AbstractContextManager[object]:
        """The lock of the state, held during a call of a program that has one."""
        return self.launcher.state.lock if self.manifest.states else _NO_LOCK

    def output_buffers(self, out: Any, inputs: list[Any]) -> tuple[list[Any], Any]:
        """The buffers of the outputs, and the result of the call: entries of ``out`` if given."""
        specs = self.sizes.outputs
        given = [None] * len(specs) if out is None else given_outputs(self.manifest, out)
        outputs = [self.new_buffer(spec, inputs) if value is None
                   else self.given_buffer(value, spec)
                   for value, spec in zip(given, specs, strict=True)]
        check_apart(self.manifest, inputs, outputs)
        results = tuple(array if value is None else value
                        for value, array in zip(given, outputs, strict=True))
        return outputs, results if self.returns_tuple else results[0]

    def new_buffer(self, spec: TensorSpec, inputs: Sequence[Any]) -> Any:  # noqa: ARG002
        """An uninitialised array for an output that ``out`` does not give."""
        return np.empty(spec.concrete_shape, spec.numpy_dtype)

    def given_buffer(self, value: Any, spec: TensorSpec) -> Any:
        """An array of the caller as memory of an output; ``InvalidInputError`` if it is unfit."""
        return output_buffer(value, spec)

    def check_fixed_outputs(self) -> None:
        """Raise ``InvalidInputError`` if data determines sizes of outputs."""
        if self.manifest.counts:
            names = ", ".join(count.name for count in self.manifest.counts)
            raise InvalidInputError(
                f"a module cannot be bound where data determines sizes ({names})",
                got=self.manifest.signature(), help="call it")


class Launcher(ABC):
    """The code of a program, ready to run at all of its sizes.

    The class attributes say what the compiler, the command line and reports must know of the
    programs of a launcher without loading one.
    """

    # Whether this machine can run the program.
    runs_here: ClassVar[bool] = True
    # Whether arguments may be arrays in the memory of a device.
    takes_device_arrays: ClassVar[bool] = False
    # Whether the runtime copies between the host and the device; the compiler plans the copies.
    copies_between_memories: ClassVar[bool] = False
    # Whether several devices run at the same time, each with its own part of the steps.
    runs_devices_at_once: ClassVar[bool] = False
    # Whether the objects of the disk cache are all that it needs (``weft.compiler.warm_start``).
    starts_from_objects: ClassVar[bool] = False

    def __init__(self, code: Code, library: Library) -> None:
        manifest = code.manifest
        self.source = code
        self.manifest = manifest
        self.library = library
        self.constants = aligned_bytes(code.constants)
        if self.constants.nbytes < manifest.constants_bytes:
            raise InternalError("the block of constants is too short", got=self.constants.nbytes,
                                expected=f"{manifest.constants_bytes} bytes")
        self.fallbacks = module_log(manifest.fallbacks)
        self.threading = threads.threading_of(library, code.owner)
        self.returns_tuple = manifest.output_is_tuple or len(manifest.outputs) != 1
        # Read once: reading these settings takes longer than a small call.
        self.watched = enabled(Level.KERNELS) or trace.recorder() is not None

    @classmethod
    def load(cls, code: Code) -> Library:
        """The loaded code, of which ``__init__`` makes a launcher."""
        return code.load()

    @abstractmethod
    def at(self, sizes: CallSizes) -> Launch:
        """The program at these sizes; takes some ten microseconds."""

    @functools.cached_property
    def state(self) -> State:
        """The tensors that the program keeps from call to call, by the name of their input."""
        state = State(self.manifest.states)
        state.start(self.manifest.initial, self.constants)
        return state

    @functools.cached_property
    def output_blocks(self) -> list[Blocks | None]:
        """The memory of earlier results, by output."""
        manifest = self.manifest
        if manifest.counts:  # blocks as large as the bounds of counted sizes are not worth keeping
            return [None] * (len(manifest.outputs) + 1)
        return [no_blocks() for _ in manifest.outputs]

    def share_state(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Keep states in memory of the caller; every ``Launch`` must be made again."""
        self.state.share(arrays)

    def take_over(self, other: Launcher) -> None:
        """Continue with the state and the log of another launcher of the same program."""
        self.fallbacks = other.fallbacks
        self.__dict__["state"] = other.state

    def reopened(self, count: int, owner: Hashable) -> Launcher:
        """The program with code, arenas and ``count`` threads of its own, for ``owner``.

        Weights and state are those of this launcher. Raises ``TargetError`` for programs of other
        devices than the CPU.
        """
        if not isinstance(self.library, NativeLibrary) or self.runs_devices_at_once:
            raise TargetError("streams run programs for the CPU of this process alone",
                              got=self.manifest.target.cpu, help="call the module")
        code = replace(self.source, manifest=replace(self.manifest, threads=count),
                       constants=self.constants, owner=owner)
        made = type(self)(code, self.load(code))
        made.take_over(self)
        return made

    def apply_threads(self) -> None:
        """Tell the code the number of threads that its next call uses."""
        self.threading.apply(threads.num_threads(self.manifest.threads))

    @property
    def arena_nbytes(self) -> int:
        """The memory for temporaries that calls so far needed, in bytes."""
        return 0

    def memory(self) -> dict[str, list[Region]]:
        """The memory of the host that is kept between calls, by purpose."""
        results = [memory for blocks in self.output_blocks if blocks for memory, _ in tuple(blocks)]
        arrays = {"weights": [self.constants], "states": [*self.state.values()],
                  "results to reuse": results}
        regions = {name: [(address_of(array), array.nbytes) for array in found]
                   for name, found in arrays.items()}
        code = self.library.regions() if isinstance(self.library, HostLibrary) else []
        return {**regions, "code": code}

    def summary(self) -> str:
        """The parts of the program, for ``repr``."""
        return f"{len(self.manifest.steps)} kernel calls"


def launcher_name(manifest: Manifest) -> str:
    """The name of what runs a program; bytecode runs on the virtual machine."""
    return manifest.launched_by if manifest.vm is None else "vm"


def launcher_class(name: str) -> type[Launcher]:
    """The class of a launcher; ``ArtifactError`` if none is registered by this name."""
    where = LAUNCHERS.find(name)
    if where is None:
        raise ArtifactError(f"no launcher is registered under the name {name!r}",
                            expected=", ".join(LAUNCHERS), got=name,
                            help="import the package that defines the target")
    module, _, attribute = where.partition(":")
    return getattr(importlib.import_module(module), attribute)


def launcher_of(manifest: Manifest) -> type[Launcher]:
    """The class that runs a program, for what its attributes say without loading the program."""
    return launcher_class(launcher_name(manifest))


def open_launcher(code: Code, *, stands_in: bool = False) -> Launcher:
    """Load a program; raises ``ArtifactError`` for code that cannot be loaded.

    With ``stands_in``, ``Foreign`` stands in for the launcher of code for another machine.
    """
    try:
        check_machine(code.manifest.target)
    except ArtifactError as reason:
        if not stands_in:
            raise
        return Foreign(code, reason)
    made = launcher_of(code.manifest)
    return made(code, made.load(code))


def check_machine(target: TargetSpec) -> None:
    """Raise ``ArtifactError`` if this machine cannot run the code."""
    if system() != "linux":
        raise ArtifactError("weft runs compiled code on Linux only", expected="linux", got=system(),
                            help="use a Linux machine, virtual machine or container (on Windows, "
                            "WSL); compiling for one and exporting works here")
    if target.arch != machine() or "linux" not in target.triple:
        raise ArtifactError("the artifact was made for another machine", expected=target.triple,
                            got=f"{machine()} (this machine)",
                            help=f'compile the model for "{machine()}" and export it again')
    missing = sorted(set(target.features) - host_features())
    if missing:
        raise ArtifactError(
            "this CPU lacks instructions that the artifact uses",
            expected=f"{target.cpu} with {', '.join(missing)}", got="a CPU without them",
            help='compile for an older CPU, such as target="llvm -mcpu=haswell"',
        )


class Foreign(Launcher):
    """Stands for the launcher of a program for another machine, whose code cannot be loaded here.

    Calls raise ``TargetError``: running the code would kill the process.
    """

    runs_here: ClassVar[bool] = False

    def __init__(self, code: Code, reason: ArtifactError) -> None:
        self.manifest = code.manifest
        self.fallbacks = module_log(code.manifest.fallbacks)
        self.returns_tuple = True
        self.state = State(())
        self._reason = reason

    def at(self, sizes: CallSizes) -> NoReturn:  # noqa: ARG002
        """Raises ``TargetError``."""
        raise TargetError("the model was compiled for another machine",
                          expected=self._reason.expected, got=self._reason.got,
                          notes=[self._reason.what], help="export it and run the artifact there")


class SurroundedLaunch(Launch):
    """``inner``, whose calls run in a context each (``Code.around``)."""

    def __init__(self, inner: Launch, around: Around) -> None:
        super().__init__(inner.launcher, inner.sizes)
        self._inner = inner
        self._around = around

    def launch(self, inputs: list[Any], outputs: list[Any], times: list[StepTime] | None = None,
               control: RunControl | None = None) -> None:
        """See ``Launch.launch``."""
        with self._around():
            self._inner.launch(inputs, outputs, times, control)

    def on(self, launcher: Launcher) -> Launch:
        """See ``Launch.on``."""
        return SurroundedLaunch(self._inner.on(launcher), self._around)

    def execute(self, values: Sequence[Any], outputs: Sequence[Any] | None = None) -> list[Any]:
        """See ``Launch.execute``."""
        with self._around():
            return self._inner.execute(values, outputs)

    def execute_controlled(self, values: Sequence[Any], control: RunControl) -> list[Any]:
        """See ``Launch.execute_controlled``."""
        with self._around():
            return self._inner.execute_controlled(values, control)

    def execute_into(self, values: Sequence[Any], out: Any) -> Any:
        """See ``Launch.execute_into``."""
        with self._around():
            return self._inner.execute_into(values, out)

    def bind(self, values: Sequence[Any], out: Any) -> BoundCall:
        """See ``Launch.bind``."""
        call = self._inner.bind(values, out)

        def run() -> None:
            with self._around():
                call()

        return BoundCall(run, call.inputs, call.outputs)

    def profile(self, values: Sequence[Any], repeat: int) -> Profile:
        """See ``Launch.profile``; an exception ends the measurement."""
        with self._around():
            return self._inner.profile(values, repeat)
