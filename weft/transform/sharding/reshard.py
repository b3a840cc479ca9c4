"""From one sharding of a tensor to another: the collectives, and what they cost."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

from weft import op
from weft.ir import Call, Expr, infer_expr
from weft.ir.sharding import Mesh, Sharding
from weft.support.dataclass import dataclass
from weft.transform.sharding.costs import cost

Axes: TypeAlias = "tuple[str, ...]"


@dataclass(frozen=True, slots=True)
class Form:
    """How devices hold a tensor: its sharding, and the reductions that are still to be made.

    Of a ``partial`` tensor, the devices along the axes of each (reduction, axes) hold values that
    an all-reduce combines.
    """

    sharding: Sharding
    partial: tuple[tuple[str, Axes], ...] = ()


@dataclass(frozen=True, slots=True)
class Step:
    """One collective along mesh axes: ``operator`` is its name in ``op.collective``."""

    operator: str
    axes: Axes
    dim: int = 0
    join: int = 0
    reduction: str = "sum"

    def apply(self, x: Expr, mesh: Mesh) -> Call:
        attrs: dict[str, Any] = {"dim": self.dim}
        if self.operator == "all_to_all":
            attrs = {"split": self.dim, "join": self.join}
        elif self.operator == "all_reduce":
            attrs = {"reduction": self.reduction}
        made = infer_expr(getattr(op.collective, self.operator)(
            x, axes=self.axes, size=mesh.parts(self.axes), **attrs), trust=True)
        assert isinstance(made, Call)
        return made

    def scale(self, mesh: Mesh) -> float:
        """The size of the result, in operands."""
        n = mesh.parts(self.axes)
        return {"all_gather": n, "local_part": 1 / n, "reduce_scatter": 1 / n}.get(
            self.operator, 1.0)


def steps_between(source: Form, target: Sharding) -> Iterator[Step]:
    """The collectives that make ``target`` from ``source``, in order.

    A sum that the target cuts along the axes of its parts is a reduce-scatter. An axis that moves
    from one dimension to another is an all-to-all, one that goes an all-gather, and one that comes
    takes a part of what the devices hold. The minor axes of a dimension go first.
    """
    dims = [list(axes) for axes in source.sharding.dims]
    for reduction, axes in source.partial:
        dim = next((d for d, there in enumerate(target.dims) if reduction == "sum"
                    and there[:len(dims[d]) + len(axes)] == (*dims[d], *axes)), None)
        if dim is None:
            yield Step("all_reduce", axes, reduction=reduction)
        else:
            dims[dim] += axes
            yield Step("reduce_scatter", axes, dim)
    for dim in range(len(dims)):
        yield from _leaving(dim, dims, target)
    for dim, axes in enumerate(dims):
        if taken := target.dims[dim][len(axes):]:
            yield Step("local_part", taken, dim)


def _leaving(dim: int, dims: list[list[str]], target: Sharding) -> Iterator[Step]:
    """The axes that do not stay at a dimension; gathers of neighbouring axes are one."""
    axes, wanted, gathered = dims[dim], target.dims[dim], tuple[str, ...]()
    while axes and tuple(axes) != wanted[:len(axes)]:
        axis = axes.pop()
        place = next((d for d, there in enumerate(target.dims)
                      if d != dim and there[:len(dims[d]) + 1] == (*dims[d], axis)), None)
        if place is None:
            gathered = (axis, *gathered)
            continue
        if gathered:
            yield Step("all_gather", gathered, dim)
        gathered = ()
        dims[place].append(axis)
        yield Step("all_to_all", (axis,), place, join=dim)
    if gathered:
        yield Step("all_gather", gathered, dim)


def form_cost(nbytes: float, source: Form, target: Sharding, mesh: Mesh) -> float:
    """The cost of ``target`` from ``source``; ``nbytes`` is the size of the whole tensor."""
    local, total = nbytes / mesh.parts(tuple(source.sharding.axes())), 0.0
    for step in steps_between(source, target):
        total += cost(step.operator, local, step.axes, mesh)
        local *= step.scale(mesh)
    return total
