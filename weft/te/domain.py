"""Extents of loops and values of axes, derived from the splits and fusions of a stage.

Loops always count from zero. Axis values here are relative to the lowest index that the stage
computes (or to the minimum of a reduction axis); callers add it for the absolute index.
"""

from __future__ import annotations

from collections.abc import Mapping

from weft.te.state import Relation, Split, StageState
from weft.te.tensor import IterVar
from weft.tir.expr import PrimExpr, floordiv, floormod, int_value

Exprs = dict[IterVar, PrimExpr]


def loop_extents(stage: StageState, roots: Mapping[IterVar, PrimExpr]) -> Exprs:
    """The extent of every axis of ``stage``, given the extents of its root axes."""
    extents: Exprs = dict(roots)
    for r in stage.relations:
        if isinstance(r, Split):
            extents[r.outer], extents[r.inner] = r.extents(extents[r.parent])
        else:
            extents[r.fused] = extents[r.outer] * extents[r.inner]
    return extents


def axis_values(
    relations: list[Relation], leaves: Mapping[IterVar, PrimExpr], extents: Exprs
) -> Exprs:
    """The relative value of every axis, given the values of the leaf loops."""
    values: Exprs = dict(leaves)
    # A relation may split or fuse the axes of an earlier one, never those of a later one.
    for r in reversed(relations):
        if isinstance(r, Split):
            values[r.parent] = values[r.outer] * extents[r.inner] + values[r.inner]
        else:
            values[r.outer] = _quotient(values[r.fused], extents[r.outer], extents[r.inner])
            values[r.inner] = _remainder(values[r.fused], extents[r.outer], extents[r.inner])
    return values


def _quotient(fused: PrimExpr, outer: PrimExpr, inner: PrimExpr) -> PrimExpr:
    # The value of an axis of extent 1 is 0.
    if int_value(outer) == 1:
        return outer - 1
    # With an empty inner axis the loop never runs, so any value is correct.
    return fused if int_value(inner) in (0, 1) else floordiv(fused, inner)


def _remainder(fused: PrimExpr, outer: PrimExpr, inner: PrimExpr) -> PrimExpr:
    if int_value(inner) == 1:
        return inner - 1
    return fused if int_value(outer) == 1 or int_value(inner) == 0 else floormod(fused, inner)


def overruns(stage: StageState, extents: Exprs) -> list[IterVar]:
    """The axes whose value must be compared with their extent because a split was not exact.

    A split whose factor does not divide the extent makes its parent overrun. If the parent is the
    outer loop of another split, the check of that split's parent covers it; if it is an inner
    loop, tiles would overlap, so it needs a separate check.
    """
    over: set[IterVar] = set()
    checks: list[IterVar] = []
    for r in reversed(stage.relations):
        if isinstance(r, Split):
            if r.inner in over:
                checks.append(r.inner)
            if r.outer in over or not _is_exact(r, extents):
                over.add(r.parent)
        elif r.fused in over:
            checks.append(r.fused)
    return checks + [a for a in stage.root_iter_vars if a in over]


def _is_exact(split: Split, extents: Exprs) -> bool:
    """Whether the split covers its parent without a remainder."""
    parent, outer, inner = (extents[a] for a in (split.parent, split.outer, split.inner))
    total, o, i = int_value(parent), int_value(outer), int_value(inner)
    if total is not None and o is not None and i is not None:
        return o * i == total
    # One iteration of a loop does not make the other one equal to a symbolic parent: all sizes of
    # ``n{1..9}`` fit in one tile of 16.
    return (i == 1 and outer is parent) or (o == 1 and inner is parent)
