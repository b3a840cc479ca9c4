"""How many rows of a tile fit into registers, as the strategy of a target says."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

from weft import te
from weft.ir import DType
from weft.te.tensor import ExternBody, Index
from weft.tir import Buffer, Stmt
from weft.topi.linalg.program import LANES

_ROWS: ContextVar[int] = ContextVar("rows_in_registers", default=LANES)


@contextmanager
def rows_in_registers(count: int) -> Iterator[None]:
    """Programs of computes that are made inside keep ``count`` rows in registers at a time."""
    token = _ROWS.set(count)
    try:
        yield
    finally:
        _ROWS.reset(token)


def rows_at_a_time() -> int:
    """The rows of a tile that an update takes at a time."""
    return _ROWS.get()


def extern(
    shapes: Sequence[Sequence[Index]], inputs: Sequence[te.Tensor], build: ExternBody,
    dtypes: Sequence[DType | str], name: str, flops: int = 0,
) -> tuple[te.Tensor, ...]:
    """``te.extern``, whose program has the rows in registers that hold here when it is written."""
    rows = rows_at_a_time()

    def written(sources: tuple[Buffer, ...], results: tuple[Buffer, ...]) -> Stmt:
        with rows_in_registers(rows):
            return build(sources, results)

    return te.extern(shapes, inputs, written, dtypes, name, flops)
