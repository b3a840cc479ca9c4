"""MatMulNBits and GatherBlockQuantized: weights of 2, 4 or 8 bits, quantised in blocks of a row.

Constant weights stay in their bits: they are stored anew, once, as the blocks that
``nn.block_quantized_dense`` reads. Others, and blocks of a size that no format has, are expanded.
"""

from __future__ import annotations

import numpy as np

from weft import op
from weft.frontend.common import arrays
from weft.frontend.common.typed import inferred
from weft.frontend.onnx.contrib.naming import contrib
from weft.frontend.onnx.node import Node, constant_value, tensor_type
from weft.frontend.onnx.ops.cast import cast_to
from weft.frontend.onnx.ops.gather import counted_from_start
from weft.frontend.onnx.registry import converts
from weft.frontend.onnx.reshaping import reshape_to
from weft.ir import Constant
from weft.ir.expr import Expr
from weft.support.errors import InvalidInputError
from weft.topi.nn.block_codes import Blocks, blocks_of_codes

_INT8_ACTIVATIONS = 4  # accuracy level: data may be rounded to int8, block by block


@converts(contrib("MatMulNBits"),
          attributes=("K", "N", "accuracy_level", "bits", "block_size", "weight_prepacked"))
def matmul_n_bits(node: Node) -> Expr:
    """A (…, K) times the transpose of (B - zero points) * scales, (N, K), plus a bias.

    B is uint8 (N, blocks, block_size * bits / 8); the first element of a byte is in its lowest
    bits. With ``accuracy_level`` 4 the products read int8 data.
    """
    n, k = node.attrs.integer("N", 0), node.attrs.integer("K", 0)
    bits, block = node.attrs.integer("bits", 4), node.attrs.integer("block_size", 0)
    if bits not in (2, 4, 8) or block < 1 or node.attrs.flag("weight_prepacked"):
        raise node.fail("bad attributes", expected="2, 4 or 8 bits, blocks, no packed weights",
                        got=f"bits {bits}, block_size {block}")
    if node.has_input(4):
        raise node.fail("input 'g_idx' is given", expected="weights in their order")
    stored = _matmul_blocks(node, bits, n, -(-k // block))
    if stored is None:
        result = node.call(op.nn.dense, node.input(0), _expanded(node, bits, n, k, block))
    else:
        data, padding = node.input(0), -(-k // block) * block - k
        if padding:
            sides = (*((0, 0),) * (node.rank() - 1), (0, padding))
            data = node.call(op.nn.pad, data, node.scalar_like(0, data), pad_width=sides)
        level = node.attrs.integer("accuracy_level", 0)
        result = node.call(op.nn.block_quantized_dense, data, Constant(stored.data),
                           format=stored.format,
                           activations="int8" if level == _INT8_ACTIVATIONS else "float32")
    return node.call(op.add, result, node.input(5)) if node.has_input(5) else result


def _matmul_blocks(node: Node, bits: int, n: int, groups: int) -> Blocks | None:
    """The weight in blocks; ``None`` if it is computed at run time, or in blocks of other sizes."""
    codes, scales, zeros = (constant_value(node.input(i)) if node.has_input(i) else None
                            for i in (1, 2, 3))
    if codes is None or scales is None or (zeros is None and node.has_input(3)):
        return None
    if codes.size % max(n * groups, 1) or scales.size != n * groups:
        raise node.fail("the weight and its scales do not fit",
                        expected=f"{n} rows of {groups} blocks",
                        got=f"{codes.shape} and {scales.shape}")
    if zeros is not None and zeros.dtype.kind in "iu":
        zeros = _codes(zeros.reshape(n, -1), bits)[:, :groups]
    return _blocks(node, _codes(codes.reshape(n, -1), bits), scales.reshape(n, groups),
                   None if zeros is None else zeros.reshape(n, groups), bits)


def _blocks(node: Node, codes: np.ndarray, scales: np.ndarray, zeros: np.ndarray | None, bits: int
            ) -> Blocks | None:
    zeros = None if zeros is None else zeros.astype(np.float32)
    try:
        return blocks_of_codes(codes, scales, zeros, bits=bits)
    except InvalidInputError as error:
        raise node.fail(error.what, expected=error.expected,
                        got=f"{error.got}, {error.where}") from None


def _codes(packed: np.ndarray, bits: int) -> np.ndarray:
    """The elements of bytes (rows, bytes), the first in the lowest bits."""
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    apart = packed[..., None] >> shifts & np.uint8((1 << bits) - 1)
    return apart.reshape(len(packed), -1)


def _expanded(node: Node, bits: int, n: int, k: int, block: int) -> Expr:
    """The weight of MatMulNBits as floats, (N, K)."""
    blocks = -(-k // block)
    dtype = tensor_type(node.input(0)).dtype
    stored = _unpacked(node, node.input(1), bits, (n, blocks, block))
    real = node.call(op.subtract, cast_to(node, stored, dtype), _zeros(node, bits, n, blocks))
    scales = reshape_to(node, node.input(2), (n, blocks, 1))
    weights = reshape_to(node, node.call(op.multiply, real, scales), (n, blocks * block))
    if blocks * block > k:
        weights = node.call(op.strided_slice, weights, begin=(0,), end=(k,), strides=(1,),
                            axes=(1,))
    return weights


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


@converts(contrib("GatherBlockQuantized"),
          attributes=("bits", "block_size", "gather_axis", "quantize_axis"))
def gather_block_quantized(node: Node) -> Expr:
    """Rows of a quantised matrix, as floats: ``data`` is uint8 in bits, int4 or uint4."""
    block, kind = node.attrs.integer("block_size", 128), node.dtype().name
    bits = node.attrs.integer("bits", 4) if kind == "uint8" else 4
    axes = [node.axis(node.attrs.integer(name, default), node.rank())
            for name, default in (("gather_axis", 0), ("quantize_axis", 1))]
    if axes != [0, 1] or node.rank() != 2 or bits not in (2, 4, 8) \
            or kind not in ("uint8", "int4", "uint4"):
        raise node.unsupported(
            "a gather of other than rows of integers", expected="gather_axis 0 and quantize_axis 1 "
            "of a matrix", got=f"axes {axes} of rank {node.rank()}, {bits} bits of {kind}")
    codes, scales = _row_codes(node, node.array(0, "data"), bits), node.array(2, "scales")
    zeros = _row_codes(node, node.array(3, "zero_points"), bits) if node.has_input(3) else None
    if zeros is None and kind != "uint8":
        zeros = arrays.full(scales.shape, 8 if kind == "int4" else 0)
    rows, width = codes.shape
    groups = -(-width // max(block, 1))
    if scales.shape != (rows, groups):
        raise node.fail("the scales do not fit the data", expected=f"shape ({rows}, {groups})",
                        got=str(scales.shape))
    whole = arrays.zeros((rows, groups * block), np.uint8)
    whole[:, :width] = codes
    stored = _blocks(node, whole, scales, None if zeros is None else zeros[:, :groups], bits)
    if stored is None:
        raise node.unsupported("a block size without a format", got=str(block),
                               expected="16, 32, 64 … neighbours")
    ids = counted_from_start(node, node.input(1), (rows,))
    taken = node.call(op.take, Constant(stored.data), ids, axis=0)
    found: Expr = inferred(op.nn.block_dequantize(taken, format=stored.format,  # type: ignore[arg-type]
                                                  dtype=node.dtype(2)))
    if groups * block == width:
        return found
    return node.call(op.strided_slice, found, begin=(0,), end=(width,), strides=(1,), axes=(-1,))


def _row_codes(node: Node, stored: np.ndarray, bits: int) -> np.ndarray:
    """Codes from 0, of bytes in bits, or of int4 and uint4."""
    if stored.ndim != 2:
        raise node.fail("a quantised table is not a matrix", got=str(stored.shape))
    if stored.dtype == np.uint8:
        return _codes(stored, bits)
    wide = stored.astype(np.int8)
    return (wide + (8 if stored.dtype.name == "int4" else 0)).astype(np.uint8)
