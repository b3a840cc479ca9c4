"""How a loop runs: ``parallel``, ``vectorize``, ``unroll``, ``bind`` (GPU), ``pragma``."""

from __future__ import annotations

from weft.te.state import AttachAt, StageState
from weft.te.tensor import IterVar
from weft.tir import ForKind, int_value


def parallel(self: StageState, axis: IterVar) -> None:
    """Run the iterations of a data axis on several threads.

    >>> B = te.compute((100,), lambda i: A[i] + 1.0, name="B")
    >>> s = te.create_schedule(B)
    >>> print(s)
    B(100): root
      i in 100
    >>> s[B].parallel(B.op.axis[0])
    >>> print(s)
    B(100): root
      i in 100: parallel
    """
    self.require_compute("parallel")
    self.require_data(axis, "parallel", "its iterations add into the same elements")
    self.set_kind(axis, ForKind.PARALLEL)


def vectorize(self: StageState, axis: IterVar) -> None:
    """Compute all iterations of a data axis at once, in vectors of the axis' extent.

    >>> B = te.compute((100,), lambda i: A[i] + 1.0, name="B")
    >>> s = te.create_schedule(B)
    >>> outer, inner = s[B].split(B.op.axis[0], factor=16)
    >>> print(s)
    B(100): root
      i.outer in 7
      i.inner in 16
    >>> s[B].vectorize(inner)
    >>> print(s)
    B(100): root
      i.outer in 7
      i.inner in 16: vectorized
    """
    self.require_compute("vectorize")
    self.require_data(axis, "vectorize", "its iterations add into the same elements")
    # The region of a stage that is computed at a loop may be constant; lowering checks that.
    if int_value(axis.extent) is None and not isinstance(self.attach, AttachAt):
        raise self.error(f"vectorize of axis {axis.name}, whose extent {axis.extent} is symbolic",
                         help="split it by the number of lanes and vectorize the inner axis")
    for other, kind in self.kinds.items():
        if kind is ForKind.VECTORIZED and other is not axis:
            raise self.error(f"vectorize of axis {axis.name} beside {other.name}",
                             help="fuse the two loops and vectorize the result")
    for stage in self.schedule.stages:
        at = stage.attach
        if isinstance(at, AttachAt) and at.stage is self and at.axis is axis:
            raise self.error(f"vectorize of axis {axis.name}, at which {stage.name} is computed")
    for ahead in self.prefetches:
        if self.leaf_index(ahead.axis) >= self.leaf_index(axis):
            raise self.error(f"vectorize of axis {axis.name}, inside which {ahead.tensor.name} is "
                             "prefetched")
    self.set_kind(axis, ForKind.VECTORIZED)


def unroll(self: StageState, axis: IterVar) -> None:
    """Replicate the body of a loop of constant extent, with a constant index in each copy.

    A stage that is computed for a tile of its consumer has constant extents even where those of its
    tensor are symbolic, so the extent is checked by ``lower``.

    >>> B = te.compute((4, 25), lambda i, j: A[j] + 1.0, name="B")
    >>> s = te.create_schedule(B)
    >>> print(s)
    B(4, 25): root
      i in 4
      j in 25
    >>> s[B].unroll(B.op.axis[0])
    >>> print(s)
    B(4, 25): root
      i in 4: unrolled
      j in 25
    """
    self.require_compute("unroll")
    self.leaf_index(axis)
    self.set_kind(axis, ForKind.UNROLLED)


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


def pragma(self: StageState, axis: IterVar, key: str, value: object = True) -> None:
    """Annotate loop ``axis`` with ``key`` and ``value``; computed values do not change.

    >>> B = te.compute((100,), lambda i: A[i] + 1.0, name="B")
    >>> s = te.create_schedule(B)
    >>> print(s)
    B(100): root
      i in 100
    >>> s[B].pragma(B.op.axis[0], "unroll_max_step", 4)
    >>> print(s)
    B(100): root
      i in 100: unroll_max_step=4
    """
    self.require_compute("pragma")
    self.leaf_index(axis)
    self.pragmas.setdefault(axis, {})[key] = value
