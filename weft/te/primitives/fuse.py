"""``fuse``: nested loops become one."""

from __future__ import annotations

from weft.te.state import Fuse, StageState
from weft.te.tensor import IterVar


def fuse(self: StageState, *axes: IterVar) -> IterVar:
    """Replace directly nested loops by one loop; returns it.

    The axes are given outermost first and must all be data axes or all be reduction axes.

    >>> B = te.compute((4, 100), lambda i, j: A[j] * 2.0, name="B")
    >>> s = te.create_schedule(B)
    >>> print(s)
    B(4, 100): root
      i in 4
      j in 100
    >>> fused = s[B].fuse(*B.op.axis)
    >>> print(s)
    B(4, 100): root
      i.j.fused in 400
    """
    self.require_compute("fuse")
    if not axes:
        raise self.error("fuse needs at least one axis")
    positions = [self.leaf_index(axis) for axis in axes]
    for outer, inner, position in zip(axes, axes[1:], positions, strict=False):
        _check_two(self, outer, inner, position)
    # Fusing one axis changes nothing, so its loop may have a kind or attached stages.
    for axis in axes if len(axes) > 1 else ():
        self.require_unused(axis, "fuse")
    fused = axes[0]
    for axis in axes[1:]:
        fused = _fuse_two(self, fused, axis)
    return fused


def _check_two(stage: StageState, outer: IterVar, inner: IterVar, position: int) -> None:
    if stage.leaf_index(inner) != position + 1:
        raise stage.error(
            f"fuse of {outer.name} and {inner.name}, which are not nested directly in this order",
            help="reorder the loops first",
        )
    if outer.kind != inner.kind:
        raise stage.error(f"fuse of {outer.kind} axis {outer.name} and {inner.kind} axis "
                          f"{inner.name}")


def _fuse_two(stage: StageState, outer: IterVar, inner: IterVar) -> IterVar:
    position = stage.leaf_index(outer)
    name = f"{outer.name.removesuffix('.fused')}.{inner.name}.fused"
    fused = stage.new_axis(name, outer.extent * inner.extent, outer.kind)
    stage.relations.append(Fuse(outer, inner, fused))
    stage.leaf_iter_vars[position : position + 2] = [fused]
    return fused
