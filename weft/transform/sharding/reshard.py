"""From one sharding of a tensor to another: the collectives, and the bytes that they move."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from weft import op
from weft.ir import Expr, infer_expr
from weft.ir.sharding import Mesh, Sharding
from weft.support.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Step:
    """One collective along mesh axes: ``operator`` is its name in ``op.collective``."""

    operator: str
    axes: tuple[str, ...]
    dim: int
    join: int = 0

    def apply(self, x: Expr, mesh: Mesh) -> Expr:
        dims: dict[str, Any] = {"dim": self.dim}
        if self.operator == "all_to_all":
            dims = {"split": self.dim, "join": self.join}
        made = getattr(op.collective, self.operator)(x, axes=self.axes, size=mesh.parts(self.axes),
                                                     **dims)
        return infer_expr(made, trust=True)

    def bytes_moved(self, local: float, mesh: Mesh) -> float:
        """Bytes that each device receives, for an operand of ``local`` bytes on each."""
        n = mesh.parts(self.axes)
        return {"all_gather": local * (n - 1), "all_to_all": local * (n - 1) / n,
                "reduce_scatter": local * (n - 1) / n}.get(self.operator, 0.0)


def steps_between(source: Sharding, target: Sharding) -> Iterator[Step]:
    """The collectives that make ``target`` from ``source``, in order.

    An axis that moves from one dimension to another is an all-to-all, one that goes an all-gather,
    and one that comes takes a part of what the devices hold. The minor axes of a dimension go
    first.
    """
    dims = [list(axes) for axes in source.dims]
    for dim, axes in enumerate(dims):
        wanted = target.dims[dim]
        while axes and tuple(axes) != wanted[:len(axes)]:
            axis = axes.pop()
            place = next((d for d, there in enumerate(target.dims)
                          if d != dim and there[:len(dims[d]) + 1] == (*dims[d], axis)), None)
            if place is None:
                yield Step("all_gather", (axis,), dim)
            else:
                dims[place].append(axis)
                yield Step("all_to_all", (axis,), place, join=dim)
    for dim, axes in enumerate(dims):
        for axis in target.dims[dim][len(axes):]:
            yield Step("local_part", (axis,), dim)


def resharded(x: Expr, source: Sharding, target: Sharding, mesh: Mesh) -> Expr:
    """The local part of a tensor in another sharding."""
    for step in steps_between(source, target):
        x = step.apply(x, mesh)
    return x


def resharding_bytes(nbytes: float, source: Sharding, target: Sharding, mesh: Mesh) -> float:
    """Bytes that each device receives; ``nbytes`` is the size of the whole tensor."""
    local, moved = nbytes / mesh.parts(tuple(source.axes())), 0.0
    for step in steps_between(source, target):
        moved += step.bytes_moved(local, mesh)
        n = mesh.parts(step.axes)
        local *= {"all_gather": n, "local_part": 1 / n}.get(step.operator, 1)
    return moved


def all_reduce_bytes(local: float, axes: tuple[str, ...], mesh: Mesh) -> float:
    """Bytes that each device receives: a reduce-scatter and an all-gather of ``local`` bytes."""
    n = mesh.parts(axes)
    return 2 * local * (n - 1) / n
