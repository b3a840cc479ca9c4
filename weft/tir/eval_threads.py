"""The threads of a GPU block as the evaluator runs them: in turn, from barrier to barrier.

A nest of ``threadIdx`` loops is a block: its iterations are threads that run side by side and all
end before what follows the nest. Inside, ``barrier`` waits for all of them. What one thread writes
to shared memory another may read or write only after the next barrier; the evaluator finds every
conflict of a run, in whichever order threads happen to go.
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

_NOBODY, _SEVERAL = -1, -2


def is_thread_loop(node: s.Stmt) -> bool:
    """Whether the iterations of a loop are threads of one block."""
    return (isinstance(node, s.For) and node.kind is s.ForKind.THREAD_BINDING
            and (node.thread_tag or "").startswith("threadIdx"))


def has_barrier(body: s.Stmt) -> bool:
    return any(type(e) is Call and e.name == "barrier" for e in all_exprs(body))


def thread_nest(outermost: s.For) -> tuple[list[s.For], s.Stmt]:
    """The loops of a block, outermost first, and what each thread does.

    Raises ``LoweringError`` for loops that do not make a box of threads.
    """
    loops, body = [outermost], outermost.body
    while isinstance(body, s.For) and is_thread_loop(body):
        loops.append(body)
        body = body.body
    if any(is_thread_loop(inner) for inner in post_order_stmts(body)):
        raise LoweringError("threads have statements between their loops", got=outermost.thread_tag,
                            help="nest the threadIdx loops of a block directly in each other")
    variables = {loop.loop_var for loop in loops}
    for loop in loops:
        if vars_of(loop.extent) & variables:
            raise LoweringError("the number of threads differs within a block", got=loop.extent)
    return loops, body


class Threads:
    """Which thread runs, and in which phase: phases end where all threads wait for each other."""

    def __init__(self) -> None:
        self.current = _NOBODY
        self.phase = 0

    def run(self, thread: Callable[..., Any], spans: Sequence[range]) -> None:
        """Run ``thread`` for every index: a function, or a generator that yields at barriers.

        Raises ``WellFormedError`` where some threads wait at a barrier that others do not reach.
        """
        # Backwards, so that depending on an order shows.
        indices = list(enumerate(itertools.product(*spans)))[::-1]
        started: list[tuple[int, Generator[int, None, None]]] = []
        for number, index in indices:
            self.current = number
            result = thread(*index)
            if isinstance(result, Generator):
                started.append((number, result))
        while started and self._reach_barrier(started):
            self.phase += 1
        self.current = _NOBODY
        self.phase += 1

    def _reach_barrier(self, threads: Sequence[tuple[int, Generator[int, None, None]]]) -> bool:
        """Run all threads to their next barrier; ``False`` where they have ended."""
        places: list[int | None] = []
        for number, thread in threads:
            self.current = number
            places.append(next(thread, None))
        if len(set(places)) > 1:
            waiting = sum(place is not None for place in places)
            raise WellFormedError("a barrier is not reached by all threads of its block",
                                  got=f"{waiting} of {len(places)} threads wait at one",
                                  help="no barrier may stand under a condition that threads "
                                       "decide differently")
        return places[0] is not None


class SharedMemory:
    """Memory of a block that knows who used which element in this phase.

    Raises ``WellFormedError`` for two uses by different threads, one of them a store, without a
    barrier between.
    """

    def __init__(self, name: str, values: np.ndarray, threads: Threads) -> None:
        self.name = name
        self.values = values
        self.threads = threads
        self.shape, self.dtype = values.shape, values.dtype
        self._writer, self._reader = (np.full(values.shape, _NOBODY) for _ in range(2))
        self._written, self._read = (np.full(values.shape, _NOBODY) for _ in range(2))

    def __getitem__(self, where: Any) -> Any:
        now, me = self.threads.phase, self.threads.current
        if np.any((self._written[where] == now) & (self._writer[where] != me)):
            self._conflict(where, "reads what another has written")
        alone = (self._read[where] != now) | (self._reader[where] == me)
        self._reader[where] = np.where(alone, me, _SEVERAL)
        self._read[where] = now
        return self.values[where]

    def __setitem__(self, where: Any, value: Any) -> None:
        now, me = self.threads.phase, self.threads.current
        if np.any((self._written[where] == now) & (self._writer[where] != me)):
            self._conflict(where, "writes what another has written")
        if np.any((self._read[where] == now) & (self._reader[where] != me)):
            self._conflict(where, "writes what another reads")
        self._writer[where] = me
        self._written[where] = now
        self.values[where] = value

    def _conflict(self, where: Any, what: str) -> None:
        raise WellFormedError(f"a thread {what}, with no barrier between: {self.name}",
                              got=f"elements {tuple(np.asarray(i).tolist() for i in where)}")
