"""The child process that builds and times points, started by ``measuring_process``.

Reads ``Order`` frames from standard input and answers each with a ``Measurement`` or with the text
of why there is none. It exits at the end of its input.
"""

from __future__ import annotations

import os
import sys

import weft.op  # noqa: F401 - functions refer to operators by name
from weft.compiler.build.worker_pool import read_frame, write_frame
from weft.support.config import config
from weft.support.errors import LoweringError, ScheduleError, WeftError
from weft.tune.measure import Measurement, agree, measure
from weft.tune.order import Order
from weft.tune.running_kernel import RunningKernel
from weft.tune.task import KernelTask

KEPT = 4  # kernels whose default stays built


class Bench:
    """Builds and times points, in this process; keeps the defaults of a few kernels."""

    def __init__(self) -> None:
        self._kept: dict[str, tuple[KernelTask, RunningKernel]] = {}

    def run(self, order: Order, task: KernelTask | None = None) -> Measurement | str:
        """The times of a point, or why it has none."""
        task, baseline = self._baseline(order, task)
        implementation = task.named(order.implementation)
        if implementation is None:
            return "unknown"
        try:
            point = RunningKernel(task.function, implementation, task.target, order.threads,
                                  task.tir_passes)
        except (ScheduleError, LoweringError):
            return "refused"
        baseline.seconds()
        point.seconds()
        if not agree(baseline.outputs, point.outputs):
            return "wrong result"
        return measure(baseline, point, order.seconds)

    def _baseline(self, order: Order, task: KernelTask | None) -> tuple[KernelTask, RunningKernel]:
        key = f"{order.kernel} {order.threads}"
        found = self._kept.get(key)
        if found is None:
            task = task or order.task()
            running = RunningKernel(task.function, task.default, task.target, order.threads,
                                    task.tir_passes)
            while len(self._kept) >= KEPT:
                self._kept.pop(next(iter(self._kept)))
            found = self._kept[key] = task, running
        return found


def main() -> None:
    """Answer orders until the pipe is closed."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # printed text must not mix with the answers
    requests, bench = sys.stdin.buffer, Bench()
    while True:
        try:
            order: Order = read_frame(requests)
        except EOFError:
            return
        with config(**order.settings):
            try:
                answer: object = bench.run(order)
            except WeftError as error:
                answer = f"error: {error.args[0] if error.args else error}"
            except Exception as error:  # noqa: BLE001 - the point counts as failed
                answer = f"error: {type(error).__name__}: {error}"
        write_frame(answers, answer)


if __name__ == "__main__":
    main()
