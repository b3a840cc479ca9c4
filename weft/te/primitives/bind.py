"""``bind``: the iterations of a loop become the blocks or threads of a GPU."""

from __future__ import annotations

from weft.te.state import StageState
from weft.te.tensor import IterVar
from weft.tir.stmt import ForKind

THREAD_TAGS = tuple(f"{level}Idx.{d}" for level in ("block", "thread") for d in "xyz")


def bind(self: StageState, axis: IterVar, tag: str) -> None:
    """Run the iterations of an axis in the blocks or threads that ``tag`` names.

    Threads that share a reduction axis reduce their own terms and then combine the results, by
    warp shuffles and shared memory. Blocks cannot share one: use ``rfactor``. ``tag`` is one of
    ``blockIdx.x`` to ``threadIdx.z``. Lowering raises ``LoweringError`` on a target whose back end
    does not support it (``weft.tir.limits``), such as a CPU.

    >>> B = te.compute((100,), lambda i: A[i] + 1.0, name="B")
    >>> s = te.create_schedule(B)
    >>> print(s)
    B(100): root
      i in 100
    >>> s[B].bind(B.op.axis[0], "threadIdx.x")
    >>> print(s)
    B(100): root
      i in 100: threadIdx.x
    """
    self.require_compute("bind")
    if tag not in THREAD_TAGS:
        raise self.error(f"bind of axis {axis.name} to unknown index {tag!r}",
                         help=f"one of {', '.join(THREAD_TAGS)}")
    if tag.startswith("blockIdx"):
        self.require_data(axis, "bind", "blocks would add into the same elements")
    self.leaf_index(axis)
    for other, used in self.thread_tags.items():
        if used == tag and other is not axis:
            raise self.error(f"bind of axis {axis.name} to {tag}, to which {other.name} is bound")
    self.set_kind(axis, ForKind.THREAD_BINDING)
    self.thread_tags[axis] = tag
