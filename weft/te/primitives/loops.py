"""Changes of the loop nest of a stage: ``split``, ``tile``, ``fuse`` and ``reorder``."""

from __future__ import annotations

from weft.te.state import Fuse, Split, StageState
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


def check_split(stage: StageState, parent: IterVar, factor: int | None, nparts: int | None) -> None:
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


def reorder(self: StageState, *axes: IterVar) -> None:
    """Put the given loops in this order, at the positions that they occupy together.

    >>> k = te.reduce_axis(100, name="k")
    >>> B = te.compute((4, 8), lambda i, j: te.sum(A[k], axis=k), name="B")
    >>> s = te.create_schedule(B)
    >>> print(s)
    B(4, 8): root
      i in 4
      j in 8
      k in 100: reduce
    >>> s[B].reorder(k, B.op.axis[0])
    >>> print(s)
    B(4, 8): root
      k in 100: reduce
      j in 8
      i in 4
    """
    self.require_compute("reorder")
    positions = [self.leaf_index(axis) for axis in axes]
    if len(set(positions)) != len(positions):
        raise self.error("reorder names an axis twice")
    for axis in axes:
        self.require_no_instruction(axis, "reorder")
    for position, axis in zip(sorted(positions), axes, strict=True):
        self.leaf_iter_vars[position] = axis


def tile(
    self: StageState, x: IterVar, y: IterVar, x_factor: int, y_factor: int
) -> tuple[IterVar, IterVar, IterVar, IterVar]:
    """Split two loops and put the inner loops innermost; returns the four loops in order.

    >>> B = te.compute((8, 100), lambda i, j: A[j] * 2.0, name="B")
    >>> s = te.create_schedule(B)
    >>> print(s)
    B(8, 100): root
      i in 8
      j in 100
    >>> axes = s[B].tile(*B.op.axis, 4, 50)
    >>> print(s)
    B(8, 100): root
      i.outer in 2
      j.outer in 2
      i.inner in 4
      j.inner in 50
    """
    # All checks come before the first split: a primitive that raises leaves the stage as it was.
    for axis, factor in ((x, x_factor), (y, y_factor)):
        check_split(self, axis, factor, None)
    if x is y:
        raise self.error(f"tile of axis {x.name} with itself")
    x_outer, x_inner = split(self, x, factor=x_factor)
    y_outer, y_inner = split(self, y, factor=y_factor)
    reorder(self, x_outer, y_outer, x_inner, y_inner)
    return x_outer, y_outer, x_inner, y_inner


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
