"""``LaunchSequence``: launches that are made together, again and again.

The first run makes them one after the other, in one call of the host launcher. The second run
records them as a CUDA graph, which later runs launch: a graph of a hundred kernels takes the host a
few microseconds. All arguments are fixed, so a program has a sequence for each set of buffers.
"""

from __future__ import annotations

import contextlib
import ctypes
import weakref
from collections.abc import Callable, Sequence

from weft.runtime.devices.cuda.errors import CudaError
from weft.runtime.devices.cuda.kernel import PreparedLaunch
from weft.runtime.devices.cuda.launch_records import LAUNCH_ALL, LaunchRecords
from weft.runtime.devices.cuda.library import CudaLibrary
from weft.runtime.devices.cuda.nvidia import NvidiaDriver
from weft.runtime.library import NativeLibrary, function
from weft.support.config import config

# One kernel is launched as fast as a graph of it.
_SMALLEST_GRAPH = 2


class LaunchSequence:
    """``launches`` in order, on the compute stream of the library's device."""

    __slots__ = ("__weakref__", "_graph", "_launches", "_library", "_run_all", "_runs", "_stream",
                 "_uses_graph")

    def __init__(self, library: CudaLibrary, launches: Sequence[PreparedLaunch]) -> None:
        self._library = library
        self._launches = tuple(launches)
        self._stream = library.context.compute
        self._run_all = _launcher(library, self._launches, self._stream)
        self._runs = 0
        self._graph = 0
        self._uses_graph = config.cuda_graphs and len(launches) >= _SMALLEST_GRAPH \
            and not library.is_checked

    def run(self) -> None:
        """Make the launches; returns before they are done."""
        if self._graph:
            self._library.note(self._launches)
            self._library.context.driver.launch_graph(self._graph, self._stream)
            return
        self._runs += 1
        if self._runs == 2 and self._uses_graph:
            self._record()
            self.run()
        else:
            self._run_all()

    def _record(self) -> None:
        context = self._library.context
        driver, stream = context.driver, context.capture
        run_all = _launcher(self._library, self._launches, stream)
        with context.capturing:
            driver.begin_capture(stream)
            try:
                run_all()
            except BaseException:
                self._uses_graph = False
                with contextlib.suppress(CudaError):
                    driver.destroy_graph(driver.end_capture(stream))
                raise
            self._graph = driver.end_capture(stream)
        weakref.finalize(self, driver.destroy_graph, self._graph)


def _launcher(library: CudaLibrary, launches: Sequence[PreparedLaunch], stream: int
              ) -> Callable[[], None]:
    """A function that makes all launches: by the host launcher if the library has one."""
    driver = library.context.driver
    if isinstance(driver, NvidiaDriver) and library.launcher is not None \
            and not library.is_checked:
        return _NativeLauncher(library, library.launcher, driver, launches, stream).run

    def run() -> None:
        for launch in launches:
            library.launch(launch, stream)

    return run


class _NativeLauncher:
    """Makes launches in machine code, without marshalling."""

    __slots__ = ("_arguments", "_at", "_launch", "_launches", "_library", "_records")

    def __init__(self, library: CudaLibrary, code: NativeLibrary, driver: NvidiaDriver,
                 launches: Sequence[PreparedLaunch], stream: int) -> None:
        self._library = library
        self._launches = launches
        self._records = LaunchRecords([(p.function, p.geometry, p.parameters) for p in launches],
                                      stream)
        self._at = ctypes.c_int64()
        self._launch = function(code, LAUNCH_ALL, ctypes.c_int32, ctypes.c_void_p, ctypes.c_int64,
                                ctypes.c_void_p, ctypes.c_void_p)
        self._arguments = (self._records.address, self._records.count,
                           driver.lookup("cuLaunchKernelEx"), ctypes.addressof(self._at))

    def run(self) -> None:
        self._library.note(self._launches)
        status = self._launch(*self._arguments)
        if status:
            failed = self._launches[self._at.value]
            raise self._library.launch_error(status, failed)
