"""Recurrences: tensors whose elements at one time depend on those before."""

from __future__ import annotations

from collections.abc import Sequence

from weft.support.errors import LoweringError
from weft.te.tensor import (
    ComputeOp,
    IterVar,
    PlaceholderOp,
    ScanOp,
    Tensor,
    data_axis,
)
from weft.tir.expr import PrimExpr, Var, int_value

Tensors = Tensor | Sequence[Tensor]


def scan(
    init: Tensors, update: Tensors, state: Tensors, name: str = "scan"
) -> Tensor | tuple[Tensor, ...]:
    """The tensors that ``init`` starts and ``update`` goes on with, along the first axis.

    ``state`` are placeholders of the whole result. ``init``, of shape ``(s, …)``, are its first
    ``s`` entries; ``update``, of the shape of the state, is entry ``t`` computed from entries of
    the state before ``t``, which it reads as ``state[t - 1, …]``. What lies between the state and
    the update is computed inside the loop over ``t``. One tensor for one of each, else a tuple.

    >>> x = te.placeholder((10, 4), name="x")
    >>> state = te.placeholder((10, 4))
    >>> first = te.compute((1, 4), lambda _, i: x[0, i])
    >>> following = te.compute((10, 4), lambda t, i: state[t - 1, i] + x[t, i])
    >>> te.scan(first, following, state).shape
    (10, 4)

    Raises ``LoweringError`` for tensors that do not fit together.
    """
    parts = tuple(tuple(p) if isinstance(p, Sequence) else (p,) for p in (init, update, state))
    inits, updates, states = parts
    if not len(inits) == len(updates) == len(states) or not states:
        raise LoweringError(f"{name}: a scan takes as many starts and updates as states",
                            got=", ".join(str(len(p)) for p in parts))
    for number, (first, following, whole) in enumerate(zip(inits, updates, states, strict=True)):
        _check(f"{name}, state {number}", first, following, whole)
    starts = {int_value(t.shape[0]) for t in inits}
    (start,) = starts if len(starts) == 1 else (None,)
    if start is None or start < 1:
        raise LoweringError(f"{name}: the starts have different or symbolic lengths",
                            got=", ".join(str(t.shape[0]) for t in inits))
    op = ScanOp(name, _time(name, states, start), inits, updates, states)
    return op.outputs[0] if isinstance(state, Tensor) else op.outputs


def _time(name: str, states: Sequence[Tensor], start: int) -> IterVar:
    """The axis over the entries that updates compute."""
    length: PrimExpr = states[0].shape[0]
    if any(t.shape[0] is not length for t in states):
        raise LoweringError(f"{name}: the states have different lengths",
                            got=", ".join(str(t.shape[0]) for t in states))
    steps = data_axis("t", length - start)
    return IterVar(Var("t"), steps.min + start, steps.extent)


def _check(where: str, first: Tensor, following: Tensor, whole: Tensor) -> None:
    if not isinstance(whole.op, PlaceholderOp):
        raise LoweringError(f"{where}: the state {whole.name} is no placeholder")
    for part, what in ((first, "start"), (following, "update")):
        if not isinstance(part.op, ComputeOp) or len(part.op.outputs) != 1:
            raise LoweringError(f"{where}: the {what} {part.name} is no te.compute of one tensor")
        if part.dtype != whole.dtype or part.shape[1:] != whole.shape[1:]:
            raise LoweringError(f"{where}: the {what} does not fit the state",
                                expected=f"{whole.dtype}[…, {_sizes(whole)}]",
                                got=f"{part.dtype}[…, {_sizes(part)}]")
    if following.shape != whole.shape:
        raise LoweringError(f"{where}: the update is not as long as the state",
                            expected=whole.shape[0], got=following.shape[0])


def _sizes(tensor: Tensor) -> str:
    return ", ".join(str(n) for n in tensor.shape[1:])
