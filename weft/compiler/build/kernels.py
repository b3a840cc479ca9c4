"""Building the kernels of a program: from the disk cache, or here and in worker processes.

LLVM's Python binding holds one lock per process, so kernels are built in parallel by processes:
child processes (``weft.compiler.build.worker``) with a pipe in each direction, which do not import
the user's program again as ``multiprocessing`` would. The calling process builds too.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from contextvars import copy_context
from dataclasses import field

from weft.compiler.build.built_kernel import BuiltKernel, shows_kernels
from weft.compiler.build.external_kernel import check_distinct
from weft.compiler.build.worker_pool import Worker
from weft.compiler.build.worker_process import has_spare
from weft.compiler.extensions import is_self_contained
from weft.compiler.program.program import KernelSource
from weft.runtime.devices.cpu.host import usable_cpus
from weft.strategy.records import active_records
from weft.support import progress
from weft.support.cache import DiskCache, open_cache
from weft.support.config import config
from weft.support.dataclass import dataclass
from weft.support.errors import WeftError
from weft.support.fingerprint import key_of, note_kernels
from weft.support.log import Level, debug, enabled
from weft.target import Target
from weft.tir.transform.registered import TirInsertion

# With fewer kernels the start of a worker (about 0.4 s of imports) costs more than it saves.
MIN_KERNELS_FOR_WORKERS = 4


def build_kernels(kernels: Sequence[KernelSource], target: Target,
                  tir_passes: Sequence[TirInsertion] = ()) -> list[BuiltKernel]:
    """The built kernels, in order.

    ``tir_passes`` are those of the user; with them all kernels are built in this process. Raises
    what building raises, and ``InternalError`` naming the kernel whose worker died.
    """
    built, refused = try_build_kernels(kernels, target, tir_passes)
    if refused:
        raise refused[min(refused)]
    return [built[number] for number in range(len(kernels))]


def try_build_kernels(
    kernels: Sequence[KernelSource], target: Target, tir_passes: Sequence[TirInsertion] = (),
    tolerated: tuple[type[WeftError], ...] = (),
) -> tuple[dict[int, BuiltKernel], dict[int, BaseException]]:
    """The built kernels, and the errors of ``tolerated`` kinds of the others, by number."""
    cache = None if shows_kernels() else open_cache()
    built: dict[int, BuiltKernel] = {}
    keys = _keys(kernels, target) if cache is not None and not tir_passes else {}
    for number, key in keys.items():
        found = cache.get(key) if cache is not None else None
        if found is not None:
            built[number] = BuiltKernel.from_bytes(found)
    debug(Level.CACHE, "build", f"{len(built)} of {len(kernels)} kernels were in the cache")
    missing = [n for n in range(len(kernels)) if n not in built]
    refused: dict[int, BaseException] = {}
    if missing:
        queue = _build_missing(kernels, missing, target, cache, tir_passes, tolerated)
        built.update(queue.built)
        refused = queue.errors
        if cache is not None and keys and keys == _keys(kernels, target):  # no new records since
            _store(cache, keys, missing, built)
    _announce(kernels, built)
    check_distinct([(built[n].facts.symbol, kernels[n].text) for n in sorted(built)])
    return built, refused


def _keys(kernels: Sequence[KernelSource], target: Target) -> dict[int, str]:
    """Cache keys by number; measured records are part of them, as they may select other kernels."""
    records = active_records()
    return {n: key_of("kernel", k.digest, k.name, str(target),
                      *records.ranking(k.digest, target)) for n, k in enumerate(kernels)
            if is_self_contained(k.function, target)}


def _store(cache: DiskCache, keys: dict[int, str], numbers: Sequence[int],
           built: dict[int, BuiltKernel]) -> None:
    for number in numbers:
        if number in keys and number in built:
            cache.put(keys[number], built[number].to_bytes())
    note_kernels(cache)


def _announce(kernels: Sequence[KernelSource], built: dict[int, BuiltKernel]) -> None:
    if enabled(Level.CHOICES):
        for number, kernel in enumerate(kernels):
            if number not in built:
                continue
            debug(Level.CHOICES, "strategy",
                  f"{built[number].facts.implementation} for {kernel.text}")


def job_count() -> int:
    """The number of processes that build: as configured, or the CPUs that this process may use.

    These are the CPUs of its affinity, within the quota of its container.
    """
    return config.build_jobs or usable_cpus()


@dataclass
class _Queue:
    """The kernels to be built, shared by the threads that feed the workers.

    An error of a kind that is not ``tolerated`` ends the build.
    """

    numbers: deque[int]
    tolerated: tuple[type[WeftError], ...] = ()
    tir_passes: Sequence[TirInsertion] = ()
    workers: list[Worker] = field(default_factory=list)
    built: dict[int, BuiltKernel] = field(default_factory=dict)
    errors: dict[int, BaseException] = field(default_factory=dict)

    def take(self) -> int | None:
        if self.has_failed:
            return None
        try:
            return self.numbers.popleft()
        except IndexError:
            return None

    @property
    def has_failed(self) -> bool:
        """Whether a kernel failed for another reason than a tolerated one."""
        return not all(isinstance(error, self.tolerated) for error in list(self.errors.values()))

    def abandon(self) -> None:
        """Drop the remaining kernels and kill the workers."""
        self.numbers.clear()
        for worker in self.workers:
            worker.kill()


def _build_missing(
    kernels: Sequence[KernelSource], missing: Sequence[int], target: Target,
    cache: DiskCache | None, tir_passes: Sequence[TirInsertion],
    tolerated: tuple[type[WeftError], ...],
) -> _Queue:
    remote = [] if shows_kernels() or tir_passes else [
        n for n in missing if is_self_contained(kernels[n].function, target)]
    local = [n for n in missing if n not in set(remote)]
    is_worth_it = len(remote) >= MIN_KERNELS_FOR_WORKERS or (len(remote) > 1 and has_spare())
    jobs = job_count() if is_worth_it else 1
    # The kernels with most operators take longest and come first, which balances the load.
    order = sorted(remote, key=lambda n: (-len(kernels[n].text), n))
    queue = _Queue(deque([*local, *order] if jobs == 1 else order), tolerated, tir_passes)
    with progress.task("building kernels", len(missing)) as task:
        # Each thread sees the configuration of the caller, and sends it to its worker.
        queue.workers.extend(Worker() for _ in range(min(jobs, len(remote)) - 1))
        threads = [threading.Thread(target=copy_context().run,
                                    args=(_feed, worker, queue, kernels, target, task))
                   for worker in queue.workers]
        try:
            for thread in threads:
                thread.start()
            _build_here(queue, local if jobs > 1 else (), kernels, target, cache, task)
            for thread in threads:
                thread.join()
        except BaseException:  # KeyboardInterrupt may be raised anywhere
            queue.abandon()
            for thread in filter(threading.Thread.is_alive, threads):
                thread.join()
            raise
    if queue.has_failed:
        raise queue.errors[min(n for n, error in queue.errors.items()
                               if not isinstance(error, tolerated))]
    return queue


def _build_here(queue: _Queue, first: Sequence[int], kernels: Sequence[KernelSource],
                target: Target, cache: DiskCache | None, task: progress.Task) -> None:
    from weft.compiler.build.kernel import build_kernel

    pending = deque(first)
    while (number := pending.popleft() if pending else queue.take()) is not None:
        try:
            kernel = kernels[number]
            is_keyed = not queue.tir_passes and is_self_contained(kernel.function, target)
            queue.built[number] = build_kernel(kernel.name, kernel.function, target, number,
                                               None if is_keyed else cache, queue.tir_passes)
        except BaseException as error:
            queue.errors[number] = error
            if not isinstance(error, Exception):
                raise  # an interrupt ends the build at once
            if queue.has_failed:
                return
        task.advance(kernels[number].text)


def _feed(worker: Worker, queue: _Queue, kernels: Sequence[KernelSource], target: Target,
          task: progress.Task) -> None:
    """Send kernels to one worker until the queue is empty."""
    with worker:
        while (number := queue.take()) is not None:
            try:
                queue.built[number] = worker.build(kernels[number], target)
            except Exception as error:  # noqa: BLE001 - raised again in the calling thread
                queue.errors[number] = error
                if queue.has_failed:
                    return
            task.advance(kernels[number].text)
