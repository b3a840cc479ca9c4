"""``Dask``: calls run on the workers of a scheduler, which restarts and replaces them."""

from __future__ import annotations

import concurrent.futures
import threading
import time
from collections.abc import Iterable
from concurrent.futures import Future
from typing import Any

import weft
from weft.runtime.executors import MEASURE, Call, Executor, Shared, Worker
from weft.runtime.executors.base import worker_count
from weft.runtime.executors.dask_worker import facts, run_message
from weft.runtime.executors.process_worker import message_of
from weft.support.errors import MissingToolError, OptionError, WorkerError

# Seconds to wait for the answer of a scheduler, and for its first worker.
PATIENCE = 10.0
# After so long without a worker that may run it, a call fails.
_NO_WORKERS = "60s"


class Dask(Executor):
    """Workers of Dask: those of the scheduler at ``address``, or new ones of this machine.

    Without an address ``workers`` processes of ``threads`` threads are started; Dask starts another
    one for each that ends. A call whose worker is lost runs again elsewhere, ``allowed_failures``
    times where the scheduler is ours. A call with a timeout runs in a process of its own beside
    the worker. Raises ``WorkerError`` within ``patience`` seconds if no scheduler answers, if it
    has no workers, and if these have another version of weft.
    """

    def __init__(self, address: str | None = None, *, workers: int | None = None, threads: int = 1,
                 allowed_failures: int = 3, patience: float = PATIENCE) -> None:
        self._cluster: Any = None
        self._futures: dict[Future[Any], Any] = {}
        self._lock = threading.Lock()
        self._sent: dict[str, Any] = {}
        self._patience, self._most = patience, 1
        if address is None:
            self._cluster = _local_cluster(workers, threads, allowed_failures)
            address = self._cluster.scheduler_address
        elif workers is not None:
            raise OptionError("workers= is for an executor without an address", got=address)
        try:
            self.client = _connected(address, patience)
            self._check_versions(address, patience)
        except BaseException:
            self._close()
            raise

    def run(self, call: Call) -> Future[Any]:
        """See ``Executor.run``."""
        import cloudpickle

        message = message_of(call, cloudpickle.dumps)
        where, resources = None, dict(call.resources)
        if call.worker is not None or resources:
            found = self._able(call)
            where = [worker.address for worker in found if worker.name == call.worker] or None
            if MEASURE in resources and not self._declared():
                del resources[MEASURE]
                where = where or [w.address for w in found if MEASURE in w.resources]
        future: Future[Any] = Future()
        shared = call.shared
        sent = self.client.submit(
            run_message, weft.__version__, str(call), call.timeout, message,
            [value.digest for value in shared], *map(self._share, shared), pure=False,
            workers=where, resources=resources or None)
        with self._lock:
            self._futures[future] = sent
        future.add_done_callback(self._drop)
        sent.add_done_callback(lambda done: _settle(future, done, call))
        return future

    def workers(self) -> tuple[Worker, ...]:
        """See ``Executor.workers``: those that answer."""
        import dask

        # The scheduler may not know yet that a worker has ended, and connects to it for so long.
        with dask.config.set({"distributed.comm.timeouts.connect": f"{self._patience}s"}):
            found = self.client.run(facts, on_error="return")
        return tuple(worker for worker in found.values() if isinstance(worker, Worker))

    def cancel(self, futures: Iterable[Future[Any]]) -> None:
        """Drop calls; one that a worker of Dask runs is not interrupted, its result is dropped."""
        for future in futures:
            future.cancel()

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Leave the scheduler; workers that this executor started are ended."""
        with self._lock:
            futures = list(self._futures)
        if cancel_futures:
            self.cancel(futures)
        elif wait:
            concurrent.futures.wait(futures)
        self._close()

    def _declared(self) -> bool:
        """Whether Dask itself knows that workers measure; others have one thread each."""
        known = self.client.scheduler_info()["workers"].values()
        return any(MEASURE in worker["resources"] for worker in known)

    def _able(self, call: Call) -> tuple[Worker, ...]:
        """The workers, after one is there that can run a call; Dask may be restarting them."""
        until = time.monotonic() + self._patience
        while True:
            found = self.workers()
            self._most = max(self._most, len(found))
            try:
                call.check(found)
            except WorkerError:
                if len(found) == self._most or time.monotonic() > until:
                    raise
                time.sleep(0.1)
            else:
                return found

    def _share(self, value: Shared) -> Any:
        """The value as a result of Dask, which workers take from each other.

        It is made of a task, so that it is there again after the workers that had it are lost.
        """
        with self._lock:
            sent = self._sent.get(value.digest)
            if sent is None or sent.status in ("cancelled", "lost"):  # after a restart of all
                self._sent[value.digest] = self.client.submit(
                    bytes, value.pickled, key=f"weft-shared-{value.digest}")
            return self._sent[value.digest]

    def _drop(self, future: Future[Any]) -> None:
        with self._lock:
            sent = self._futures.pop(future, None)
        if sent is not None and future.cancelled():
            sent.cancel()

    def _check_versions(self, address: str, patience: float) -> None:
        try:
            self.client.wait_for_workers(1, timeout=patience)
        except TimeoutError:
            raise WorkerError("the scheduler has no workers", where=address,
                              help=f"start some: dask worker {address}") from None

        def version() -> str:  # Dask sends the code of a local function, which workers may lack
            try:
                import weft
            except ImportError:
                return "none"
            return weft.__version__

        found = self.client.run(version)
        wrong = {worker: got for worker, got in found.items() if got != weft.__version__}
        if wrong:
            raise WorkerError("workers have another version of weft", where=address,
                              expected=weft.__version__,
                              got=", ".join(f"{w}: {got}" for w, got in sorted(wrong.items())),
                              help="install the same version on all machines")

    def _close(self) -> None:
        client, cluster = getattr(self, "client", None), self._cluster
        if client is not None:
            client.close()
        if cluster is not None:
            cluster.close()


def require_dask() -> Any:
    """The package ``distributed``; ``MissingToolError`` if it is not installed."""
    try:
        import distributed
    except ImportError as error:
        raise MissingToolError("workers on other machines need the packages dask and distributed",
                               got=error, help='pip install "weft[distributed]"') from None
    return distributed


def _local_cluster(workers: int | None, threads: int, allowed_failures: int) -> Any:
    import logging

    distributed = require_dask()
    import dask

    count = worker_count(workers, threads)
    with dask.config.set({"distributed.scheduler.allowed-failures": allowed_failures,
                          "distributed.scheduler.no-workers-timeout": _NO_WORKERS}):
        return distributed.LocalCluster(
            n_workers=count, threads_per_worker=1, processes=True, host="127.0.0.1",
            dashboard_address="127.0.0.1:0", silence_logs=logging.CRITICAL, resources={MEASURE: 1},
            env={"WEFT_THREADS": str(threads)})


def _connected(address: str, patience: float) -> Any:
    distributed = require_dask()
    try:
        return distributed.Client(address, timeout=patience, set_as_default=False)
    except (OSError, ValueError) as error:
        raise WorkerError("no scheduler of Dask answers", where=address,
                          got=str(error).splitlines()[0] if str(error) else type(error).__name__,
                          help="start one with `dask scheduler`, workers with "
                               "`dask worker ADDRESS`, and look at firewalls") from None


def _settle(future: Future[Any], done: Any, call: Call) -> None:
    """Give the outcome of Dask's future to ours; Dask calls this in a thread of its own."""
    if not future.set_running_or_notify_cancel():
        return
    try:
        if done.status == "cancelled":
            raise WorkerError(f"the scheduler was lost during the call {call}")
        result = done.result()
    except Exception as error:  # noqa: BLE001 - a future keeps the error of its call
        future.set_exception(_translated(error, call))
    else:
        future.set_result(result)


def _translated(error: Exception, call: Call) -> Exception:
    if type(error).__name__ != "KilledWorker":
        return error
    return WorkerError(f"every worker that ran the call {call} ended",
                       where=getattr(getattr(error, "last_worker", None), "address", None),
                       got=f"{getattr(error, 'allowed_failures', 0) + 1} workers were lost",
                       help="SIGKILL often means too little memory")
