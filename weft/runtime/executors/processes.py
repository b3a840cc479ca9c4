"""``Processes``: calls run in child processes, which may crash, hang and be killed."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from multiprocessing.connection import Connection, Pipe
from typing import Any

from weft.runtime.executors.base import Call, Executor, Worker, worker_count
from weft.runtime.executors.process_worker import message_of
from weft.support.dataclass import dataclass
from weft.support.errors import RunCancelledError, RunTimeoutError, WorkerError
from weft.support.interpreter import import_path, interrupts_blocked

# Seconds in which a worker that closed its pipe exits by itself, with a code of its own.
_LAST_WORDS = 2.0


@dataclass(eq=False)
class _Task:
    call: Call
    message: bytes
    future: Future[Any]
    losses: int = 0


class Processes(Executor):
    """Workers that are processes of this machine, started by the first call and after a crash.

    Each runs one call at a time, with ``threads`` threads of weft. With ``pin`` each has CPUs of
    its own, where there are enough. A call whose worker ends runs again ``allowed_failures`` times.
    """

    def __init__(self, workers: int | None = None, *, threads: int = 1, pin: bool = True,
                 allowed_failures: int = 0, environment: Mapping[str, str] | None = None) -> None:
        count = worker_count(workers, threads)
        self._allowed = allowed_failures
        self._waiting: deque[_Task] = deque()
        self._changed = threading.Condition()
        self._closed = False
        settings = {**os.environ, **(environment or {}), "WEFT_THREADS": str(threads)}
        pins = _pins(count, threads) if pin else [()] * count
        self._slots = [_Slot(str(number), cores, settings)
                       for number, cores in enumerate(pins)]
        self._workers = tuple(Worker.here(s.name, threads=threads, cores=s.cores)
                              for s in self._slots)
        self._threads = [threading.Thread(target=self._serve, args=(slot,), daemon=True,
                                          name=f"weft executor {slot.name}")
                         for slot in self._slots]
        for thread in self._threads:
            thread.start()

    def run(self, call: Call) -> Future[Any]:
        """See ``Executor.run``."""
        call.check(self._workers)
        task = _Task(call, message_of(call), Future())
        with self._changed:
            if self._closed:
                raise WorkerError("the executor is shut down")
            self._waiting.append(task)
            self._changed.notify_all()
        return task.future

    def workers(self) -> tuple[Worker, ...]:
        """See ``Executor.workers``."""
        return self._workers

    def process_ids(self) -> dict[str, int]:
        """The process of each worker that has one now, by the name of the worker."""
        running = {slot.name: slot.process_id for slot in self._slots}
        return {name: number for name, number in running.items() if number is not None}

    def cancel(self, futures: Iterable[Future[Any]]) -> None:
        """Stop calls; the worker of one that runs is killed, and another starts."""
        for future in futures:
            if future.cancel() or future.done():
                continue
            for slot in self._slots:
                slot.cancel(future)
            with self._changed:  # a call whose worker was lost, and which waits for another
                lost = [task for task in self._waiting if task.future is future]
                for task in lost:
                    self._waiting.remove(task)
            for task in lost:
                future.set_exception(RunCancelledError(f"the call {task.call} was cancelled"))

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End the workers, after the calls that were taken unless these are cancelled."""
        with self._changed:
            self._closed = True
            waiting = list(self._waiting) if cancel_futures else []
            self._changed.notify_all()
        if cancel_futures:
            self.cancel([task.future for task in waiting])
            self.cancel([slot.task.future for slot in self._slots if slot.task is not None])
        if wait:
            for thread in self._threads:
                thread.join()

    def _serve(self, slot: _Slot) -> None:
        """Run calls on one worker until the executor is shut down."""
        while (task := self._next(slot)) is not None:
            if not task.losses and not task.future.set_running_or_notify_cancel():
                continue
            error = slot.answer(task)
            if error is None:
                continue
            task.losses += 1
            if isinstance(error, WorkerError) and task.losses <= self._allowed:
                with self._changed:
                    self._waiting.appendleft(task)
                    self._changed.notify_all()
            else:
                task.future.set_exception(error)
        slot.stop()

    def _next(self, slot: _Slot) -> _Task | None:
        with self._changed:
            while True:
                for task in self._waiting:
                    if task.call.worker in (None, slot.name):
                        self._waiting.remove(task)
                        return task
                if self._closed:
                    return None
                self._changed.wait()


