"""Discrete Fourier transforms: dft, rdft, irdft, stft."""

from __future__ import annotations

import numpy as np

from weft import op, te
from weft.ir import (
    Attrs,
    KnownDim,
    OpPattern,
    attr,
    define_op,
    infer_expr,
    int64,
    linear,
    multilinear,
    op_case,
    size_from,
)
from weft.ir.expr import Call, Constant, Expr, Tuple, TupleGetItem, const
from weft.ir.shape import AnyDim, Dim, dim_add, dim_floordiv, dim_sub
from weft.ir.types import TensorType, TupleType
from weft.ir.typing.relation import RelationContext
from weft.op.batching import leading
from weft.op.gradients import (
    attrs_of,
    divided_by_size,
    known_dim,
    known_shape,
    numbered,
    scalar,
    size_value,
    tensor_type,
)
from weft.support.dataclass import dataclass
from weft.topi import spectrum as topi
from weft.topi.sizes import as_size


@dataclass(frozen=True, kw_only=True)
class DFTAttrs(Attrs):
    inverse: bool = attr(False, "inverse transform, divided by the length")
    axis: int = attr(-1, "axis of the transform, counted from the end", check=lambda n: n < 0,
                     expected="negative")


def _dft_relation(ctx: RelationContext) -> bool:
    types = ctx.tensors_known(2)
    if types is None:
        return False
    real, imaginary = types
    ctx.expect_float(0, real)
    ctx.expect_min_rank(0, real, -ctx.attrs_as(DFTAttrs).axis)
    ctx.expect_same_dtype(1, imaginary, real.dtype)
    ctx.expect_rank(1, imaginary, real.ndim)
    for axis, size in enumerate(real.shape):
        ctx.expect_dim(1, axis, imaginary.shape[axis], size, "the two parts differ in shape")
    ctx.output(TupleType((real, real)))
    return True


@define_op("dft", attrs=DFTAttrs, relation=_dft_relation, pattern=OpPattern.OPAQUE, level=3,
           traits=linear(), results=2)
def dft(real: te.Tensor, imaginary: te.Tensor, attrs: DFTAttrs) -> tuple[te.Tensor, ...]:
    """The Fourier transform along an axis of complex numbers given as two tensors."""
    return topi.dft(real, imaginary, inverse=attrs.inverse, axis=attrs.axis)


def _dft_reference(
    real: np.ndarray, imaginary: np.ndarray, inverse: bool = False, axis: int = -1
) -> tuple[np.ndarray, ...]:
    if not real.shape[axis]:
        return real.copy(), imaginary.copy()
    found = (np.fft.ifft if inverse else np.fft.fft)(real + 1j * imaginary, axis=axis)
    return (np.ascontiguousarray(found.real).astype(real.dtype),
            np.ascontiguousarray(found.imag).astype(real.dtype))


dft.spec(_dft_reference, op_case((2, 8), (2, 8)), op_case((7,), (7,), inverse=True),
         op_case((1,), (1,)),
         op_case((2, 3, 5), (2, 3, 5)), op_case((0, 4), (0, 4)),
         op_case((2, 6, 5), (2, 6, 5), axis=-2, inverse=True))


@dft.gradient
def _dft_gradient(call: Call, _y: Expr, dy: Expr) -> list[Expr]:
    """The adjoint of the transform: the opposite transform, rescaled."""
    attrs = attrs_of(call, DFTAttrs)
    inverse, size = attrs.inverse, known_shape(call.args[0], call)[attrs.axis]
    real, imaginary = TupleGetItem(dy, 0), TupleGetItem(dy, 1)
    back = dft(real, imaginary, inverse=not inverse, axis=attrs.axis)
    dtype = tensor_type(call.args[0]).dtype
    one = scalar(1.0, call.args[0])
    scale = divided_by_size(one, size, one) if inverse else size_value(size, dtype)
    return [TupleGetItem(back, 0) * scale, TupleGetItem(back, 1) * scale]


def _rdft_relation(ctx: RelationContext) -> bool:
    types = ctx.tensors_known(1)
    if types is None:
        return False
    (data,) = types
    ctx.expect_float(0, data)
    ctx.expect_min_rank(0, data, 1)
    if data.shape[-1] == 0:
        ctx.fail("a Fourier transform of no elements", arg=0, axis=data.ndim - 1,
                 expected="1 or more", got=0)
    half = TensorType((*data.shape[:-1], dim_add(dim_floordiv(data.shape[-1], 2), 1)), data.dtype)
    ctx.output(TupleType((half, half)))
    return True


