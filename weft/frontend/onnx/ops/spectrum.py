"""Converters of Fourier transforms: DFT, STFT, MelWeightMatrix.

A complex number is a pair (real, imaginary) along the last axis.
"""

from __future__ import annotations

import numpy as np

from weft import op
from weft.frontend.common import arrays
from weft.frontend.onnx.node import Node, tensor_type
from weft.frontend.onnx.protos import TensorProto
from weft.frontend.onnx.registry import converts
from weft.frontend.onnx.reshaping import stacked
from weft.frontend.onnx.tensors import dtype_of
from weft.ir.expr import Constant, Expr
from weft.support.errors import UnsupportedModelError

_MOST_FREQUENCIES = 1 << 16


@converts("DFT", since=17, attributes=("axis", "inverse", "onesided"))
def dft_by_attribute(node: Node) -> Expr:
    return _dft(node, node.attrs.integer("axis", 1))


@converts("DFT", since=20, attributes=("inverse", "onesided"))
def dft_by_input(node: Node) -> Expr:
    return _dft(node, node.integer(2, "axis") if node.has_input(2) else -2)


def _dft(node: Node, axis: int) -> Expr:
    x, rank = node.input(0), node.rank()
    if rank < 2 or node.shape()[-1] not in (1, 2):
        raise node.fail("the last axis does not hold real and imaginary parts",
                        expected="size 1 or 2", got=str(tensor_type(x)))  # fmt: skip
    axis = node.axis(axis, rank)
    size = node.shape()[axis]
    if axis == rank - 1 or not isinstance(size, int):
        raise UnsupportedModelError("DFT along an axis of symbolic size, or along the last axis",
                                    where=node.span)  # fmt: skip
    inverse, onesided = node.attrs.flag("inverse"), node.attrs.flag("onesided")
    halved = inverse and onesided
    given = node.integer(1, "dft_length") if node.has_input(1) else None
    length = given if given is not None else 2 * (size - 1) if halved else size
    if length < 1:
        raise node.fail("the length of the transform must be positive", got=str(length))
    parts = [_part(node, x, i, axis) for i in range(2)]
    if halved:
        parts = _mirrored(node, parts, length)
    parts = [_resized(node, part, length) for part in parts]
    is_real = not inverse and node.shape()[-1] == 1
    found = (node.call(op.rdft, parts[0]) if is_real
             else node.call(op.dft, *parts, inverse=inverse))
    results = [node.field(found, i) for i in range(1 if halved else 2)]
    if is_real and not onesided:
        results = _mirrored(node, results, length)
    elif onesided and not inverse and not is_real:
        results = [_first(node, part, length // 2 + 1) for part in results]
    pair = stacked(node, results, rank - 1)
    return node.call(op.transpose, pair, axes=_moved(rank, rank - 2, axis))


def _part(node: Node, x: Expr, index: int, axis: int) -> Expr:
    """Return the real (0) or imaginary (1) part with ``axis`` last; zeros for real input."""
    shape = tensor_type(x).shape
    position = node.constant(min(index, 0 if shape[-1] == 1 else 1), "int64")
    part = node.call(op.take, x, position, axis=len(shape) - 1, mode="clip")
    if index and shape[-1] == 1:
        part = node.call(op.multiply, part, node.scalar_like(0, part))
    return node.call(op.transpose, part, axes=_moved(len(shape) - 1, axis, len(shape) - 2))


def _moved(rank: int, start: int, end: int) -> tuple[int, ...]:
    """Return the permutation that moves axis ``start`` to ``end``."""
    order = [i for i in range(rank) if i != start]
    order.insert(end, start)
    return tuple(order)


def _mirrored(node: Node, parts: list[Expr], length: int) -> list[Expr]:
    """Restore all frequencies of a real signal from the first half by conjugate symmetry."""
    half = length // 2 + 1
    real, imaginary = (_resized(node, part, half) for part in parts)
    positions = [k if k < half else length - k for k in range(length)]
    signs = [0.0 if k in (0, length / 2) else 1.0 if k < half else -1.0 for k in range(length)]
    taken = [_at(node, part, positions) for part in (real, imaginary)]
    factor = node.constant(signs, tensor_type(imaginary).dtype)
    return [taken[0], node.call(op.multiply, taken[1], factor)]


def _at(node: Node, x: Expr, positions: list[int]) -> Expr:
    axis = len(tensor_type(x).shape) - 1
    return node.call(op.take, x, node.constant(positions, "int64"), axis=axis, mode="clip")


def _first(node: Node, x: Expr, count: int) -> Expr:
    axis = len(tensor_type(x).shape) - 1
    return node.call(op.strided_slice, x, begin=(0,), end=(count,), strides=(1,), axes=(axis,))


def _resized(node: Node, x: Expr, length: int) -> Expr:
    """Truncate or zero-pad the last axis to ``length``."""
    shape = tensor_type(x).shape
    size = shape[-1]
    if size == length:
        return x
    if not isinstance(size, int) or size > length:
        return _first(node, x, length)
    width = ((0, 0),) * (len(shape) - 1) + ((0, length - size),)
    return node.call(op.nn.pad, x, node.scalar_like(0, x), pad_width=width)


@converts("STFT", since=17, attributes=("onesided",))
def stft(node: Node) -> Expr:
    """Short-time Fourier transform of a signal [batch, length, 1]."""
    signal, shape = node.input(0), node.shape()
    if len(shape) != 3 or shape[2] != 1:
        raise UnsupportedModelError("STFT of complex signals", where=node.span, got=str(shape),
                                    expected="[batch, length, 1]")  # fmt: skip
    step = node.integer(1, "frame_step")
    if node.has_input(3):
        length = node.integer(3, "frame_length")
    elif node.has_input(2) and isinstance(node.shape(2)[0], int):
        length = int(node.shape(2)[0])  # type: ignore[call-overload]
    else:
        raise node.fail("neither a window nor a frame_length is given")
    dtype = tensor_type(signal).dtype
    window = node.input(2) if node.has_input(2) else node.constant([1.0] * length, dtype)
    data = node.call(op.squeeze, signal, axis=(2,))
    found = node.call(op.stft, data, window, n_fft=length, hop_length=step,
                      onesided=node.attrs.flag("onesided", True))  # fmt: skip
    return node.call(op.transpose, found, axes=(0, 2, 1, 3))


@converts("MelWeightMatrix", since=17, attributes=("output_datatype",))
def mel_weight_matrix(node: Node) -> Expr:
    """Compute the matrix of triangular filters on the mel scale; all inputs must be constant."""
    names = ("num_mel_bins", "dft_length", "sample_rate")
    bins, length, rate = (node.integer(i, name) for i, name in enumerate(names))
    low, high = (node.array(i, name) for i, name in ((3, "lower_edge_hertz"),
                                                     (4, "upper_edge_hertz")))  # fmt: skip
    if low.size != 1 or high.size != 1 or min(low.item(), high.item()) < 0:
        raise node.fail("invalid frequency range", got=f"{low} and {high}")
    if min(bins, length, rate) < 1 or max(bins, length) > _MOST_FREQUENCIES:
        raise node.fail("invalid sizes", expected=f"1 to {_MOST_FREQUENCIES}",
                        got=f"{bins} bins, length {length}, rate {rate}")  # fmt: skip
    code = node.attrs.integer("output_datatype", TensorProto.FLOAT)
    dtype = dtype_of(code, "the result of MelWeightMatrix", node.span)
    ends = [2595 * np.log10(1 + hertz / 700) for hertz in (low.item(), high.item())]
    mels = ends[0] + arrays.arange(bins + 2) * (ends[1] - ends[0]) / (bins + 2)
    edges = ((length + 1) * 700 * (10 ** (mels / 2595) - 1) // rate).astype(np.int64)
    if edges[0] < 0 or edges[-1] > length // 2 + 1:
        raise node.fail("the frequency range exceeds that of the transform",
                        got=f"{low} to {high} Hz at {rate} Hz")  # fmt: skip
    matrix = arrays.zeros((length // 2 + 1, bins))
    for i, (left, centre, right) in enumerate(zip(edges, edges[1:], edges[2:], strict=False)):
        rising = arrays.arange(left, centre + 1)
        matrix[rising, i] = 1 if centre == left else (rising - left) / (centre - left)
        falling = arrays.arange(centre, right)
        matrix[falling, i] = (right - falling) / max(right - centre, 1)
    return Constant(matrix.astype(dtype.numpy), span=node.span)
