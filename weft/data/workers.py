"""Worker processes of a data loader.

Batch number i is made by worker i modulo the number of workers, each over a pipe of its own, and
the batches are delivered in order. Processes are spawned, not forked: a fork of a process with
threads (weft's pool, torch's) may inherit a lock that is never released.
"""

from __future__ import annotations

import multiprocessing
import pickle
import signal
import sys
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from typing import Any

from weft.data.fetch import Fetcher
from weft.support.dataclass import dataclass
from weft.support.errors import DataError
from weft.support.interpreter import interrupts_blocked


@dataclass(frozen=True)
class Task:
    """One batch to read."""

    epoch: int
    indices: list[int]


@dataclass(frozen=True)
class Failure:
    """An exception of a worker, as text: its class may not exist, or not unpickle, elsewhere."""

    summary: str
    traceback: tuple[str, ...]


class WorkerPool:
    """Processes that read batches. ``close`` ends them; it may be called at any time."""

    def __init__(
        self, fetcher: Fetcher, workers: int, timeout: float, context: str,
        begin: Callable[[int], Any] | None = None,
    ) -> None:
        self._timeout, self._begin = timeout, begin
        self._connections: list[Connection] = []
        self._processes: list[Any] = []
        spawn: Any = multiprocessing.get_context(context)
        resource_tracker.ensure_running()  # its start would unblock SIGINT in ``_start``
        try:
            for number in range(workers):
                self._start(spawn, fetcher, number)
        except BaseException:
            self.close()
            raise

    def _start(self, context: Any, fetcher: Fetcher, number: int) -> None:
        ours, theirs = context.Pipe()
        self._connections.append(ours)
        process = context.Process(target=_serve, args=(theirs, fetcher, number, self._begin),
                                  daemon=True, name=f"weft data worker {number}")
        try:
            with interrupts_blocked():  # Ctrl-C in a terminal reaches workers too
                process.start()
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            raise DataError("the dataset cannot be sent to worker processes", got=error,
                            expected="a dataset and a collate_fn that pickle",
                            help="define their classes and functions at the top of a module, "
                                 "or pass num_workers=0") from error
        finally:
            theirs.close()  # the end of a worker is then the end of its pipe
        self._processes.append(process)

    def batches(self, tasks: Iterable[Task], ahead: int) -> Iterator[Any]:
        """The batches of ``tasks`` in order; each worker is ``ahead`` batches ahead at most."""
        source = iter(tasks)
        waiting: list[deque[Task]] = [deque() for _ in self._processes]
        ready: list[deque[Any]] = [deque() for _ in self._processes]
        for worker in [w for _ in range(ahead) for w in range(len(waiting))]:
            self._send(worker, source, waiting)
        worker = 0
        while waiting[worker] or ready[worker]:
            while not ready[worker]:
                self._receive(waiting, ready)
            batch = ready[worker].popleft()
            self._send(worker, source, waiting)
            yield batch
            worker = (worker + 1) % len(waiting)

    def _send(self, worker: int, source: Iterator[Task], waiting: list[deque[Task]]) -> None:
        task = next(source, None)
        if task is None:
            return
        waiting[worker].append(task)
        # A worker that ended is reported by ``_receive``, after the batches that it still sent:
        # only there is it known which batch ended it.
        with suppress(BrokenPipeError, ConnectionResetError):
            self._connections[worker].send(task)

    def _receive(self, waiting: list[deque[Task]], ready: list[deque[Any]]) -> None:
        """Take one batch from each worker that has sent one."""
        busy = [c for c, tasks in zip(self._connections, waiting, strict=True) if tasks]
        found = wait(busy, self._timeout or None)
        if not found:
            late = [w for w, tasks in enumerate(waiting) if tasks]
            raise DataError("the workers of a data loader did not answer in time",
                            where=f"workers {late}", expected=f"a batch within {self._timeout} s",
                            got=f"samples {waiting[late[0]][0].indices}")
        for connection in found:
            worker = self._connections.index(connection)  # type: ignore[arg-type]
            try:
                result = _received(self._connections[worker])
            except (EOFError, ConnectionResetError):
                raise self._died(worker, waiting[worker][0]) from None
            task = waiting[worker].popleft()
            if isinstance(result, Failure):
                raise DataError(f"a worker failed: {result.summary}", where=f"worker {worker}",
                                notes=(f"samples of the batch: {task.indices}",
                                       *result.traceback))
            ready[worker].append(result)

    def _died(self, worker: int, task: Task) -> DataError:
        process = self._processes[worker]
        process.join(5)
        code = process.exitcode
        cause = f"exit code {code}"
        if code is not None and code < 0:
            cause = f"killed by {signal.Signals(-code).name}"
        return DataError("a worker of a data loader ended", where=f"worker {worker}", got=cause,
                         notes=(f"samples of the batch: {task.indices}",),
                         help="SIGKILL often means too little memory; an exit code of 1 before "
                              "the first batch, a program without "
                              '``if __name__ == "__main__":``')

    def close(self) -> None:
        """End all workers, whatever they are doing."""
        for connection in self._connections:
            connection.close()
        for process in self._processes:
            process.terminate()
        for process in self._processes:
            process.join(5)
            if process.is_alive():
                process.kill()
                process.join()
            process.close()
        self._processes = []
        self._connections = []


def _serve(
    connection: Connection, fetcher: Fetcher, number: int, begin: Callable[[int], Any] | None
) -> None:
    """The main function of a worker: tasks in, batches out, until the pipe is closed."""
    try:
        while True:
            task = connection.recv()
            try:
                if begin is not None:
                    begin(number)
                    begin = None
                result = fetcher(task.epoch, task.indices)
            except Exception as error:  # noqa: BLE001 - whatever users' datasets raise
                result = _failure(error)
            _send(connection, result)
    except (EOFError, BrokenPipeError, ConnectionResetError):
        sys.exit(0)


def _failure(error: Exception) -> Failure:
    lines = "".join(traceback.format_exception(error)).rstrip().splitlines()
    return Failure(f"{type(error).__name__}: {error}", tuple(lines))


def _send(connection: Connection, value: Any) -> None:
    """Send a value and its arrays: these follow the pickle and are not copied into it."""
    buffers: list[pickle.PickleBuffer] = []
    try:
        head = pickle.dumps(value, protocol=5, buffer_callback=buffers.append)
    except Exception as error:  # noqa: BLE001 - a batch that does not pickle is an error of its own
        buffers, head = [], pickle.dumps(_failure(error))
    connection.send((len(head), [buffer.raw().nbytes for buffer in buffers]))
    connection.send_bytes(head)
    for buffer in buffers:
        connection.send_bytes(buffer.raw())


def _received(connection: Connection) -> Any:
    _, sizes = connection.recv()
    head = connection.recv_bytes()
    buffers = [bytearray(size) for size in sizes]
    for buffer in buffers:
        if buffer:
            connection.recv_bytes_into(buffer)
        else:
            connection.recv_bytes()
    return pickle.loads(head, buffers=buffers)  # noqa: S301 - from a process that we started
