"""Converters of Gemm and MatMul."""

from __future__ import annotations

from weft import op
from weft.frontend.onnx.node import Node, constant_value, tensor_type
from weft.frontend.onnx.registry import converts
from weft.frontend.onnx.reshaping import broadcast_to, reshape_to, shapes_fit
from weft.ir import Dim, Expr, Shape, dim_product, dims_equal

_MATRIX = 2


@converts("Gemm", attributes=("alpha", "beta", "transA", "transB"))
def gemm(node: Node) -> Expr:
    """Compute alpha * A B + beta * C; ``nn.dense`` takes B transposed, as most exporters do."""
    for index in (0, 1):
        if node.rank(index) != _MATRIX:
            raise node.fail(f"input {index} is not a matrix", got=f"rank {node.rank(index)}")
    a, b = node.input(0), node.input(1)
    if node.attrs.flag("transA"):
        a = transposed(node, a)
    if not node.attrs.flag("transB"):
        b = transposed(node, b)
    product = _scaled(node, node.call(op.nn.dense, a, b), node.attrs.number("alpha", 1.0))
    beta = node.attrs.number("beta", 1.0)
    if not node.has_input(2) or beta == 0:  # as in BLAS, beta 0 ignores C, even NaN
        return product
    result = node.call(op.add, product, _scaled(node, node.input(2), beta))
    if not shapes_fit(tensor_type(result).shape, tensor_type(product).shape):
        raise node.fail("C does not broadcast to A B", got=str(node.shape(2)),
                        expected=str(tensor_type(product).shape))
    return result


def _scaled(node: Node, value: Expr, factor: float) -> Expr:
    if factor == 1.0:
        return value
    return node.call(op.multiply, value, node.scalar_like(factor, value))


def transposed(node: Node, matrix: Expr) -> Expr:
    """Swap the last two axes."""
    rank = len(tensor_type(matrix).shape)
    axes = (*range(rank - 2), rank - 1, rank - 2)
    return node.call(op.transpose, matrix, axes=axes)


@converts("MatMul")
def matmul(node: Node) -> Expr:
    """NumPy's ``matmul``: vectors are expanded to matrices, batch axes broadcast."""
    a, b = node.input(0), node.input(1)
    if node.rank(0) == 0 or node.rank(1) == 0:
        raise node.fail("an input is a scalar", expected="rank 1 or more")
    a_is_vector, b_is_vector = node.rank(0) == 1, node.rank(1) == 1
    if a_is_vector:
        a = node.call(op.expand_dims, a, axis=0, num_newaxis=1)
    if b_is_vector:
        b = node.call(op.expand_dims, b, axis=1, num_newaxis=1)
    product = multiplied(node, a, b)
    rank = len(tensor_type(product).shape)
    dropped = [rank - 2] * a_is_vector + [rank - 1] * b_is_vector
    return node.call(op.squeeze, product, axis=tuple(dropped)) if dropped else product


def multiplied(node: Node, a: Expr, b: Expr, out_dtype: str | None = None) -> Expr:
    """Matmul of tensors of rank 2 or more; ``out_dtype`` defaults to that of the operands."""
    a_shape, b_shape = tensor_type(a).shape, tensor_type(b).shape
    if dims_equal(a_shape[-1], b_shape[-2]) is False:
        raise node.fail(
            "the inner sizes differ",
            expected=f"{a_shape[-1]} rows in the second input",
            got=str(b_shape[-2]),
        )
    if len(b_shape) == _MATRIX and (len(a_shape) > _MATRIX or constant_value(b) is not None):
        return node.call(op.nn.dense, a, transposed(node, b), out_dtype=out_dtype)
    if len(a_shape) == len(b_shape) == _MATRIX:
        return node.call(op.nn.matmul, a, b, transpose_a=False, transpose_b=False,
                         out_dtype=out_dtype)
    return _batched(node, a, b, out_dtype)


def _batched(node: Node, a: Expr, b: Expr, out_dtype: str | None) -> Expr:
    """Broadcast the batch axes and flatten them to the single one of ``batch_matmul``."""
    a_shape, b_shape = tensor_type(a).shape, tensor_type(b).shape
    batch = _broadcast_batch(node, a_shape[:-2], b_shape[:-2])
    product = node.call(
        op.nn.batch_matmul,
        _stacked(node, a, batch),
        _stacked(node, b, batch),
        transpose_a=False,
        transpose_b=False,
        out_dtype=out_dtype,
    )
    return reshape_to(node, product, (*batch, a_shape[-2], b_shape[-1]))


def _stacked(node: Node, value: Expr, batch: Shape) -> Expr:
    shape = tensor_type(value).shape
    full = (*batch, *shape[-2:])
    if shape != full and dim_product(shape[:-2]) != 1:
        value = broadcast_to(node, value, full)
    return reshape_to(node, value, (dim_product(tensor_type(value).shape[:-2]), *shape[-2:]))


def _broadcast_batch(node: Node, a: Shape, b: Shape) -> Shape:
    rank = max(len(a), len(b))
    pairs = zip((1,) * (rank - len(a)) + a, (1,) * (rank - len(b)) + b, strict=True)
    return tuple(_broadcast_dim(node, x, y) for x, y in pairs)


def _broadcast_dim(node: Node, x: Dim, y: Dim) -> Dim:
    if x != 1 and y != 1 and dims_equal(x, y) is False:
        raise node.fail("batch dimensions do not broadcast", expected=str(x), got=str(y))
    return y if x == 1 else x
