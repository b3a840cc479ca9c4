"""Running sums and products."""

from __future__ import annotations

from weft import te
from weft.ir.dtype import DType
from weft.tir.buffer import Buffer
from weft.tir.expr import PrimExpr, const, if_then_else
from weft.tir.stmt import BufferStore, Stmt
from weft.topi.loop_nest import nest
from weft.topi.scatter import COMBINE


def scan(
    x: te.Tensor, axis: int, dtype: DType, *, combine: str, exclusive: bool, reverse: bool
) -> te.Tensor:
    """``y[i] = combine(y[i - 1], x[i])`` along ``axis``; ``exclusive`` takes ``x[i - 1]``.

    ``reverse`` starts from the end. ``combine`` is "add" or "mul".
    """
    neutral = const(1 if combine == "mul" else 0, dtype)
    size = x.shape[axis]

    def build(inputs: tuple[Buffer, ...], outputs: tuple[Buffer, ...]) -> Stmt:
        source, target = inputs[0], outputs[0]

        def at(i: tuple[PrimExpr, ...], step: PrimExpr) -> tuple[PrimExpr, ...]:
            place = size - 1 - step if reverse else step
            return (*i[:axis], place, *i[axis + 1:])

        def advance(i: tuple[PrimExpr, ...]) -> Stmt:
            first, here, before = i[axis].equal(0), at(i, i[axis]), at(i, i[axis] - 1)
            taken = source.load(*(before if exclusive else here)).astype(dtype)
            start = neutral if exclusive else taken
            value = if_then_else(first, start, COMBINE[combine](target.load(*before), taken))
            return BufferStore(target, value, here)

        return nest(source.shape, advance, independent=axis != 0)

    return te.extern([x.shape], [x], build, [dtype], f"cum_{combine}")[0]
