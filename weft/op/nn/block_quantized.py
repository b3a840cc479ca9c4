"""Matmuls with weights quantised in blocks, and their dequantisation: weights stay as stored."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from weft import op, te
from weft.ir import (
    Attrs,
    Call,
    Constant,
    DType,
    Expr,
    OpTraits,
    TensorType,
    attr,
    float32,
    infer_expr,
)
from weft.ir.block_dtype import block_name
from weft.ir.op import Case, OpPattern, define_op, op_case
from weft.ir.shape import Dim
from weft.ir.typing.relation import RelationContext
from weft.op.gradients import attrs_of, tensor_type, typed_zeros
from weft.support.dataclass import dataclass
from weft.topi.nn import block_quantized as topi
from weft.topi.nn.block_encode import encodes, quantize_blocks
from weft.topi.nn.block_formats import FORMATS, NAMES, BlockFormat, block_format, find_block_format
from weft.topi.nn.block_quantized import Activations

_FORMAT = f"layout of the blocks: {NAMES}"


@dataclass(frozen=True, kw_only=True)
class BlockQuantizedDenseAttrs(Attrs):
    format: str = attr("q8_0", _FORMAT)
    activations: Activations = attr(
        Activations.FLOAT32, "what products read of the data: float32, or int8 in groups of 32")


@dataclass(frozen=True, kw_only=True)
class BlockDequantizeAttrs(Attrs):
    format: str = attr("q8_0", _FORMAT)
    dtype: DType = attr(float32, "dtype of the elements")


def _elements(ctx: RelationContext, arg: int, blocks: TensorType, name: str) -> Dim:
    """The number of elements of a row of blocks; tensors of blocks have a format of their own."""
    if blocks.dtype.is_block:
        return blocks.shape[-1] * block_format(blocks.dtype.code).elements
    if blocks.dtype.code != "uint" or blocks.dtype.bits != 8:
        ctx.fail("blocks are bytes", arg=arg, expected="uint8", got=blocks.dtype)
    if find_block_format(name) is None:
        ctx.fail("unknown block format", expected=NAMES, got=name)
    form, size = block_format(name), blocks.shape[-1]
    if not isinstance(size, int) or size % form.nbytes:
        ctx.fail(f"a row of {name} is not a number of whole blocks", arg=arg,
                 axis=blocks.ndim - 1, expected=f"a multiple of {form.nbytes} bytes", got=size)
    return size // form.nbytes * form.elements


def _dense_relation(ctx: RelationContext) -> bool:
    types = ctx.tensors_known(2)
    if types is None:
        return False
    data, weight = types
    ctx.expect_min_rank(0, data, 1)
    ctx.expect_float(0, data)
    ctx.expect_rank(1, weight, 2)
    elements = _elements(ctx, 1, weight, ctx.attrs_as(BlockQuantizedDenseAttrs).format)
    ctx.expect_dim(0, data.ndim - 1, data.shape[-1], elements, "the inner sizes do not match",
                   why=" (the elements of a row of the weight)")
    ctx.output(TensorType((*data.shape[:-1], weight.shape[0]), data.dtype))
    return True


def _dequantize_relation(ctx: RelationContext) -> bool:
    types = ctx.tensors_known(1)
    if types is None:
        return False
    attrs = ctx.attrs_as(BlockDequantizeAttrs)
    ctx.expect_min_rank(0, types[0], 1)
    if not attrs.dtype.is_float:
        ctx.fail("elements of blocks are floats", expected="a float dtype", got=attrs.dtype)
    elements = _elements(ctx, 0, types[0], attrs.format)
    ctx.output(TensorType((*types[0].shape[:-1], elements), attrs.dtype))
    return True


@define_op("nn.block_quantized_dense", attrs=BlockQuantizedDenseAttrs, relation=_dense_relation,
           pattern=OpPattern.OPAQUE, level=10, traits=OpTraits(takes_blocks=True))
def block_quantized_dense(data: te.Tensor, weight: te.Tensor, attrs: BlockQuantizedDenseAttrs
                          ) -> te.Tensor:
    """out[…, n] = sum over k of data[…, k] * weight[n, k], for a weight quantised in blocks

    ``weight``: uint8 (N, bytes of a row), the blocks of each row as GGUF stores them; or a tensor
    of blocks (N, blocks of a row), whose dtype is their format. Elements are
    float32 in registers; no array of them is made. Sums are float32, or float64 for such data.

    With ``activations="int8"`` each 32 neighbours of a row of the data are rounded to whole
    multiples of their absolute maximum / 127, and products with the quants of the weight are summed
    exactly. Formats whose levels are not bytes (``nf4``, 8-bit floats) take the data as it is.
    """
    return topi.block_quantized_dense(data, weight, block_format(attrs.format), attrs.activations)


@define_op("nn.block_dequantize", attrs=BlockDequantizeAttrs, relation=_dequantize_relation,
           pattern=OpPattern.OPAQUE, level=10, traits=OpTraits(takes_blocks=True))
def block_dequantize(data: te.Tensor, attrs: BlockDequantizeAttrs) -> te.Tensor:
    """The elements of rows of blocks as floats; blocks are elements or their bytes (uint8)."""
    return topi.block_dequantize(data, block_format(attrs.format), attrs.dtype)


@block_quantized_dense.gradient
def _gradient(call: Call, _y: Expr, dy: Expr) -> list[Expr]:
    data, weight = call.args
    form = attrs_of(call, BlockQuantizedDenseAttrs).format
    matrix = infer_expr(op.nn.block_dequantize(weight, format=form, dtype=tensor_type(data).dtype))
    kind = tensor_type(weight)
    nothing = Constant(np.zeros(kind.concrete_shape, kind.dtype.numpy)) if kind.dtype.is_block \
        else typed_zeros(weight)
    return [op.nn.dense(dy, matrix, weight_layout="KN"), nothing]


def _dense_reference(data: np.ndarray, weight: np.ndarray, format: str = "q8_0",
                     activations: str = "float32") -> np.ndarray:
    form = block_format(block_name(weight.dtype) or format)
    elements = topi.dequantized(weight.view(np.uint8), form).astype(np.float64)
    if activations == "int8" and topi.quant_range(form) is not None:
        return (topi.rounded_rows(data) @ elements.T).astype(data.dtype)
    return (data.astype(np.float64) @ elements.T).astype(data.dtype)


def _dequantize_reference(data: np.ndarray, format: str = "q8_0", dtype: DType = float32
                          ) -> np.ndarray:
    form = block_format(block_name(data.dtype) or format)
    return topi.dequantized(data.view(np.uint8), form).astype(dtype.numpy)


# The bytes of the float16 numbers of a block, which are not at its start.
_HALVES = {"q2_k": (80, 82), "q3_k": (108,), "q6_k": (208,), "q4_1": (0, 2), "q5_1": (0, 2),
           "q4_k": (0, 2), "q5_k": (0, 2)}


def random_blocks(form: BlockFormat, *shape: int, seed: int = 0, deviation: float = 0.1
                  ) -> np.ndarray:
    """Random blocks, uint8 [..., bytes of a row], for ``shape`` blocks of about this deviation."""
    rng = np.random.default_rng(seed)
    if form.name not in FORMATS and encodes(form.name):
        rows = rng.normal(0, deviation, (math.prod(shape[:-1]), shape[-1] * form.elements))
        return quantize_blocks(rows, form.name).reshape(*shape[:-1], -1)
    data = rng.integers(0, 256, (*shape, form.nbytes), np.uint8)

    def scale(largest: float) -> None:
        for at in _HALVES.get(form.name, (0,)):
            half = rng.uniform(largest / 2, largest, (*shape, 1)).astype(np.float16)
            data[..., at:at + 2] = half.view(np.uint8)

    scale(1.0)
    scale(deviation / float(topi.dequantized(data, form).std()))
    return data.reshape(*shape[:-1], -1)


# Each kind of code, group, scale and offset of the formats in groups.
_GROUPED = ("int4_g16", "int4_g64_f32_z", "int8_g128", "int8_g32_z", "nf4_g64_f32",
            "fp8_e4m3_g32", "fp8_e5m2_g16")


def _example(name: str) -> np.ndarray:
    return random_blocks(block_format(name), 5, 2)


def _dense_cases() -> Iterator[Case]:
    for name in FORMATS:
        yield _dense_case(name)
    yield op_case((2, 1, 64), _example("q4_0"), format="q4_0", dtypes=("float32", "uint8"),
                  atol=1e-4)
    yield op_case((64,), _example("q8_0"), dtypes=("float32", "uint8"), atol=1e-4)
    for name in ("q8_0", "q4_k"):
        yield _dense_case(name, activations="int8")
    for name in _GROUPED:
        yield _dense_case(name)
    for name in ("int4_g64_f32_z", "nf4_g64_f32"):
        yield _dense_case(name, activations="int8")


def _dense_case(name: str, activations: str = "float32") -> Case:
    depth = 2 * block_format(name).elements
    return op_case((3, depth), _example(name), format=name, activations=activations,
                   dtypes=("float32", "uint8"), atol=1e-3)


def _dequantize_cases() -> Iterator[Case]:
    for name in (*FORMATS, *_GROUPED):
        yield op_case(_example(name), format=name, dtypes=("uint8",))


block_quantized_dense.spec(_dense_reference, _dense_cases)
block_dequantize.spec(_dequantize_reference, _dequantize_cases)
