"""GEMM and convolution of low-bit integers: bitpack, bitserial_dense, bitserial_conv2d."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft import te
from weft.ir import Attrs, DType, OpPattern, TensorType, attr, define_op, int32, op_case
from weft.ir.shape import Dim, dim_add, dim_floordiv
from weft.ir.typing.relation import RelationContext
from weft.op.nn.conv import padding_attr, steps_attr
from weft.op.nn.conv_reference import conv_reference, images_in, unblocked_images
from weft.op.relations import (
    layout_attr,
)
from weft.support.dataclass import dataclass
from weft.topi.layout import Layout, transform_array
from weft.topi.nn import bitserial as topi
from weft.topi.nn.conv import full_padding, kernel_axes, side_padding
from weft.topi.nn.window import window_count

_BITS = "1 to 8"


def _bits_attr(doc: str) -> Any:
    return attr(1, doc, check=lambda b: 1 <= b <= 8, expected=_BITS)


def _is_word(dtype: DType) -> bool:
    return dtype.is_int and str(dtype).startswith("u")


_WORD = DType.of("uint32")
_PACK: dict[str, Any] = {"doc": "dtype of the words", "check": _is_word,
                         "expected": "an unsigned integer dtype"}
_OUT: dict[str, Any] = {"doc": "dtype of the accumulator and result", "check": lambda d: d.is_int,
                        "expected": "an integer dtype"}


@dataclass(frozen=True, kw_only=True)
class BitPackAttrs(Attrs):
    bits: int = _bits_attr("bits per element")
    pack_axis: int = attr(1, "axis whose elements are packed into words")
    bit_axis: int = attr(-1, "axis of the bit planes in the result")
    pack_dtype: DType = attr(_WORD, **_PACK)


def _axes(attrs: BitPackAttrs, ndim: int) -> tuple[int, int]:
    return attrs.pack_axis % ndim, attrs.bit_axis % (ndim + 1)


def _words(size: Dim, dtype: DType) -> Dim:
    return dim_floordiv(dim_add(size, dtype.bits - 1), dtype.bits)


def _bitpack_relation(ctx: RelationContext) -> bool:
    data = ctx.tensor(0)
    if data is None:
        return False
    attrs = ctx.attrs_as(BitPackAttrs)
    ctx.expect_int(0, data)
    for name, axis, ndim in (("pack_axis", attrs.pack_axis, data.ndim),
                             ("bit_axis", attrs.bit_axis, data.ndim + 1)):
        if not -ndim <= axis < ndim:
            ctx.fail(f"{name} {axis} is out of range", arg=0,
                     expected=f"{-ndim} <= {name} < {ndim}", got=axis)
    pack_axis, bit_axis = _axes(attrs, data.ndim)
    shape = list(data.shape)
    shape[pack_axis] = _words(shape[pack_axis], attrs.pack_dtype)
    shape.insert(bit_axis, attrs.bits)
    ctx.output(TensorType(tuple(shape), attrs.pack_dtype))
    return True


@define_op("nn.bitpack", attrs=BitPackAttrs, relation=_bitpack_relation,
           pattern=OpPattern.OUT_FUSABLE, level=2)
def bitpack(data: te.Tensor, attrs: BitPackAttrs) -> te.Tensor:
    """The bits of integers as planes along a new axis, packed into words along another.

    The first element of a word is its highest bit; the last word is padded with zeros.
    """
    return topi.bitpack(data, attrs.bits, *_axes(attrs, data.ndim), attrs.pack_dtype)


def _bitpack_reference(data: np.ndarray, **values: Any) -> np.ndarray:
    attrs = BitPackAttrs(**values)
    pack_axis, bit_axis = _axes(attrs, data.ndim)
    width = attrs.pack_dtype.bits
    lines = np.moveaxis(data, pack_axis, -1)
    filled = np.pad(lines, [(0, 0)] * (data.ndim - 1) + [(0, -lines.shape[-1] % width)])
    words = filled.reshape(*lines.shape[:-1], filled.shape[-1] // width, width)
    positions = np.arange(width - 1, -1, -1, dtype=np.uint64)
    planes = [((words.astype(np.uint64) >> np.uint64(b) & np.uint64(1)) << positions).sum(axis=-1)
              for b in range(attrs.bits)]
    packed = [np.moveaxis(p, -1, pack_axis).astype(attrs.pack_dtype.numpy) for p in planes]
    return np.ascontiguousarray(np.stack(packed, axis=bit_axis))


bitpack.spec(
    _bitpack_reference,
    op_case((2, 40, 3), bits=2, dtypes="int32", low=0, high=3),
    op_case((3, 16), bits=3, bit_axis=0, pack_axis=-1, pack_dtype="uint8", dtypes="uint8", low=0,
            high=7),
)


@dataclass(frozen=True, kw_only=True)
class BitserialDenseAttrs(Attrs):
    units: int | None = attr(None, "size of the result's last axis; None to read it off the "
                             "weight")
    data_bits: int = _bits_attr("bits of the data")
    weight_bits: int = _bits_attr("bits of the weight")
    pack_dtype: DType = attr(_WORD, **_PACK)
    out_dtype: DType = attr(int32, **_OUT)
    unipolar: bool = attr(True, "cleared bits of the weight mean -1, not 0")


def _dense_relation(ctx: RelationContext) -> bool:
    types = ctx.tensors_known(2)
    if types is None:
        return False
    data, weight = types
    attrs = ctx.attrs_as(BitserialDenseAttrs)
    for arg, type_ in enumerate(types):
        ctx.expect_rank(arg, type_, 2)
        ctx.expect_int(arg, type_)
    ctx.expect_dim(1, 1, weight.shape[1], data.shape[1], "the inner sizes do not match")
    if attrs.units is not None:
        ctx.expect_dim(1, 0, weight.shape[0], attrs.units, "output units do not match",
                       why=" (the attribute units)")
    ctx.output(TensorType((data.shape[0], weight.shape[0]), attrs.out_dtype))
    return True


@define_op("nn.bitserial_dense", attrs=BitserialDenseAttrs, relation=_dense_relation,
           pattern=OpPattern.OUT_FUSABLE, level=1)
def bitserial_dense(data: te.Tensor, weight: te.Tensor, attrs: BitserialDenseAttrs) -> te.Tensor:
    """``data`` (M, K) times the transpose of ``weight`` (N, K), by counting bits.

    Only the lowest ``data_bits`` and ``weight_bits`` are used. With ``unipolar`` the bits of the
    weight mean 1 and -1.
    """
    return topi.bitserial_dense(
        data, weight, data_bits=attrs.data_bits, weight_bits=attrs.weight_bits,
        pack_dtype=attrs.pack_dtype, out_dtype=attrs.out_dtype, unipolar=attrs.unipolar,
    )


def _meant(x: np.ndarray, bits: int, *, signed: bool) -> np.ndarray:
    """The values that the lowest bits of ``x`` represent."""
    value = x.astype(np.int64) & (2**bits - 1)
    return 2 * value - (2**bits - 1) if signed else value


def _dense_reference(data: np.ndarray, weight: np.ndarray, **values: Any) -> np.ndarray:
    attrs = BitserialDenseAttrs(**values)
    a = _meant(data, attrs.data_bits, signed=False)
    w = _meant(weight, attrs.weight_bits, signed=attrs.unipolar)
    return (a @ w.T).astype(attrs.out_dtype.numpy)


bitserial_dense.spec(
    _dense_reference,
    op_case((3, 40), (4, 40), data_bits=2, dtypes="int32", low=0, high=3),
    op_case((2, 16), (3, 16), data_bits=2, weight_bits=2, unipolar=False, pack_dtype="uint8",
            dtypes="uint8", low=0, high=3),
)


@dataclass(frozen=True, kw_only=True)
class BinaryConv2DAttrs(Attrs):
    strides: tuple[int, int] = steps_attr(2, "steps along height and width")
    padding: tuple[int, ...] = padding_attr(2, "padding, whose elements count as nothing")
    activation_bits: int = _bits_attr("bits of the data")
    weight_bits: int = _bits_attr("bits of the kernel")
    data_layout: str = attr("NCHW", "layout of the data and the result")
    kernel_layout: str = attr("OIHW", "layout of the kernel")
    pack_dtype: DType = attr(_WORD, **_PACK)
    out_dtype: DType = attr(int32, **_OUT)
    unipolar: bool = attr(True, "cleared bits of the kernel mean -1, not 0")


def _conv_relation(ctx: RelationContext) -> bool:
    types = ctx.tensors_known(2)
    if types is None:
        return False
    data, kernel = types
    attrs = ctx.attrs_as(BinaryConv2DAttrs)
    data_layout, kernel_layout = layout_attr(ctx, "data_layout"), layout_attr(ctx, "kernel_layout")
    for name, layout, axes in (("data_layout", data_layout, "CHNW"),
                               ("kernel_layout", kernel_layout, "HIOW")):
        if not layout.is_primal or "".join(sorted(layout.primal_axes)) != axes:
            ctx.fail(f"{name} does not fit", expected=f"the axes {', '.join(axes)}", got=layout)
    for arg, type_ in enumerate(types):
        ctx.expect_rank(arg, type_, 4)
        ctx.expect_int(arg, type_)
    ctx.expect_dim(1, kernel_layout.index_of("I"), kernel.shape[kernel_layout.index_of("I")],
                   data.shape[data_layout.index_of("C")], "input channels do not match")
    shape = list(data.shape)
    shape[data_layout.index_of("C")] = kernel.shape[kernel_layout.index_of("O")]
    for i, (letter, (before, after)) in enumerate(zip("HW", side_padding(attrs.padding, 2),
                                                      strict=True)):
        axis = data_layout.index_of(letter)
        padded = dim_add(shape[axis], before + after)
        taps = kernel.shape[kernel_layout.index_of(letter)]
        if isinstance(padded, int) and isinstance(taps, int) and not 0 < taps <= padded:
            ctx.fail("the kernel does not fit the padded data", arg=1,
                     expected=f"a size from 1 to {padded}", got=taps)
        shape[axis] = window_count(padded, taps, attrs.strides[i])
    ctx.output(TensorType(tuple(shape), attrs.out_dtype))
    return True


@define_op("nn.bitserial_conv2d", attrs=BinaryConv2DAttrs, relation=_conv_relation,
           pattern=OpPattern.OUT_FUSABLE, level=2)
def bitserial_conv2d(data: te.Tensor, kernel: te.Tensor, attrs: BinaryConv2DAttrs) -> te.Tensor:
    """A convolution of low-bit integers, by counting bits.

    Only the lowest ``activation_bits`` and ``weight_bits`` are used. With ``unipolar`` the bits of
    the kernel mean 1 and -1.
    """
    return topi.bitserial_conv2d(
        data, kernel, strides=attrs.strides, padding=attrs.padding,
        activation_bits=attrs.activation_bits, weight_bits=attrs.weight_bits,
        data_layout=Layout.parse(attrs.data_layout),
        kernel_layout=Layout.parse(attrs.kernel_layout), pack_dtype=attrs.pack_dtype,
        out_dtype=attrs.out_dtype, unipolar=attrs.unipolar,
    )


def _conv_reference(data: np.ndarray, kernel: np.ndarray, **values: Any) -> np.ndarray:
    attrs = BinaryConv2DAttrs(**values)
    layout = Layout.parse(attrs.data_layout)
    a = _meant(unblocked_images(data, layout, "HW"), attrs.activation_bits, signed=False)
    taps = transform_array(kernel, Layout.parse(attrs.kernel_layout), kernel_axes("HW"))
    w = _meant(taps, attrs.weight_bits, signed=attrs.unipolar)
    result = conv_reference(a, w, attrs.strides, full_padding(attrs.padding, 2), (1, 1), 1)
    return images_in(result.astype(attrs.out_dtype.numpy), layout, "HW")


bitserial_conv2d.spec(
    _conv_reference,
    op_case((1, 9, 4, 5), (3, 9, 3, 2), padding=(1, 0), activation_bits=2, dtypes="int32", low=0,
            high=3),
    op_case((1, 5, 4, 8), (2, 3, 8, 2), strides=(2, 1), activation_bits=2, weight_bits=2,
            unipolar=False, data_layout="NHWC", kernel_layout="HWIO", pack_dtype="uint8",
            dtypes="uint8", low=0, high=3),
)