@define_op("rdft", relation=_rdft_relation, pattern=OpPattern.OPAQUE, level=3, inputs=("data",),
           traits=linear(), results=2)
def rdft(data: te.Tensor, _attrs: Attrs) -> tuple[te.Tensor, ...]:
    """The Fourier transform along the last axis of real numbers, as two tensors.

    These hold the real and imaginary parts of the frequencies up to half of the size: the others
    are their conjugates.
    """
    return topi.rdft(data)


def _rdft_reference(data: np.ndarray) -> tuple[np.ndarray, ...]:
    found = np.fft.rfft(data)
    return (np.ascontiguousarray(found.real).astype(data.dtype),
            np.ascontiguousarray(found.imag).astype(data.dtype))


rdft.spec(_rdft_reference, op_case((2, 8)), op_case((7,)), op_case((1,)), op_case((2, 3, 6)),
          op_case((0, 4)))


@rdft.gradient
def _rdft_gradient(call: Call, _y: Expr, dy: Expr) -> list[Expr]:
    """The real part of the opposite sums over the given frequencies, the others taken as 0."""
    data = call.args[0]
    shape, dtype = known_shape(data, call), tensor_type(data).dtype
    size = shape[-1]
    nothing = op.zeros(shape=shape, dtype=str(dtype))
    whole = [op.strided_slice(op.concatenate(Tuple((TupleGetItem(dy, part), nothing)), axis=-1),
                              begin=(0,), end=(size,), axes=(len(shape) - 1,)) for part in (0, 1)]
    return [TupleGetItem(dft(*whole, inverse=True), 0) * size_value(size, dtype)]


@dataclass(frozen=True, kw_only=True)
class IRDFTAttrs(Attrs):
    size: KnownDim = attr(doc="size of the result", check=size_from(1), expected="1 or more")


def _irdft_relation(ctx: RelationContext) -> bool:
    types = ctx.tensors_known(2)
    if types is None:
        return False
    real, imaginary = types
    size = ctx.attrs_as(IRDFTAttrs).size
    ctx.expect_float(0, real)
    ctx.expect_min_rank(0, real, 1)
    ctx.expect_same_dtype(1, imaginary, real.dtype)
    ctx.expect_rank(1, imaginary, real.ndim)
    for axis, dim in enumerate(real.shape):
        ctx.expect_dim(1, axis, imaginary.shape[axis], dim, "the two parts differ in shape")
    ctx.expect_dim(0, real.ndim - 1, real.shape[-1], dim_add(dim_floordiv(size, 2), 1),
                   "the number of frequencies is half of the size, and one")
    ctx.output(TensorType((*real.shape[:-1], size), real.dtype))
    return True


@define_op("irdft", attrs=IRDFTAttrs, relation=_irdft_relation, pattern=OpPattern.OPAQUE, level=3,
           traits=linear())
def irdft(real: te.Tensor, imaginary: te.Tensor, attrs: IRDFTAttrs) -> te.Tensor:
    """The inverse of ``rdft``: ``size`` real numbers along the last axis.

    Imaginary parts that are 0 by symmetry, of the first frequency and of half of an even size, are
    taken as 0.
    """
    return topi.irdft(real, imaginary, as_size(attrs.size))


def _irdft_reference(real: np.ndarray, imaginary: np.ndarray, size: int) -> np.ndarray:
    return np.ascontiguousarray(np.fft.irfft(real + 1j * imaginary, size)).astype(real.dtype)


irdft.spec(_irdft_reference, op_case((2, 5), (2, 5), size=8), op_case((4,), (4,), size=7),
           op_case((1,), (1,), size=1), op_case((2, 3, 4), (2, 3, 4), size=6),
           op_case((0, 3), (0, 3), size=4))


@irdft.gradient
def _irdft_gradient(call: Call, _y: Expr, dy: Expr) -> list[Expr]:
    """Frequencies that stand for their conjugates as well count twice."""
    size, dtype = attrs_of(call, IRDFTAttrs).size, tensor_type(call.args[0]).dtype
    count = known_dim(dim_add(dim_floordiv(size, 2), 1), call)
    twice, whole = numbered((count,)) * const(2, int64), size_value(size, int64)
    is_single = op.logical_or(op.equal(twice, const(0, int64)), op.equal(twice, whole))
    times = op.where(is_single, const(1.0, dtype), const(2.0, dtype))
    weights, found = op.divide(times, size_value(size, dtype)), rdft(dy)
    return [TupleGetItem(found, part) * weights for part in (0, 1)]


