"""Scratch memory inside parallel loops whose size is known only at run time."""

from __future__ import annotations

from weft.support.dataclass import dataclass
from weft.tir.expr import PrimExpr

# Thread stacks have a few MiB: larger buffers go to the workspace, and those of one loop body that
# exceed the total.
MAX_STACK_BYTES, MAX_TOTAL_STACK_BYTES = 512 * 1024, 2 << 20


@dataclass(frozen=True, slots=True)
class TaskScratch:
    """Scratch memory of one buffer for each task, a range of iterations of a parallel loop.

    ``size`` is the number of bytes, a multiple of 64 over the size parameters of the kernel. Up to
    ``MAX_STACK_BYTES`` the memory is on the stack of the thread. Above that, task ``[begin, end)``
    uses the workspace from byte ``offset + begin * size`` on: tasks run at the same time, and no
    two have the same first iteration. Without an offset the buffer is always on the stack.
    """

    size: PrimExpr
    offset: PrimExpr | None = None
