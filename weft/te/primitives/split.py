"""``split``: one loop becomes two."""

from __future__ import annotations

from weft.te.state import Split, StageState
from weft.te.tensor import IterVar


def split(
    self: StageState, parent: IterVar, factor: int | None = None, nparts: int | None = None
) -> tuple[IterVar, IterVar]:
    """Replace loop ``parent`` by an outer and an inner loop; returns both.

    ``factor`` is the extent of the inner loop, ``nparts`` that of the outer one. If it does not
    divide the parent's extent, the loops get a guard, which lowering peels into a tail loop.

    >>> B = te.compute((100,), lambda i: A[i] + 1.0, name="B")
    >>> s = te.create_schedule(B)
    >>> print(s)
    B(100): root
      i in 100
    >>> outer, inner = s[B].split(B.op.axis[0], factor=16)
    >>> print(s)
    B(100): root
      i.outer in 7
      i.inner in 16
    """
    check_split(self, parent, factor, nparts)
    position = self.leaf_index(parent)
    outer, inner = _new_axes(self, parent, factor, nparts)
    self.relations.append(Split(parent, outer, inner, factor, nparts))
    self.leaf_iter_vars[position : position + 1] = [outer, inner]
    return outer, inner


def check_split(
    stage: StageState, parent: IterVar, factor: int | None, nparts: int | None
) -> None:
    """Raise ``ScheduleError`` for an illegal split."""
    stage.require_compute("split")
    stage.leaf_index(parent)
    stage.require_unused(parent, "split")
    if (factor is None) == (nparts is None):
        raise stage.error("split needs either factor or nparts")
    size = factor if factor is not None else nparts
    if not isinstance(size, int) or isinstance(size, bool) or size < 1:
        raise stage.error(f"split of axis {parent.name} by {size!r}: it must be a positive integer")


def _new_axes(
    stage: StageState, parent: IterVar, factor: int | None, nparts: int | None
) -> tuple[IterVar, IterVar]:
    # A relation for its arithmetic alone: the new axes need their extents first.
    sizes = Split(parent, parent, parent, factor, nparts).extents(parent.extent)
    outer, inner = (
        stage.new_axis(f"{parent.name}.{suffix}", size, parent.kind)
        for suffix, size in zip(("outer", "inner"), sizes, strict=True)
    )
    return outer, inner