@dataclass(frozen=True, kw_only=True)
class STFTAttrs(Attrs):
    n_fft: int = attr(doc="length of a frame", check=lambda n: n > 0, expected="1 or more")
    hop_length: int = attr(doc="distance between neighbouring frames", check=lambda n: n > 0,
                           expected="1 or more")
    normalized: bool = attr(False, "divide by the square root of the frame length")
    onesided: bool = attr(True, "omit the frequencies that are redundant by symmetry")


def _stft_relation(ctx: RelationContext) -> bool:
    types = ctx.tensors_known(2)
    if types is None:
        return False
    data, window = types
    attrs = ctx.attrs_as(STFTAttrs)
    ctx.expect_float(0, data)
    ctx.expect_rank(0, data, 2)
    ctx.expect_rank(1, window, 1)
    ctx.expect_same_dtype(1, window, data.dtype)
    ctx.expect_dim(1, 0, window.shape[0], attrs.n_fft, "the window must be as long as a frame")
    size = data.shape[1]
    if isinstance(size, int) and size < attrs.n_fft:
        ctx.fail("the signal is shorter than a frame", arg=0, axis=1,
                 expected=f"{attrs.n_fft} or more", got=size)
    frames: Dim = dim_add(dim_floordiv(dim_sub(size, attrs.n_fft), attrs.hop_length), 1)
    shape = (data.shape[0], topi.frequencies(attrs.n_fft, onesided=attrs.onesided), frames, 2)
    ctx.output(TensorType(shape, data.dtype))
    return True


@define_op("stft", attrs=STFTAttrs, relation=_stft_relation, pattern=OpPattern.OPAQUE, level=3,
           traits=multilinear())
def stft(data: te.Tensor, window: te.Tensor, attrs: STFTAttrs) -> te.Tensor:
    """Fourier transforms of windowed frames: (batch, frequency, frame, real and imaginary part)."""
    return topi.stft(data, window, attrs.hop_length, normalized=attrs.normalized,
                     onesided=attrs.onesided)


@stft.expansion
def _stft_expansion(call: Call) -> Expr | None:
    """The transform of frames that are gathered from the signal, times the window."""
    attrs = attrs_of(call, STFTAttrs)
    data, window = call.args
    frames = tensor_type(call).shape[2]
    if isinstance(frames, AnyDim):
        return None
    first = op.multiply(numbered((frames, 1)), const(attrs.hop_length, "int64"))
    positions = op.add(first, Constant(np.arange(attrs.n_fft)))
    framed = op.multiply(op.take(data, positions, axis=1), window)
    typed = infer_expr(framed, trust=True)
    found = rdft(typed) if attrs.onesided else dft(typed, op.zeros_like(typed))
    parts = [TupleGetItem(found, n) for n in (0, 1)]
    whole = op.transpose(op.stack(Tuple(tuple(parts)), axis=3), axes=(0, 2, 1, 3))
    return (op.multiply(whole, scalar(attrs.n_fft ** -0.5, data)) if attrs.normalized else whole)


def _stft_reference(
    data: np.ndarray, window: np.ndarray, n_fft: int, hop_length: int, normalized: bool = False,
    onesided: bool = True,
) -> np.ndarray:
    frames = np.lib.stride_tricks.sliding_window_view(data, n_fft, 1)[:, ::hop_length]
    found = np.fft.fft(frames * window)[..., :topi.frequencies(n_fft, onesided=onesided)]
    found = found / np.sqrt(n_fft) if normalized else found
    parts = np.stack([found.real, found.imag], -1).transpose(0, 2, 1, 3)
    return np.ascontiguousarray(parts).astype(data.dtype)


stft.spec(_stft_reference, op_case((2, 16), (8,), n_fft=8, hop_length=4),
          op_case((1, 11), (5,), n_fft=5, hop_length=2, normalized=True, onesided=False),
          op_case((3, 4), (4,), n_fft=4, hop_length=9))

dft.batching(leading)
rdft.batching(leading)
irdft.batching(leading)
