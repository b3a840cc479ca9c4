"""MatMulNBits: matmuls with weights of 2, 4 or 8 bits, quantised in blocks along K."""

from __future__ import annotations

from weft import op
from weft.frontend.onnx.contrib.naming import contrib
from weft.frontend.onnx.node import Node, tensor_type
from weft.frontend.onnx.ops.cast import cast_to
from weft.frontend.onnx.registry import converts
from weft.frontend.onnx.reshaping import reshape_to
from weft.ir.expr import Expr


@converts(contrib("MatMulNBits"),
          attributes=("K", "N", "accuracy_level", "bits", "block_size", "weight_prepacked"))
def matmul_n_bits(node: Node) -> Expr:
    """A (…, K) times the transpose of (B - zero points) * scales, (N, K), plus a bias.

    B is uint8 (N, blocks, block_size * bits / 8); the first element of a byte is in its lowest
    bits. ``accuracy_level`` allows less exact products; it is not used.
    """
    n, k = node.attrs.integer("N", 0), node.attrs.integer("K", 0)
    bits, block = node.attrs.integer("bits", 4), node.attrs.integer("block_size", 0)
    if bits not in (2, 4, 8) or block < 1 or node.attrs.flag("weight_prepacked"):
        raise node.fail("bad attributes", expected="2, 4 or 8 bits, blocks, no packed weights",
                        got=f"bits {bits}, block_size {block}")
    if node.has_input(4):
        raise node.fail("input 'g_idx' is given", expected="weights in their order")
    blocks = -(-k // block)
    dtype = tensor_type(node.input(0)).dtype
    stored = _unpacked(node, node.input(1), bits, (n, blocks, block))
    real = node.call(op.subtract, cast_to(node, stored, dtype), _zeros(node, bits, n, blocks))
    scales = reshape_to(node, node.input(2), (n, blocks, 1))
    weights = reshape_to(node, node.call(op.multiply, real, scales), (n, blocks * block))
    if blocks * block > k:
        weights = node.call(op.strided_slice, weights, begin=(0,), end=(k,), strides=(1,),
                            axes=(1,))
    result = node.call(op.nn.dense, node.input(0), weights)
    return node.call(op.add, result, node.input(5)) if node.has_input(5) else result


def _zeros(node: Node, bits: int, n: int, blocks: int) -> Expr:
    """The zero points, (N, blocks, 1), in the dtype of A; packed, given, or the middle."""
    dtype = tensor_type(node.input(0)).dtype
    if not node.has_input(3):
        return node.constant(1 << bits - 1, dtype)
    zeros = node.input(3)
    if tensor_type(zeros).dtype.is_int:
        each = 8 // bits
        row = -(-blocks // each)
        zeros = _unpacked(node, reshape_to(node, zeros, (n, row)), bits, (n, row * each))
        zeros = node.call(op.strided_slice, zeros, begin=(0,), end=(blocks,), strides=(1,),
                          axes=(1,))
    return cast_to(node, reshape_to(node, zeros, (n, blocks, 1)), dtype)


def _unpacked(node: Node, packed: Expr, bits: int, shape: tuple[int, ...]) -> Expr:
    """The elements of the bytes, uint8, in ``shape``."""
    if bits == 8:
        return reshape_to(node, packed, shape)
    shifts = node.constant(range(0, 8, bits), "uint8")
    apart = node.call(op.expand_dims, packed, axis=tensor_type(packed).ndim, num_newaxis=1)
    moved = node.call(op.right_shift, apart, shifts)
    low = node.call(op.bitwise_and, moved, node.constant((1 << bits) - 1, "uint8"))
    return reshape_to(node, low, shape)
