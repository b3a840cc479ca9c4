"""Evaluation of GPU thread blocks: one thread after another, from barrier to barrier.

A nest of ``threadIdx`` loops is a block: its iterations are concurrent threads that all end before
the statement after the nest. ``barrier`` waits for all threads of the block. An element of shared
memory that one thread writes may be accessed by another only after the next barrier. The evaluator
detects all such data races of a run, whatever the order of the threads. A statement of the block
outside of all thread nests runs in one thread, with a barrier before and after it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Generator, Sequence
from typing import Any

import numpy as np

from weft.support.errors import LoweringError, WellFormedError
from weft.tir import stmt as s
from weft.tir.expr import Call
from weft.tir.visitor import all_exprs, post_order_stmts, vars_of

_NO_THREAD, _SEVERAL = -1, -2


def is_thread_loop(node: s.Stmt) -> bool:
    """Whether ``node`` is a loop over the threads of a block."""
    return (isinstance(node, s.For) and node.kind is s.ForKind.THREAD_BINDING
            and (node.thread_tag or "").startswith("threadIdx"))


def has_barrier(body: s.Stmt) -> bool:
    return any(type(e) is Call and e.name == "barrier" for e in all_exprs(body))


def thread_nest(outermost: s.For) -> tuple[list[s.For], s.Stmt]:
    """The thread loops of a block, outermost first, and the body of a thread.

    Raises ``LoweringError`` unless the loops are perfectly nested with independent extents.
    """
    loops, body = [outermost], outermost.body
    while isinstance(body, s.For) and is_thread_loop(body):
        loops.append(body)
        body = body.body
    if any(is_thread_loop(inner) for inner in post_order_stmts(body)):
        raise LoweringError("statements between thread loops", got=outermost.thread_tag,
                            help="nest the threadIdx loops of a block directly in each other")
    variables = {loop.loop_var for loop in loops}
    for loop in loops:
        if vars_of(loop.extent) & variables:
            raise LoweringError("extent of a thread loop depends on another thread index",
                                got=loop.extent)
    return loops, body


class Threads:
    """The running thread and the current phase; each barrier ends a phase."""

    def __init__(self) -> None:
        self.current = _NO_THREAD
        self.phase = 0

    def run(self, thread: Callable[..., Any], spans: Sequence[range]) -> None:
        """Run ``thread`` for every index: a function, or a generator that yields at barriers.

        Raises ``WellFormedError`` if only some threads reach a barrier.
        """
        self.phase += 1  # the statements before the nest ran in one thread
        # In reverse order, to expose programs that depend on the order.
        indices = list(enumerate(itertools.product(*spans)))[::-1]
        started: list[tuple[int, Generator[int, None, None]]] = []
        for number, index in indices:
            self.current = number
            result = thread(*index)
            if isinstance(result, Generator):
                started.append((number, result))
        while started and self._reach_barrier(started):
            self.phase += 1
        self.current = _NO_THREAD
        self.phase += 1

    def _reach_barrier(self, threads: Sequence[tuple[int, Generator[int, None, None]]]) -> bool:
        """Run all threads to their next barrier; ``False`` if they have ended."""
        barriers: list[int | None] = []
        for number, thread in threads:
            self.current = number
            barriers.append(next(thread, None))
        if len(set(barriers)) > 1:
            waiting = sum(barrier is not None for barrier in barriers)
            raise WellFormedError("barrier not reached by all threads of the block",
                                  got=f"{waiting} of {len(barriers)} threads wait at a barrier",
                                  help="move the barrier out of conditions that differ "
                                       "between threads")
        return barriers[0] is not None


class SharedMemory:
    """Shared memory of a block that records which thread accessed each element in this phase.

    Raises ``WellFormedError`` for a data race: accesses to one element by different threads in the
    same phase, at least one of them a store.
    """

    def __init__(self, name: str, values: np.ndarray, threads: Threads) -> None:
        self.name = name
        self.values = values
        self.threads = threads
        self.shape, self.dtype = values.shape, values.dtype
        self._writer, self._reader = (np.full(values.shape, _NO_THREAD) for _ in range(2))
        self._written, self._read = (np.full(values.shape, _NO_THREAD) for _ in range(2))

    def __getitem__(self, where: Any) -> Any:
        now, me = self.threads.phase, self.threads.current
        if np.any((self._written[where] == now) & (self._writer[where] != me)):
            self._conflict(where, "reads an element that another thread wrote")
        alone = (self._read[where] != now) | (self._reader[where] == me)
        self._reader[where] = np.where(alone, me, _SEVERAL)
        self._read[where] = now
        return self.values[where]

    def __setitem__(self, where: Any, value: Any) -> None:
        now, me = self.threads.phase, self.threads.current
        if np.any((self._written[where] == now) & (self._writer[where] != me)):
            self._conflict(where, "writes an element that another thread wrote")
        if np.any((self._read[where] == now) & (self._reader[where] != me)):
            self._conflict(where, "writes an element that another thread read")
        self._writer[where] = me
        self._written[where] = now
        self.values[where] = value

    def _conflict(self, where: Any, what: str) -> None:
        raise WellFormedError(f"data race on shared buffer {self.name}: a thread {what}",
                              got=f"elements {tuple(np.asarray(i).tolist() for i in where)}")
