"""Programs for WebAssembly under wasmtime: code that can reach its own memory and nothing else.

A module that wants any function of the host is refused. Constants are copied into its memory once,
arguments and states at each call, results back. Needs the ``wasmtime`` package (``weft[sandbox]``).
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np

from weft.runtime.artifact_contents import EntryPoint
from weft.runtime.artifact_file import ArtifactFile
from weft.runtime.call_sizes import CallSizes
from weft.runtime.executable import Executable
from weft.runtime.launchers import Code, Launch, Launcher
from weft.runtime.manifest import MAIN_SYMBOL
from weft.runtime.profile import StepTime
from weft.runtime.run_control import RunControl
from weft.support.errors import ArtifactError, MissingToolError, OptionError

_ARCH = "wasm32"
_ALIGNMENT, _PAGE = 64, 65536
_MOST_BYTES = 1 << 32


def sandboxed(file: ArtifactFile, entry: EntryPoint) -> Executable:
    """The executable of an entry point, in a sandbox of its own.

    Raises ``ArtifactError`` for an entry point without code for WebAssembly.
    """
    programs = {folder: file.manifest(folder) for folder in entry.programs}
    fitting = {folder: one for folder, one in programs.items() if one.target.arch == _ARCH}
    if not fitting or entry.signature:
        raise ArtifactError("the artifact has no code for a sandbox",
                            got=", ".join(one.target.triple for one in programs.values()),
                            help='compile for WebAssembly: target="llvm '
                                 '-mtriple=wasm32-unknown-unknown -mattr=+simd128"')
    folder = max(fitting, key=lambda one: len(fitting[one].target.features))
    manifest = fitting[folder]
    if manifest.vm is not None or manifest.launched_by != MAIN_SYMBOL or manifest.arenas:
        raise ArtifactError("the program cannot run in a sandbox", got=manifest.launched_by,
                            expected="a program whose launches are machine code")
    code = Code(manifest, _no_library, file.constants(copy=False))
    return Executable(manifest, Sandbox(code, bytes(file.code(folder))),
                      start="from an artifact, in a sandbox")


def _no_library() -> NoReturn:
    raise ArtifactError("code in a sandbox is not mapped")


class Sandbox(Launcher):
    """A program with memory of its own; calls run one after the other."""

    def __init__(self, code: Code, module: bytes) -> None:
        super().__init__(code, None)  # type: ignore[arg-type]  # nothing is mapped
        wasmtime = _wasmtime()
        engine = wasmtime.Engine()
        self._trap = wasmtime.Trap
        self._store = wasmtime.Store(engine)
        try:
            instance = wasmtime.Instance(self._store, wasmtime.Module(engine, module), [])
            exports = instance.exports(self._store)
            self._main, self._memory = exports[MAIN_SYMBOL], exports["memory"]
            base = exports["__heap_base"].value(self._store)
        except (wasmtime.WasmtimeError, wasmtime.Trap, KeyError, AttributeError) as error:
            raise ArtifactError("the code is no module for this sandbox",
                                got=str(error).partition("\n")[0]) from None
        if not isinstance(base, int) or not 0 <= base <= self._memory.data_len(self._store):
            raise ArtifactError("the code is no module for this sandbox", got=f"heap at {base}")
        self._lock = threading.Lock()
        self._top = base
        self._constants = self._put(self.constants[:code.manifest.constants_bytes])

    def at(self, sizes: CallSizes) -> Launch:
        """See ``Launcher.at``."""
        return SandboxLaunch(self, sizes)

    def call(self, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray], sizes: CallSizes
             ) -> None:
        """Run on copies of ``inputs`` and of the states; write the outputs and the states."""
        states = [self.state[spec.name] for spec in self.manifest.states]
        with self._lock:
            top = self._top
            try:
                given = [self._put(array) for array in (*inputs, *states)]
                given.append(self._put(sizes.values))
                results = [self._take(array.nbytes) for array in outputs]
                arena = self._take(sizes.arena_bytes)
                status = self._main(
                    self._store, self._put(np.array(given, np.uint32)),
                    self._put(np.array(results, np.uint32)), self._constants, arena)
                if status != 0:
                    raise ArtifactError("the program in the sandbox failed", got=status)
                kept = given[len(inputs):len(inputs) + len(states)]
                for array, at in zip((*outputs, *states), (*results, *kept), strict=True):
                    self._get(array, at)
            except self._trap as trap:
                raise ArtifactError("the program in the sandbox failed",
                                    got=str(trap).partition("\n")[0]) from None
            finally:
                self._top = top

    def _bytes(self) -> np.ndarray:
        """The memory; a call or more memory may move it."""
        size = self._memory.data_len(self._store)
        pointer = ctypes.cast(self._memory.data_ptr(self._store), ctypes.POINTER(ctypes.c_uint8))
        return np.ctypeslib.as_array(pointer, (size,))

    def _take(self, nbytes: int) -> int:
        """The address of new memory, which is free again when ``_top`` is reset."""
        at = -(-self._top // _ALIGNMENT) * _ALIGNMENT
        missing = at + nbytes - self._memory.data_len(self._store)
        if at + nbytes > _MOST_BYTES:
            raise ArtifactError("the memory of a sandbox is too small", got=f"{nbytes} bytes",
                                expected="at most 4 GB")
        if missing > 0:
            self._memory.grow(self._store, -(-missing // _PAGE))
        self._top = at + nbytes
        return at

    def _put(self, array: np.ndarray) -> int:
        at = self._take(array.nbytes)
        self._bytes()[at:at + array.nbytes] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        return at

    def _get(self, array: np.ndarray, at: int) -> None:
        data = self._bytes()[at:at + array.nbytes]
        array[...] = data.view(array.dtype).reshape(array.shape)


class SandboxLaunch(Launch):
    """A program in a sandbox at one set of sizes."""

    def __init__(self, launcher: Sandbox, sizes: CallSizes) -> None:
        super().__init__(launcher, sizes)
        self._sandbox = launcher

    def launch(self, inputs: list[Any], outputs: list[Any], times: list[StepTime] | None = None,  # noqa: ARG002
               control: RunControl | None = None) -> None:
        """See ``Launch.launch``; calls of kernels have no times of their own."""
        if control is not None:
            raise OptionError("runs in a sandbox have no limits", help="run it in a process")
        self._sandbox.call(inputs, outputs, self.sizes)


def _wasmtime() -> Any:
    try:
        import wasmtime
    except ImportError:
        raise MissingToolError("a sandbox needs the wasmtime package",
                               help="pip install weft[sandbox]") from None
    return wasmtime
