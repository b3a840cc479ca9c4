"""Discrete Fourier transforms: dft, stft."""

from __future__ import annotations

import numpy as np

from weft import op, te
from weft.ir import Attrs, OpPattern, attr, define_op, infer_expr, linear, multilinear, op_case
from weft.ir.expr import Call, Constant, Expr, Tuple, TupleGetItem, const
from weft.ir.shape import AnyDim, Dim, dim_add, dim_floordiv, dim_sub
from weft.ir.types import TensorType, TupleType
from weft.ir.typing.relation import RelationContext
from weft.op.batching import leading
from weft.op.gradients import (
    attrs_of,
    divided_by_size,
    known_shape,
    numbered,
    scalar,
    size_value,
    tensor_type,
)
from weft.support.dataclass import dataclass
from weft.topi import spectrum as topi


@dataclass(frozen=True, kw_only=True)
class DFTAttrs(Attrs):
    inverse: bool = attr(False, "inverse transform, divided by the length")


def _dft_relation(ctx: RelationContext) -> bool:
    types = ctx.tensors_known(2)
    if types is None:
        return False
    real, imaginary = types
    ctx.expect_float(0, real)
    ctx.expect_min_rank(0, real, 1)
    ctx.expect_same_dtype(1, imaginary, real.dtype)
    ctx.expect_rank(1, imaginary, real.ndim)
    for axis, size in enumerate(real.shape):
        ctx.expect_dim(1, axis, imaginary.shape[axis], size, "the two parts differ in shape")
    ctx.output(TupleType((real, real)))
    return True


@define_op("dft", attrs=DFTAttrs, relation=_dft_relation, pattern=OpPattern.OPAQUE, level=3,
           traits=linear(), results=2)
def dft(real: te.Tensor, imaginary: te.Tensor, attrs: DFTAttrs) -> tuple[te.Tensor, ...]:
    """The Fourier transform along the last axis of complex numbers given as two tensors."""
    return topi.dft(real, imaginary, inverse=attrs.inverse)


def _dft_reference(
    real: np.ndarray, imaginary: np.ndarray, inverse: bool = False
) -> tuple[np.ndarray, ...]:
    if not real.shape[-1]:
        return real.copy(), imaginary.copy()
    found = (np.fft.ifft if inverse else np.fft.fft)(real + 1j * imaginary)
    return (np.ascontiguousarray(found.real).astype(real.dtype),
            np.ascontiguousarray(found.imag).astype(real.dtype))


dft.spec(_dft_reference, op_case((2, 8), (2, 8)), op_case((7,), (7,), inverse=True),
         op_case((1,), (1,)),
         op_case((2, 3, 5), (2, 3, 5)), op_case((0, 4), (0, 4)))


@dft.gradient
def _dft_gradient(call: Call, _y: Expr, dy: Expr) -> list[Expr]:
    """The adjoint of the transform: the opposite transform, rescaled."""
    inverse = attrs_of(call, DFTAttrs).inverse
    size = known_shape(call.args[0], call)[-1]
    real, imaginary = TupleGetItem(dy, 0), TupleGetItem(dy, 1)
    back = dft(real, imaginary, inverse=not inverse)
    dtype = tensor_type(call.args[0]).dtype
    one = scalar(1.0, call.args[0])
    scale = divided_by_size(one, size, one) if inverse else size_value(size, dtype)
    return [TupleGetItem(back, 0) * scale, TupleGetItem(back, 1) * scale]


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
    result = tensor_type(call).shape
    frames, bins = result[2], result[1]
    if not isinstance(bins, int) or isinstance(frames, AnyDim):
        return None
    first = op.multiply(numbered((frames, 1)), const(attrs.hop_length, "int64"))
    positions = op.add(first, Constant(np.arange(attrs.n_fft)))
    framed = op.multiply(op.take(data, positions, axis=1), window)
    typed = infer_expr(framed, trust=True)
    found = dft(typed, op.zeros_like(typed))
    parts = [op.strided_slice(TupleGetItem(found, n), begin=(0,), end=(bins,), axes=(2,))
             for n in (0, 1)]
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
