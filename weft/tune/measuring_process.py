"""Measures points in a process of its own: one that crashes or hangs costs only itself.

The process is killed if a point takes too long, and started again for the next one.
"""

from __future__ import annotations

import subprocess
import sys
import threading
from types import TracebackType
from typing import Self

from weft.compiler.build.worker_pool import read_frame, write_frame
from weft.support.config import config
from weft.support.errors import InternalError
from weft.support.interpreter import import_path, interrupts_blocked
from weft.tune.measure import Measurement
from weft.tune.measuring_worker import Bench
from weft.tune.order import Order
from weft.tune.task import KernelTask

TIMEOUT = 20.0  # seconds to build and to call a point, beside those to time it
START_SECONDS = 100.0  # more for the first one: on a busy machine imports take long


class MeasuringProcess:
    """A child process that times points; kernels that only this process can build run here."""

    def __init__(self, timeout: float = TIMEOUT) -> None:
        self._timeout = timeout
        self._process: subprocess.Popen[bytes] | None = None
        self._here = Bench()
        self.restarts = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 traceback: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """End the process."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.communicate()

    def measure(self, task: KernelTask, implementation: str, threads: int, seconds: float
                ) -> Measurement | str:
        """The times of a point, or why it has none: ``crashed`` or ``timeout`` among others."""
        order = self.order(task, implementation, threads, seconds)
        if task.is_foreign or task.tir_passes:
            return self._here.run(order, task)
        limit = self._timeout + 3 * seconds + (0 if self._process else START_SECONDS)
        process = self._process or self._start()
        stdin, stdout = process.stdin, process.stdout
        if stdin is None or stdout is None:
            raise InternalError("the process that measures lacks its pipes")
        late = threading.Event()

        def stop() -> None:
            late.set()
            process.kill()

        timer = threading.Timer(limit, stop)
        timer.start()
        try:
            write_frame(stdin, order)
            return read_frame(stdout)
        except (EOFError, OSError):
            self.close()
            self.restarts += 1
            return "timeout" if late.is_set() else "crashed"
        except BaseException:  # interrupted: the answer would be taken for that to the next order
            self.close()
            raise
        finally:
            timer.cancel()

    @staticmethod
    def order(task: KernelTask, implementation: str, threads: int, seconds: float) -> Order:
        """The order to measure a point."""
        return Order(task.kernel, task.text, task.function, task.target, implementation, threads,
                     seconds, config.overrides())

    def _start(self) -> subprocess.Popen[bytes]:
        code = (f"import sys; sys.path[:] = {import_path()!r}; "
                "from weft.tune.measuring_worker import main; main()")
        with interrupts_blocked():  # the parent handles Ctrl-C
            self._process = subprocess.Popen([sys.executable, "-P", "-c", code],
                                             stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        return self._process
