"""Reads and writes at indices."""

from __future__ import annotations

from weft.export.onnx.call import CallWriter
from weft.export.onnx.ops.elementwise import where
from weft.export.onnx.registry import writes
from weft.export.writers import Value
from weft.ir import DType
from weft.ir.dtype import int64

_REDUCTIONS = {"update": "none", "add": "add", "mul": "mul", "max": "max", "min": "min"}


def _clamped(c: CallWriter, name: str, dtype: DType, size: str) -> str:
    """Indices within 0 and ``size - 1``, as weft reads them; ONNX refuses others."""
    wide = c.as_dtype(name, dtype, int64)
    last = c.emit("Sub", size, c.const(1, int64))
    return c.emit("Max", c.emit("Min", wide, last), c.const(0, int64))


@writes("take")
def take(c: CallWriter) -> Value | None:
    axis, x, indices = c.attrs.axis, c.inputs[0], c.inputs[1]
    if axis is None:
        x, axis = c.emit("Reshape", x, c.ints(-1)), 0
        size = c.emit("Size", c.inputs[0])
    else:
        axis %= c.ndim
        size = _size_of(c, axis)
    dtype = c.types[1].dtype
    if c.attrs.mode == "clip":
        return c.emit("Gather", x, _clamped(c, indices, dtype, size), axis=axis)
    if c.attrs.mode == "wrap":
        wrapped = c.emit("Mod", c.as_dtype(indices, dtype, int64), size)
        return c.emit("Gather", x, wrapped, axis=axis)
    return c.no_form(f"mode {c.attrs.mode!r}")


def _size_of(c: CallWriter, axis: int, arg: int = 0) -> str:
    dim = c.types[arg].shape[axis]
    if isinstance(dim, int):
        return c.const(dim, int64)
    shape = c.emit("Shape", c.inputs[arg], start=axis, end=axis + 1)
    return c.emit("Squeeze", shape, c.ints(0))


@writes("gather")
def gather(c: CallWriter) -> Value:
    axis = c.attrs.axis % c.ndim
    indices = _clamped(c, c.inputs[1], c.types[1].dtype, _size_of(c, axis))
    return c.emit("GatherElements", c.inputs[0], indices, axis=axis)


@writes("gather_nd")
def gather_nd(c: CallWriter) -> Value:
    """Weft's index tuples are along axis 0, ONNX's along the last one."""
    batch, rank = c.attrs.batch_dims, c.types[1].ndim
    length = int(c.types[1].shape[0])  # type: ignore[arg-type]
    limits = [_size_of(c, batch + i) for i in range(length)]
    tuples = c.transposed(c.inputs[1], (*range(1, rank), 0))
    tuples = _clamped_tuples(c, tuples, c.types[1].dtype, limits)
    return c.emit("GatherND", c.inputs[0], tuples, batch_dims=batch)


def _clamped_tuples(c: CallWriter, tuples: str, dtype: DType, limits: list[str]) -> str:
    parts = [c.emit("Unsqueeze", limit, c.ints(0)) for limit in limits]
    size = c.emit("Concat", *parts, axis=0) if parts else c.ints()
    return _clamped(c, tuples, dtype, size)


@writes("scatter_elements")
def scatter_elements(c: CallWriter) -> Value | None:
    """Indices out of range are ignored by weft, and an error in ONNX."""
    value = c.value(c.inputs[1])
    size = c.types[0].shape[c.attrs.axis]
    if value is None or not isinstance(size, int) or not ((value >= 0) & (value < size)).all():
        return _scatter_guarded(c)
    return c.emit("ScatterElements", *c.inputs, axis=c.attrs.axis,
                  reduction=_REDUCTIONS[c.attrs.reduction])


