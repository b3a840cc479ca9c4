"""Weights that a program stores as small integers stay so: their dequantisation becomes blocks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from weft import ir, op
from weft.support.dataclass import dataclass
from weft.support.errors import InvalidInputError
from weft.transform.analysis import graph
from weft.transform.passes.fold_constant import evaluate_constant

if TYPE_CHECKING:
    from weft.topi.nn.block_codes import Blocks

_MATRIX = 2
_PACKED = 4  # elements of 2 bits in a byte


@ir.register_pass
@dataclass(frozen=True)
class PackBlockWeights(ir.FunctionPass):
    """Replace constant weights that arithmetic makes of integers by weights in blocks.

    Models write weight-only quantisation as operators: int8, int4 or uint4 elements are cast,
    a zero point is subtracted, a scale per row or group multiplied, and a matmul or a lookup of
    rows reads the floats. The pass evaluates the arithmetic at two values of the integers, which
    gives scale and offset of each element, finds the groups that share them, and checks the result.
    Where the arithmetic is something else, or the groups have no format, the program stays.

    def @main(%x: Tensor[(2, 16), float32]) {
      nn.dense(%x, multiply(
        cast(const([1, -2, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 7], (1, 16), int8),
             dtype="float32"), 0.5f))
    }
    =>
    def @main(%x: Tensor[(2, 16), float32]) {
      nn.block_quantized_dense(
        %x, const([0, 56, 153, 150, 153, 153, 153, 153, 153, 249], (1, 10), uint8),
        format="int4_g16")
    }
    """

    name: ClassVar[str] = "pack_block_weights"
    opt_level: ClassVar[int] = 1
    seeks: ClassVar[ir.Seeks] = ir.Seeks(operators=("cast", "qnn.dequantize"))

    def run(self, fn: ir.Function, ctx: ir.PassContext) -> ir.Function:  # noqa: ARG002
        constant = _constant_nodes(fn)
        found: dict[tuple[ir.Expr, bool], tuple[ir.Constant, str] | None] = {}

        def step(original: ir.Expr, node: ir.Expr) -> ir.Expr:
            read = _read(original)
            if read is None or not isinstance(node, ir.Call):
                return node
            weight, is_transposed = read
            if weight not in constant or not _is_weight(weight):
                return node
            if read not in found:
                made = packed(weight, is_transposed=is_transposed)
                found[read] = None if made is None else (
                    ir.Constant(made.data, span=weight.span), made.format)
            blocks = found[read]
            return node if blocks is None else _over_blocks(node, *blocks)

        return graph.rewrite_function(fn, step)


def _constant_nodes(fn: ir.Function) -> set[ir.Expr]:
    """The nodes that depend on constants alone, and can be evaluated."""
    found: set[ir.Expr] = set()
    for node in ir.post_order(fn, enter=graph.enters):
        if isinstance(node, ir.Constant):
            found.add(node)
        elif isinstance(node, ir.Call) and isinstance(node.op, ir.Op):
            if node.op.reference is not None and not node.op.traits.has_effect \
                    and not ir.has_symbols(node.attrs) and all(a in found for a in node.args):
                found.add(node)
        elif isinstance(node, ir.Tuple) and all(f in found for f in node.fields):
            found.add(node)
    return found


def _read(call: ir.Expr) -> tuple[ir.Expr, bool] | None:
    """The matrix that a matmul or a lookup of rows reads, and whether its rows are columns."""
    name = graph.op_name(call)
    if not isinstance(call, ir.Call) or not graph.is_known_tensor(call):
        return None
    attrs: Any = call.attrs
    if name == "nn.dense" and attrs.weight_layout in ("NK", "KN"):
        return call.args[1], attrs.weight_layout == "KN"
    if name == "nn.matmul" and not attrs.transpose_a:
        return call.args[1], not attrs.transpose_b
    if name == "take" and attrs.axis == 0:
        return call.args[0], False
    return None


def _is_weight(expr: ir.Expr) -> bool:
    """Whether a node computes a matrix of floats."""
    if not isinstance(expr, ir.Call) or not graph.is_known_tensor(expr):
        return False
    type_ = graph.tensor_type_of(expr)
    return type_.dtype.is_float and type_.ndim == _MATRIX and ir.is_static(type_)


def _over_blocks(call: ir.Call, blocks: ir.Constant, format: str) -> ir.Expr:
    if graph.op_name(call) == "take":
        rows = call.replace(args=(blocks, call.args[1]), checked_type=None)
        return op.nn.block_dequantize(rows, format=format, span=call.span,
                                      dtype=graph.tensor_type_of(call).dtype)
    return op.nn.block_quantized_dense(call.args[0], blocks, format=format, span=call.span)


def packed(weight: ir.Expr, *, is_transposed: bool = False) -> Blocks | None:
    """A constant expression [N, K] (or [K, N]) in blocks along K; ``None`` if it is not affine."""
    integers = _integers(weight)
    if integers is None:
        return None

    def values(replaced: np.ndarray | None = None) -> np.ndarray:
        known = {} if replaced is None else {integers: replaced}
        found = _evaluated(weight, known).astype(np.float32)
        return found.T if is_transposed else found

    low, high = _range(graph.tensor_type_of(integers).dtype)
    shape = graph.tensor_type_of(integers).concrete_shape
    dtype = graph.tensor_type_of(integers).dtype.numpy
    offset = values(np.zeros(shape, dtype))
    if offset.any():
        scale = (values(np.full(shape, high, dtype)) - values(np.full(shape, low, dtype)))
        scale /= np.float32(high - low)
    else:
        scale = values(np.ones(shape, dtype))
    return _grouped(values(), scale, offset, _rounding(weight))


def _range(dtype: ir.DType) -> tuple[int, int]:
    return (-(1 << dtype.bits - 1), (1 << dtype.bits - 1) - 1) if dtype.code == "int" \
        else (0, (1 << dtype.bits) - 1)


def _rounding(weight: ir.Expr) -> float:
    """A bound of the relative error of an element: some roundings of the narrowest float."""
    bits = [graph.tensor_type_of(n).dtype for n in ir.post_order(weight)
            if graph.is_known_tensor(n) and graph.tensor_type_of(n).dtype.is_float]
    narrow = {"bfloat16": 2.0 ** -7, "float16": 2.0 ** -10}
    return max(narrow.get(dtype.name, 2.0 ** -20) for dtype in bits)


def _integers(weight: ir.Expr) -> ir.Expr | None:
    """The one tensor of at most 8 bits with (at least) the elements of the weight that is cast.

    Zero points may be repeated to as many elements; they are stored as fewer.
    """
    size = _size(weight)
    found: set[ir.Expr] = set()
    for node in ir.post_order(weight):
        if graph.op_name(node) in ("cast", "qnn.dequantize") and isinstance(node, ir.Call):
            data = node.args[0]
            if _is_narrow(data) and _size(data) >= size and any(
                    _is_narrow(leaf) and _size(leaf) * _PACKED >= size
                    for leaf in ir.post_order(data) if isinstance(leaf, ir.Constant)):
                found.add(data)
    return found.pop() if len(found) == 1 else None


def _is_narrow(expr: ir.Expr) -> bool:
    dtype = graph.tensor_type_of(expr).dtype
    return dtype.is_int and dtype.bits <= 8


def _size(expr: ir.Expr) -> int:
    return int(np.prod(graph.tensor_type_of(expr).concrete_shape))


def _evaluated(root: ir.Expr, known: Mapping[ir.Expr, np.ndarray]) -> np.ndarray:
    """The value of a constant expression with other values of some of its nodes."""
    values: dict[ir.Expr, ir.Expr] = {node: ir.Constant(a) for node, a in known.items()}
    for node in ir.post_order(root, enter=lambda e: e not in known):
        if node in values:
            continue
        values[node] = node
        if ir.children(node):
            over = graph.over_new_children(node, values.__getitem__)
            values[node] = evaluate_constant(over, graph.type_of(node)) \
                if isinstance(over, ir.Call) else over
    return values[root].data  # type: ignore[attr-defined]


def _grouped(values: np.ndarray, scale: np.ndarray, offset: np.ndarray, rounding: float
             ) -> Blocks | None:
    """``values`` as ``scale * code + offset`` in blocks, if whole groups share them."""
    from weft.topi.nn.block_codes import blocks_of_codes
    from weft.topi.nn.block_family import GROUPS

    elements = values.shape[1]
    size = next((g for g in sorted(GROUPS, reverse=True) if not elements % g and _is_shared(
        scale, g) and _is_shared(offset, g)), None)
    if size is None or not np.isfinite(scale).all() or not np.isfinite(offset).all():
        return None
    scales, offsets = scale[:, ::size], offset[:, ::size]
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        codes = np.rint(np.where(scale == 0, 0, (values - offset) / scale))
    error = np.abs(scale * codes + offset - values)
    if not (error <= rounding * (np.abs(values) + np.abs(offset) + np.abs(scale))).all():
        return None
    first, bits = _storage(codes)
    if bits is None:
        return None
    with np.errstate(divide="ignore", invalid="ignore"):
        zeros = np.where(scales == 0, 0, -offsets / scales) - first
    near = np.rint(zeros)
    zeros = np.where(np.abs(zeros - near) < 2.0 ** -6, near, zeros)
    if (scales == 0).any() and offsets[scales == 0].any():
        return None  # a group of one value that is not zero
    try:
        return blocks_of_codes((codes - first).astype(np.uint8), scales, zeros, bits=bits)
    except InvalidInputError:
        return None


def _is_shared(values: np.ndarray, size: int) -> bool:
    grouped = values.reshape(len(values), -1, size)
    return bool((grouped == grouped[..., :1]).all())


def _storage(codes: np.ndarray) -> tuple[int, int | None]:
    """The least code of a storage of 4 or 8 bits that holds all codes, and its bits."""
    low, high = codes.min(), codes.max()
    for first, bits in ((0, 4), (-8, 4), (0, 8), (-128, 8)):
        if first <= low and high < first + (1 << bits):
            return first, bits
    return 0, None
