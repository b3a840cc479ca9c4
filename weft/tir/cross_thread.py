"""Reductions whose terms are computed by different threads of a block."""

from __future__ import annotations

from weft.support.dataclass import dataclass
from weft.tir.buffer import Buffer
from weft.tir.expr import CommReducer

CROSS_THREAD_REDUCE = "cross_thread_reduce"


@dataclass(frozen=True, slots=True, eq=False)
class CrossThreadReduce:
    """The value of ``attr("cross_thread_reduce", …)`` around the use of a reduction's results.

    ``partial`` are local buffers of one element each, the partial results of a thread. Before the
    body runs, the threads that differ only in the indices ``tags`` combine them, and each of these
    threads gets the results.
    """

    combiner: CommReducer
    partial: tuple[Buffer, ...]
    tags: tuple[str, ...]

    def __repr__(self) -> str:
        names = ", ".join(buffer.name for buffer in self.partial)
        return f"{names} over {', '.join(self.tags)}"