def _scatter_guarded(c: CallWriter) -> Value:
    """Writes to an axis that is longer by one, whose last element takes what is out of range."""
    axis = c.attrs.axis % c.ndim
    size = _size_of(c, axis)
    indices = c.as_dtype(c.inputs[1], c.types[1].dtype, int64)
    zero = c.const(0, int64)
    outside = c.emit("Or", c.emit("Less", indices, zero), c.emit("GreaterOrEqual", indices, size))
    safe = c.emit("Where", outside, size, indices)
    longer = c.emit("Pad", c.inputs[0], c.ints(*(0,) * c.ndim,
                                               *(int(a == axis) for a in range(c.ndim))))
    found = c.emit("ScatterElements", longer, safe, c.inputs[2], axis=axis,
                   reduction=_REDUCTIONS[c.attrs.reduction])
    return c.emit("Slice", found, c.ints(0), c.ints(-1), c.ints(axis))


@writes("scatter_nd")
def scatter_nd(c: CallWriter) -> Value | None:
    rank = c.types[1].ndim
    value, length = c.value(c.inputs[1]), c.types[1].shape[0]
    limits = c.types[0].shape[:int(length)] if isinstance(length, int) else ()
    tuples = c.as_dtype(c.transposed(c.inputs[1], (*range(1, rank), 0)), c.types[1].dtype, int64)
    known = value is not None and all(
        isinstance(d, int) and bool(((v >= 0) & (v < d)).all())
        for v, d in zip(value, limits, strict=True))
    if known:
        return c.emit("ScatterND", c.inputs[0], tuples, c.inputs[2],
                      reduction=_REDUCTIONS[c.attrs.mode])
    return _scatter_nd_guarded(c, tuples, len(limits))


def _scatter_nd_guarded(c: CallWriter, tuples: str, length: int) -> Value:
    """Tuples with an index out of range write behind the last element of each axis."""
    sizes = c.emit("Concat", *(c.emit("Unsqueeze", _size_of(c, a), c.ints(0))
                               for a in range(length)), axis=0)
    outside = c.emit("Or", c.emit("Less", tuples, c.const(0, int64)),
                     c.emit("GreaterOrEqual", tuples, sizes))
    safe = c.emit("Where", outside, sizes, tuples)
    after = [int(a < length) for a in range(c.ndim)]
    longer = c.emit("Pad", c.inputs[0], c.ints(*(0,) * c.ndim, *after))
    found = c.emit("ScatterND", longer, safe, c.inputs[2], reduction=_REDUCTIONS[c.attrs.mode])
    axes = range(length)
    return c.emit("Slice", found, c.ints(*(0 for _ in axes)), c.ints(*(-1 for _ in axes)),
                  c.ints(*axes))


@writes("one_hot")
def one_hot(c: CallWriter) -> Value:
    return hot(c, c.size(c.attrs.depth))


def hot(c: CallWriter, depth: str) -> Value:
    """A comparison with all positions: ``OneHot`` would count negative ones from the end."""
    axis = c.attrs.axis % (c.ndim + 1)
    indices = c.emit("Unsqueeze", c.as_dtype(c.inputs[0], c.dtype, int64), c.ints(axis))
    positions = c.emit("Range", c.const(0, int64), depth, c.const(1, int64))
    along = c.emit("Reshape", positions, c.ints(-1, *(1,) * (c.ndim - axis)))
    return where(c, c.emit("Equal", indices, along), c.inputs[1], c.inputs[2], c.result.dtype)


@writes("reverse_sequence")
def reverse_sequence(c: CallWriter) -> Value | None:
    time, batch = c.attrs.seq_axis % c.ndim, c.attrs.batch_axis % c.ndim
    if {time, batch} != {0, 1}:
        return c.no_form("sequences along other axes than 0 and 1")
    lengths = c.as_dtype(c.inputs[1], c.types[1].dtype, int64)
    lengths = c.emit("Min", c.emit("Max", lengths, c.const(0, int64)), _size_of(c, time))
    return c.emit("ReverseSequence", c.inputs[0], lengths, time_axis=time, batch_axis=batch)
