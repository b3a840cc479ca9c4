"""Operators whose operands are shapes, axes and counts."""

from __future__ import annotations

from weft.export.onnx.call import CallWriter
from weft.export.onnx.ops.index import hot
from weft.export.onnx.registry import writes
from weft.export.writers import Value
from weft.ir.dtype import int64


def _int64(c: CallWriter, i: int) -> str:
    return c.as_dtype(c.inputs[i], c.types[i].dtype, int64)


@writes("dyn.reshape")
def reshape(c: CallWriter) -> Value:
    return c.emit("Reshape", c.inputs[0], _int64(c, 1), allowzero=int(c.attrs.allowzero))


@writes("dyn.broadcast_to")
def broadcast_to(c: CallWriter) -> Value:
    return c.emit("Expand", c.inputs[0], _int64(c, 1))


@writes("dyn.full")
def full(c: CallWriter) -> Value:
    value = c.as_dtype(c.inputs[0], c.dtype, c.result.dtype)
    return c.emit("Expand", value, _int64(c, 1))


@writes("dyn.zeros", "dyn.ones")
def filled(c: CallWriter) -> Value:
    number = int(c.name == "dyn.ones")
    return c.emit("Expand", c.const(number, c.result.dtype), _int64(c, 0))


@writes("dyn.tile")
def tile(c: CallWriter) -> Value | None:
    count = c.types[1].shape[0]
    if not isinstance(count, int):
        return c.no_form("an unknown number of repetitions")
    name, reps, lead = c.inputs[0], _int64(c, 1), count - c.ndim
    if lead > 0:
        name = c.emit("Unsqueeze", name, c.ints(*range(lead)))
    if lead < 0:
        reps = c.emit("Concat", c.ints(*(1,) * -lead), reps, axis=0)
    return c.emit("Tile", name, reps)


@writes("dyn.arange")
def arange(c: CallWriter) -> Value:
    ends = [c.as_dtype(n, t.dtype, c.result.dtype) for n, t in zip(c.inputs, c.types, strict=True)]
    return c.emit("Range", *ends)


@writes("dyn.topk")
def topk(c: CallWriter) -> Value:
    k = c.emit("Reshape", _int64(c, 1), c.ints(1))
    values, indices = c.emit_many("TopK", 2, c.inputs[0], k, axis=c.attrs.axis,
                                  largest=int(not c.attrs.is_ascend), sorted=1)
    return values, c.as_dtype(indices, int64, c.attrs.dtype)


@writes("dyn.squeeze")
def squeeze(c: CallWriter) -> Value:
    return c.emit("Squeeze", c.inputs[0], _int64(c, 1))


@writes("dyn.expand_dims")
def expand_dims(c: CallWriter) -> Value:
    first = c.emit("Reshape", _int64(c, 1), c.ints(1))
    first = c.emit("Where", c.emit("Less", first, c.ints(0)),
                   c.emit("Add", first, c.ints(c.ndim + 1)), first)
    axes = c.emit("Add", first, c.ints(*range(c.attrs.num_newaxis)))
    return c.emit("Unsqueeze", c.inputs[0], axes)


@writes("dyn.nn.pad")
def pad(c: CallWriter) -> Value:
    widths = c.emit("Reshape", c.emit("Transpose", _int64(c, 1), perm=[1, 0]), c.ints(-1))
    return c.emit("Pad", c.inputs[0], widths, c.inputs[2], mode=c.attrs.pad_mode)


@writes("dyn.one_hot")
def one_hot(c: CallWriter) -> Value:
    return hot(c, _int64(c, 3))


@writes("dyn.strided_slice")
def strided_slice(c: CallWriter) -> Value | None:
    begin, end, strides = (_int64(c, i) for i in (1, 2, 3))
    axes = c.attrs.axes
    named = () if axes is None else (c.ints(*axes),)
    if axes is None:
        count = c.types[1].shape[0]
        if not isinstance(count, int):
            return c.no_form("an unknown number of slices")
        named = (c.ints(*range(count)),)
    return c.emit("Slice", c.inputs[0], begin, end, *named, strides)