class _Slot:
    """A worker's slot: it holds the worker's process, and a new process after a crash."""

    def __init__(self, name: str, cores: tuple[int, ...], environment: Mapping[str, str]) -> None:
        self.name, self.cores = name, cores
        self.task: _Task | None = None
        self._sent: set[str] = set()  # digests of shared values
        self._environment = environment
        self._process: subprocess.Popen[bytes] | None = None
        self._pipe: Connection | None = None
        self._lock = threading.Lock()  # of the task and of its being cancelled
        self._cancelled = self._is_ready = False

    @property
    def process_id(self) -> int | None:
        """The process, if there is one."""
        process = self._process
        return None if process is None else process.pid

    def answer(self, task: _Task) -> Exception | None:
        """Run a call and settle its future; the error of a call that its worker did not answer."""
        with self._lock:
            self.task, self._cancelled = task, False
        try:
            pipe = self._pipe or self._start()
            with self._lock:
                if self._cancelled:  # while the process started
                    self._kill()
            if not self._is_ready:
                pipe.recv()  # the timeout of a call leaves out the start of Python
                self._is_ready = True
            self._send(pipe, task)
            if not pipe.poll(task.call.timeout):
                self._end()
                return RunTimeoutError(f"the call {task.call} took too long",
                                       where=f"worker {self.name}",
                                       expected=f"at most {task.call.timeout:g} s")
            given, value = pickle.loads(pipe.recv_bytes())  # noqa: S301 - from our own child
        except (EOFError, OSError):
            return self._lost(task.call)
        finally:
            with self._lock:
                self.task = None
        if given:
            task.future.set_result(value)
        else:
            task.future.set_exception(value)
        return None

    def _send(self, pipe: Connection, task: _Task) -> None:
        for value in task.call.shared:
            if value.digest not in self._sent:
                pipe.send(value.digest)
                pipe.send_bytes(value.pickled)
                self._sent.add(value.digest)
        pipe.send("")
        pipe.send_bytes(task.message)

    def cancel(self, future: Future[Any]) -> None:
        """Kill the process if it runs the call of this future."""
        with self._lock:
            if self.task is not None and self.task.future is future:
                self._cancelled = True
                self._kill()

    def stop(self) -> None:
        """End the process, which waits for a call."""
        if self._pipe is not None:
            self._pipe.close()
        self._end(patience=5)

    def _lost(self, call: Call) -> Exception:
        code = self._end(patience=_LAST_WORDS)
        if self._cancelled:
            return RunCancelledError(f"the call {call} was cancelled", where=f"worker {self.name}")
        cause = f"exit code {code}" if code >= 0 else f"killed by {signal.Signals(-code).name}"
        advice = "SIGKILL often means too little memory" if code == -signal.SIGKILL else \
            "the worker printed the reason to the error output of this program"
        return WorkerError(f"a worker ended during the call {call}", where=f"worker {self.name}",
                           expected="a result", got=cause, help=advice)

    def _start(self) -> Connection:
        ours, theirs = Pipe()
        code = (f"import sys; sys.path[:] = {import_path()!r}; "
                "from weft.runtime.executors.process_worker import main; "
                f"main({theirs.fileno()}, {self.cores!r})")
        # A session of its own: what a call starts is ended with it. The caller handles Ctrl-C.
        with interrupts_blocked():
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-c", code], env=self._environment, start_new_session=True,
                stdin=subprocess.DEVNULL, pass_fds=[theirs.fileno()])
        theirs.close()  # the end of the worker is then the end of the pipe
        self._pipe, self._sent, self._is_ready = ours, set(), False
        return ours

    def _kill(self) -> None:
        if self._process is not None and self._process.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def _end(self, patience: float = 0.1) -> int:
        """Wait for the end of the process, or bring it about; its exit code."""
        process = self._process
        if process is None:
            return 0
        try:
            process.wait(timeout=patience)
        except subprocess.TimeoutExpired:
            self._kill()
            process.wait()
        if self._pipe is not None:
            self._pipe.close()
        self._process = self._pipe = None
        return process.returncode


def _pins(count: int, threads: int) -> Sequence[tuple[int, ...]]:
    """CPUs for each worker; none where the workers have more threads than this process has CPUs."""
    cpus = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    if count * threads > len(cpus):
        return [()] * count
    return [tuple(cpus[number * threads:(number + 1) * threads]) for number in range(count)]
