"""Scans: tensors whose entries along the time axis depend on earlier entries."""

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
    """A recurrence along the first axis: ``init`` gives the first entries, ``update`` the others.

    ``state`` is a placeholder of the whole result, of shape ``(T, …)``. ``init``, of shape
    ``(s, …)``, computes entries ``0`` to ``s - 1``. ``update``, of the shape of the state,
    computes entry ``t`` from earlier entries, which it reads as ``state[t - 1, …]``; stages
    between the state and the update are computed inside the time loop. Sequences of equal length
    make a scan of several states and give a tuple of results.

    >>> x = te.placeholder((10, 4), name="x")
    >>> state = te.placeholder((10, 4))
    >>> first = te.compute((1, 4), lambda _, i: x[0, i])
    >>> following = te.compute((10, 4), lambda t, i: state[t - 1, i] + x[t, i])
    >>> te.scan(first, following, state).shape
    (10, 4)

    Raises ``LoweringError`` for shapes or dtypes that do not match.
    """
    given = tuple(tuple(x) if isinstance(x, Sequence) else (x,) for x in (init, update, state))
    inits, updates, states = given
    if not len(inits) == len(updates) == len(states) or not states:
        raise LoweringError(f"{name}: a scan takes as many inits and updates as states",
                            got=", ".join(str(len(x)) for x in given))
    for number, (first, following, whole) in enumerate(zip(inits, updates, states, strict=True)):
        _check(f"{name}, state {number}", first, following, whole)
    starts = {int_value(t.shape[0]) for t in inits}
    (start,) = starts if len(starts) == 1 else (None,)
    if start is None or start < 1:
        raise LoweringError(f"{name}: the inits have different or symbolic lengths",
                            got=", ".join(str(t.shape[0]) for t in inits))
    op = ScanOp(name, _time(name, states, start), inits, updates, states)
    return op.outputs[0] if isinstance(state, Tensor) else op.outputs


def _time(name: str, states: Sequence[Tensor], start: int) -> IterVar:
    """The time axis: the entries that updates compute."""
    length: PrimExpr = states[0].shape[0]
    if any(t.shape[0] is not length for t in states):
        raise LoweringError(f"{name}: the states have different lengths",
                            got=", ".join(str(t.shape[0]) for t in states))
    steps = data_axis("t", length - start)
    return IterVar(Var("t"), steps.min + start, steps.extent)


def _check(where: str, first: Tensor, following: Tensor, whole: Tensor) -> None:
    if not isinstance(whole.op, PlaceholderOp):
        raise LoweringError(f"{where}: the state {whole.name} is not a placeholder")
    for tensor, what in ((first, "init"), (following, "update")):
        if not isinstance(tensor.op, ComputeOp) or len(tensor.op.outputs) != 1:
            raise LoweringError(f"{where}: the {what} {tensor.name} is not a te.compute with one "
                                "output")
        if tensor.dtype != whole.dtype or tensor.shape[1:] != whole.shape[1:]:
            raise LoweringError(f"{where}: the {what} does not match the state",
                                expected=f"{whole.dtype}[…, {_sizes(whole)}]",
                                got=f"{tensor.dtype}[…, {_sizes(tensor)}]")
    if following.shape != whole.shape:
        raise LoweringError(f"{where}: the update and the state differ in length",
                            expected=whole.shape[0], got=following.shape[0])


def _sizes(tensor: Tensor) -> str:
    return ", ".join(str(n) for n in tensor.shape[1:])
