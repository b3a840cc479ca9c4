"""``Executable``: what ``weft.compile`` and ``weft.load`` return."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from weft.runtime.arena import Region
from weft.runtime.buffers import BoundCall
from weft.runtime.call_sizes import SizeOutOfRangeError, fixed_sizes
from weft.runtime.frequent_sizes import FrequentSizes
from weft.runtime.launchers import (
    Code,
    Launch,
    Launcher,
    SurroundedLaunch,
    open_launcher,
)
from weft.runtime.library import Library
from weft.runtime.manifest import Manifest, TensorSpec
from weft.runtime.memory_use import MemoryUse
from weft.runtime.ndarray import to_numpy, with_sizes
from weft.runtime.profile import Exchange, Profile
from weft.runtime.programs_by_size import KeptPrograms, LaunchesBySize, Shapes, shape_of
from weft.runtime.recompiler import Recompiler
from weft.runtime.run_control import RunControl
from weft.runtime.signature import NamedCall, Signature, concrete_shapes
from weft.runtime.state import State
from weft.runtime.weights import WithWeights
from weft.support.config import config
from weft.support.dataclass import replace
from weft.support.deprecation import renamed_arguments, renamed_method
from weft.support.errors import ArtifactError, InvalidInputError
from weft.support.fallback import Fallback, FallbackLog, module_log, recording, report
from weft.support.fork_locks import renew_in_child
from weft.support.markup import text_html

if TYPE_CHECKING:
    from concurrent.futures import Future

    from weft.runtime.improvement import Improvement
    from weft.runtime.streams import CpuSets, Streams


class Executable(WithWeights):
    """A compiled model: call it, profile it, export it, look at any stage of its compilation.

    It consists of code, a launcher that runs it, the launches for the sizes met so far, and a
    recompiler. ``launcher`` is ``None`` for a model that has no program for all sizes: it compiles
    one at the first call with each set of input shapes, keeps the ``WEFT_DYNAMIC_PROGRAMS`` used
    last, and ``reason`` says why. A model that was compiled for another machine can be exported and
    printed, and raises ``TargetError`` when it is called. An executable from ``weft.load`` has no
    ``recompiler``: it runs without a compiler.

    Several Python threads may call it at once: each call works in its own arena, and Python's lock
    is released while compiled code runs. Arguments are arrays of exactly the declared shapes and
    dtypes (see ``weft.runtime.ndarray.to_numpy``), results are new arrays. A result that is neither
    a tensor nor a tuple of tensors (a list, say) is given as ``weft.runtime.vm.value.Data``.
    """

    def __init__(self, manifest: Manifest, launcher: Launcher | None,
                 recompiler: Recompiler | None = None, *, around: Any = None, start: str = "",
                 reason: str | None = None, launches: LaunchesBySize | None = None) -> None:
        self.manifest = manifest
        self.launcher = launcher
        self.recompiler = recompiler
        self.reason = reason
        self._around = around
        self._start = start
        self.fallbacks: FallbackLog = (module_log(manifest.fallbacks) if launcher is None
                                       else launcher.fallbacks)
        self._signature = Signature(manifest)
        self._programs: KeptPrograms[Shapes, Executable] = KeptPrograms()
        self._launches: LaunchesBySize | None = None
        if launcher is not None and manifest.symbols:
            after = config.specialize_after if recompiler is not None else 0
            self._launches = launches or LaunchesBySize(
                launcher, FrequentSizes(self, after) if after else None)
        self._general: Executable | None = None
        self._profile: Profile | None = None
        self.exchanges: tuple[Exchange, ...] = ()  # of a module that runs all devices of a mesh
        self._improvement: Improvement | None = None
        self._change = threading.Lock()  # of the launcher
        renew_in_child(self, "_change")
        self._streams: Streams | None = None  # of ``submit``
        self._fixed: Launch | None = None
        self._bind_fixed()

    def _bind_fixed(self) -> None:
        """Prepare the calls of a program of fixed sizes."""
        launcher = self.launcher
        if launcher is not None and self._launches is None and launcher.runs_here:
            launch = launcher.at(fixed_sizes(self.manifest))
            self._fixed = launch if self._around is None else SurroundedLaunch(
                launch, self._around)

    @property
    def inputs(self) -> tuple[TensorSpec, ...]:
        """Name, dtype and shape of every input; dynamic dimensions are names."""
        return self.manifest.inputs

    @property
    def outputs(self) -> tuple[TensorSpec, ...]:
        """Name, dtype and shape of every output; sizes that data determines are names."""
        return self.manifest.outputs

    @property
    def options(self) -> Any:
        """The ``CompileOptions`` that the model was compiled with."""
        return self._compilation("the options of its compilation").options

    @property
    def library(self) -> Library:
        """The loaded code; ``ArtifactError`` if there is none on this machine."""
        if self.launcher is None or not self.launcher.runs_here:
            raise ArtifactError("the model has no loaded code", got=self.manifest.signature())
        return self.launcher.library

    @property
    def state(self) -> State:
        """The tensors that the module keeps from call to call, by the name of their input."""
        return State(()) if self.launcher is None else self.launcher.state

    @property
    def threads(self) -> int | None:
        """The number of threads of this module's calls; ``None``: that of the process.

        ``with weft.config(threads=n)`` around a call overrides it.
        """
        return self.manifest.threads

    @property
    def arena_nbytes(self) -> int:
        """The memory for temporaries that calls so far needed, in bytes."""
        return 0 if self.launcher is None else self.launcher.arena_nbytes

    def memory(self) -> MemoryUse:
        """The memory that the module keeps between calls: ``print(mod.memory())`` shows a table.

        Weights, states, the memory of results that were freed, code, and arenas for intermediate
        results; those of programs that calls have compiled for their sizes are included.
        """
        return MemoryUse.of(self._regions())

    def _regions(self) -> dict[str, list[Region]]:
        found = {} if self.launcher is None or not self.runs_here else self.launcher.memory()
        for program in self._programs.programs:
            for name, regions in program._regions().items():  # noqa: SLF001 - of the same class
                found.setdefault(name, []).extend(regions)
        return found

    @property
    def sizes(self) -> tuple[Shapes, ...]:
        """The input shapes of the programs compiled in calls, most recently used last."""
        return self._programs.keys

    @property
    def general(self) -> Executable | None:
        """The program for all sizes, which compiles none for others; ``None`` without one."""
        if self.launcher is None or self.recompiler is None or self._launches is None:
            return None if self.launcher is None else self
        if self._general is None:
            self._general = Executable(self.manifest, self.launcher, start=self._start,
                                       launches=self._launches)
        return self._general

    @property
    def is_dynamic(self) -> bool:
        """Whether input shapes vary: the program has symbolic sizes, or is compiled per shapes."""
        return self.launcher is None or bool(self.manifest.symbols)

    @property
    def runs_here(self) -> bool:
        """Whether this machine can run the program."""
        return self.launcher is None or self.launcher.runs_here

    def share_state(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Keep states in memory of the caller, which several modules may share (``State.share``).

        No call may run at the same time.
        """
        if self.launcher is None:
            self.state.share(arrays)
            return
        with self._change:
            self.launcher.share_state(arrays)
            self._bind_fixed()
            if self._launches is not None:
                self._launches.clear()

    def improve(self, improvement: Improvement) -> None:
        """Start to make faster code, which ``continue_with`` puts in place."""
        self._improvement = improvement
        improvement.start(self)

    def continue_with(self, launcher: Launcher) -> None:
        """Run later calls by ``launcher``, which runs the same program faster.

        Calls that have begun, and ``BoundCall``, end as they began. The state stays in its memory.
        """
        with self._change:
            if self.launcher is not None:
                launcher.take_over(self.launcher)
            self.manifest = launcher.manifest
            self.launcher = launcher
            if self._launches is not None:
                self._launches = LaunchesBySize(launcher, self._launches.frequent)
            self._general = None
            self._bind_fixed()

    def wait_until_optimized(self, timeout: float | None = None) -> bool:
        """Wait until ``tier="fast"`` has put the optimised code in place; whether it has.

        Waits for the kernels of sizes that calls have often as well. ``timeout`` is in seconds.
        Other executables are optimised from the start.
        """
        frequent = self._frequent
        awaited = [self._improvement, None if frequent is None else frequent.improvement]
        return all(one.wait(timeout) for one in awaited if one is not None)

    @property
    def _frequent(self) -> FrequentSizes | None:
        return None if self._launches is None else self._launches.frequent

    @property
    def tier(self) -> str:
        """``"fast"`` until the optimised code is in place, ``"full"`` from then on."""
        return "full" if self._improvement is None or self._improvement.wait(0) else "fast"

    def explain(self) -> str:
        """How the model runs, and what weft does instead of what was asked for, as text.

        Says whether the model came from the disk cache and if not, why. Lists the kernels, each
        with its predicted time and what takes it, the time that the last ``profile`` measured and
        the limit of the machine; copies and specialisations; and the changes of plan of the
        compilation and of calls so far, with cause, cost and cure.
        """
        table = self._programs
        made = (f"compiled for sets of input shapes: {table.made}, of which {len(table.keys)} are "
                f"kept (at most {table.limit}, WEFT_DYNAMIC_PROGRAMS)")
        more = [] if self._improvement is None else [f"tier: {self._improvement.text}"]
        more += [made] if table.made else []
        more += [self._frequent.text] if self._frequent is not None and self._frequent.text else []
        from weft.runtime.explanation import explanation, kernel_lines

        return explanation(self.manifest.signature(), self._start, self.fallbacks,
                           [*more, *kernel_lines(self.manifest, self._profile)])

    def __call__(self, /, *args: Any, out: Any = None, **kwargs: Any) -> Any:
        """Run on inputs given by position or by name; one output alone, several as a tuple.

        ``out`` is the array that the result is written to (a tuple for several outputs, a mapping
        by name for some of them), and is returned. It is C-contiguous, has the dtype and shape of
        the output, and shares no memory with inputs. If the module has an input called ``out``,
        the keyword is that input. Raises ``InvalidInputError`` for arguments that do not fit.
        """
        if out is not None:
            if not self._signature.takes("out"):
                values = self._signature.bind(args, kwargs)
                return (self._fixed or self.launch_for(values)).execute_into(values, out)
            kwargs["out"] = out
        values = self._signature.bind(args, kwargs)
        launch = self._fixed or self.launch_for(values)
        results = launch.execute(values)
        return tuple(results) if launch.returns_tuple else results[0]

    def bind(self, /, *args: Any, out: Any = None, **kwargs: Any) -> BoundCall:
        """A call without arguments on these buffers: ``run = mod.bind(x, out=y); run()``.

        Each call reads the current contents of the inputs, without a copy; outputs that ``out``
        does not give are allocated once. Raises ``InvalidInputError`` for arguments that do not
        fit, and for inputs that would have to be copied.
        """
        if out is not None and self._signature.takes("out"):
            kwargs["out"], out = out, None
        values = self._signature.bind(args, kwargs)
        return self.launch_for(values).bind(values, out)

    def streams(self, count: int | None = None, *, threads: int | None = None,
                cpus: CpuSets | None = None, max_queue: int | None = None) -> Streams:
        """Streams that run calls at the same time, over one copy of the weights (``Streams``).

        ``count`` is the number of streams, ``threads`` that of each; by default they share the
        threads of the module. ``cpus`` are the numbers of the CPUs that all may use, or a set for
        each. At most ``max_queue`` calls wait (by default two for each stream). Raises
        ``OptionError`` for values that do not fit, and for several streams of a module with state.
        """
        from weft.runtime.streams import Streams  # most modules are called

        return Streams(self, count, threads=threads, cpus=cpus, max_queue=max_queue)

    def submit(self, /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Call the module in another thread: the arguments of a call, and a future of its result.

        Submitted calls run one by one, in order; ``streams`` runs several at the same time.
        """
        with self._change:
            if self._streams is None:
                self._streams = self.streams(1)
        return self._streams.submit(*args, **kwargs)

    def run(self, output_names: Sequence[str] | None, feeds: Mapping[str, Any],
            control: RunControl | None = None) -> list[np.ndarray]:
        """ONNX Runtime's signature: the named outputs (``None`` for all) for inputs by name.

        Names may be those of any tensor of a compiled model: the program for each set of names is
        compiled at the first call with it, and reads the weights of this one where both have the
        same; feeds that it does not need are ignored.

        With ``control``, the run has a time limit, can be cancelled, or is traced
        (``weft.RunControl``). Raises ``RunTimeoutError`` and ``RunCancelledError``; the state of
        the module is then as before.
        """
        if self.recompiler is not None and not self._signature.is_whole(output_names, feeds):
            part = self.recompiler.part(self, output_names, feeds)
            names = {spec.name for spec in part.inputs}
            return part.run(None, {n: value for n, value in feeds.items() if n in names}, control)
        if type(feeds) is not dict and not isinstance(feeds, Mapping):
            raise InvalidInputError("feeds are not a mapping", got=type(feeds).__name__,
                                    expected=f"arrays by name: {self.manifest.signature()}")
        wanted = None if output_names is None else self._signature.output_numbers(output_names)
        values = self._signature.bind((), feeds)
        launch = self._fixed or self.launch_for(values)
        results = (launch.execute(values) if control is None
                   else launch.execute_controlled(values, control))
        return results if wanted is None else [results[number] for number in wanted]

    def callable(self, outputs: Sequence[str] | None = None,
                 inputs: Sequence[str] | None = None) -> NamedCall:
        """A function of the tensors ``inputs``, by position, that gives the list of ``outputs``.

        Names are those of ``run``; ``None`` are those of the model. What they need is compiled now,
        so that calls do nothing but run it (TensorFlow's ``make_callable``).
        """
        names = tuple(spec.name for spec in self.inputs) if inputs is None else tuple(inputs)
        if self.recompiler is None or self._signature.is_whole(outputs, dict.fromkeys(names)):
            return NamedCall(self, outputs, names)
        return NamedCall(self.recompiler.part(self, outputs, names), None, names)

    def profile(self, /, *args: Any, repeat: int = 20, **kwargs: Any) -> Profile:
        """Time every kernel over ``repeat`` runs on these inputs."""
        values = self._signature.bind(args, kwargs)
        measured = self.launch_for(values).profile(values, repeat)
        self._profile = replace(measured, exchanges=self.exchanges)
        return self._profile

    def launch_for(self, values: Sequence[Any]) -> Launch:
        """The program for the shapes of these arguments, compiled if there is none.

        Raises ``InvalidInputError`` for shapes that do not fit the signature, and ``TargetError``
        on a machine that cannot run the code.
        """
        if self._fixed is not None:
            return self._fixed
        if self._launches is None:
            if self.launcher is not None:
                return self.launcher.at(fixed_sizes(self.manifest))  # raises ``TargetError``
            return self._recompiled(tuple([shape_of(value) for value in values]), values, None)
        shapes = tuple([shape_of(value) for value in values])
        try:
            return self._launches.at(shapes, values)
        except SizeOutOfRangeError:
            if self.recompiler is None or self.state:
                raise
            change = self.recompiler.beyond(self, shapes)
            if change is None:
                raise
        return self._recompiled(shapes, values, change)

    def _recompiled(self, shapes: Shapes, values: Sequence[Any], change: Fallback | None) -> Launch:
        found = self._programs.find(shapes)
        if found is None:
            sizes: dict[str, int] = {}
            for value, spec in zip(values, self.inputs, strict=True):
                to_numpy(value, with_sizes(spec, value, sizes))  # raises before any compilation
            if change is not None:
                report(change, self.fallbacks)
            found = self._program(shapes)
        return found.launch_for(values)

    def _program(self, shapes: Shapes) -> Executable:
        recompiler = self._compilation("programs for other shapes")

        def compile_program() -> Executable:
            with recording(self.fallbacks):
                return recompiler.specialize(self, shapes)

        return self._programs.get(shapes, compile_program)

    def specialize(self, inputs: Mapping[str, Sequence[int]]) -> Executable:
        """The program for these input shapes: to export it, print it, or compile it ahead of time.

        An input with a fixed shape may be left out. Raises ``InvalidInputError`` for unknown
        inputs, for shapes of another rank, and for sizes that contradict the model.
        """
        shapes = concrete_shapes(self.manifest, inputs)
        return self._program(shapes) if self.is_dynamic else self

    at = renamed_method("at", "specialize")

    def as_text(self, stage: str = "optimized") -> str:
        """A stage as text: import, canonical, optimized, lowered, vm, te, scheduled, tir, llvm
        or asm; or placement, where each call runs, and when by estimates.

        The compilation runs again up to that stage. Raises ``OptionError`` for an unknown stage.
        """
        return self._compilation("the stages of its compilation").as_text(stage)

    @renamed_arguments(phase="stage")
    def as_dot(self, stage: str = "optimized") -> str:
        """The graph at the end of import, canonical, optimized or lowered, for Graphviz.

        Raises ``OptionError`` for another stage.
        """
        return self._compilation("the stages of its compilation").as_dot(stage)

    @renamed_arguments(phase="stage")
    def as_svg(self, stage: str = "lowered") -> str | None:
        """The graph of ``main`` as SVG; ``None`` if it is too large to draw."""
        return self._compilation("the stages of its compilation").as_svg(stage)

    drawing = renamed_method("drawing", "as_svg")

    @renamed_arguments(kind="format")
    def export(self, path: str | os.PathLike[str], *, format: str = "weft",
               levels: Sequence[str] | None = None, portable: bool = True, check: bool = True,
               sign: object = None) -> None:
        """Write the model as an artifact that runs without a compiler.

        ``format="weft"`` writes one file for ``weft.load`` (docs/artifacts.md). ``levels`` are the
        CPUs that it has native code for, of which the loader picks one: ``["v2", "v3", "v4"]``,
        names that ``-mcpu`` takes, or texts of targets; by default the CPU that the model was
        compiled for. With ``portable`` it also holds the typed program and its weights, from which
        a machine with a compiler makes native code where none fits. With ``check`` a child process
        runs the file and compares with this module before the file gets its name. A model that is
        compiled for each set of input shapes is exported with the shapes that it was called with.
        ``sign`` is the path of a private key (``weft keys``), or a key object of ``cryptography``;
        ``weft.load`` with ``trusted_keys`` takes no files without the signature of one of them.

        ``format="c"`` makes the folder ``path`` with an object, a header, a ``main.c`` and a
        ``CMakeLists.txt``, for programs without Python; the name of the folder is the prefix of the
        functions. Symbolic sizes are parameters of the functions, and state is an array that the
        caller keeps. ``format="lib"`` writes a static and a shared library for the object.

        Raises ``LinkerError`` if no linker is found, ``OptionError`` for another format or level,
        and ``ArtifactError`` for a model without a program, and for a file that fails the check.
        """
        self._compilation("the objects that an export links").export(
            self, path, format, levels=levels, portable=portable, check=check, sign=sign)

    def _compilation(self, what: str) -> Recompiler:
        if self.recompiler is None:
            raise ArtifactError(f"an artifact does not contain {what}",
                                got=self.manifest.signature(),
                                help="use the executable that weft.compile returns")
        return self.recompiler

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle code and weights, without the model: the copy cannot show its stages.

        Raises ``ArtifactError`` for a loaded artifact, and for a model without a program for all
        sizes.
        """
        if self.recompiler is None:
            raise ArtifactError(
                "a loaded module cannot be pickled", got=self.manifest.signature(),
                help="pass the path of its artifact, and call weft.load there")
        return self.recompiler.pickled()

    def __copy__(self) -> Executable:
        """The executable itself, which is immutable."""
        return self

    def __deepcopy__(self, memo: Mapping[int, Any]) -> Executable:
        return self

    def _repr_html_(self) -> str:
        return text_html(self.explain())

    def __repr__(self) -> str:
        if self.launcher is None:
            what = f"programs for {len(self.sizes)} sizes"
        else:
            what = f"{self.launcher.summary()}, for {self.manifest.target.cpu}"
        return f"<{type(self).__name__} {self.manifest.signature()}, {what}>"


def open_executable(code: Code, recompiler: Recompiler | None = None) -> Executable:
    """The executable of a program's code.

    For code that this machine cannot run it is one that can be exported and printed if there is a
    ``recompiler``; otherwise ``ArtifactError`` is raised.
    """
    launcher = open_launcher(code, stands_in=recompiler is not None)
    return Executable(code.manifest, launcher, recompiler, around=code.around, start=code.start)
