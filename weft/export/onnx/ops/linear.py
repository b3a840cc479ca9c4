"""Matrix products."""

from __future__ import annotations

from weft.export.onnx.call import CallWriter
from weft.export.onnx.registry import writes
from weft.export.writers import Value
from weft.ir import DType


def _swapped(c: CallWriter, name: str, rank: int) -> str:
    return c.transposed(name, (*range(rank - 2), rank - 1, rank - 2))


def _product(c: CallWriter, a: str, b: str) -> str:
    """``MatMul`` in the dtype of the sum, which may be wider than the arguments."""
    want = c.result.dtype
    wide = want if want.is_float else DType("int", max(want.bits, 32))
    a, b = (c.as_dtype(n, t.dtype, wide) for n, t in zip((a, b), c.types, strict=True))
    return c.as_dtype(c.emit("MatMul", a, b), wide, want)


@writes("nn.dense")
def dense(c: CallWriter) -> Value | None:
    if c.attrs.weight_layout not in ("NK", "KN"):
        return c.no_form(f"weights of layout {c.attrs.weight_layout}")
    a, w = c.inputs
    return _product(c, a, _swapped(c, w, 2) if c.attrs.weight_layout == "NK" else w)


@writes("nn.matmul", "nn.batch_matmul")
def matmul(c: CallWriter) -> Value | None:
    a, b = c.inputs
    ranks = [t.ndim for t in c.types]
    if c.attrs.transpose_a and ranks[0] > 1:
        a = _swapped(c, a, ranks[0])
    if c.attrs.transpose_b and ranks[1] > 1:
        b = _swapped(c, b, ranks[1])
    if 1 in ranks and ranks != [1, 1]:
        return _with_vector(c, a, b, ranks)
    return _product(c, a, b)


def _with_vector(c: CallWriter, a: str, b: str, ranks: list[int]) -> Value:
    """A vector as a matrix: runtimes fuse transposes into products of matrices only."""
    if ranks[0] == 1:
        a = c.emit("Unsqueeze", a, c.ints(0))
    else:
        b = c.emit("Unsqueeze", b, c.ints(1))
    return c.emit("Squeeze", _product(c, a, b), c.ints(-2 if ranks[0] == 1 else -1))


@writes("einsum")
def einsum(c: CallWriter) -> Value:
    return c.upcast("Einsum", *c.inputs, equation=c.attrs.equation)
