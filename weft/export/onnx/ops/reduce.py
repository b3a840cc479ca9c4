"""Reductions, scans and searches along axes."""

from __future__ import annotations

from weft.export.onnx.call import CallWriter, arithmetic_dtype
from weft.export.onnx.registry import writes
from weft.export.writers import Value
from weft.ir.dtype import int32, int64
from weft.op.reduce import reduced_axes


def _reduced(c: CallWriter, op: str, name: str, *, keepdims: bool | None = None) -> str:
    axes = reduced_axes(c.attrs, c.ndim)
    keep = c.attrs.keepdims if keepdims is None else keepdims
    if not axes:
        return c.emit("Identity", name)
    return c.emit(op, name, c.ints(*axes), keepdims=int(keep))


def _register(operator: str, onnx: str) -> None:
    def write(c: CallWriter) -> Value:
        wide = arithmetic_dtype(c.dtype, is_ordered=onnx in ("ReduceMax", "ReduceMin"))
        found = _reduced(c, onnx, c.as_dtype(c.inputs[0], c.dtype, wide))
        return c.as_dtype(found, wide, c.result.dtype)

    writes(operator)(write)


_register("sum", "ReduceSum")
_register("prod", "ReduceProd")
_register("mean", "ReduceMean")
_register("max", "ReduceMax")
_register("min", "ReduceMin")


@writes("all", "any")
def of_booleans(c: CallWriter) -> Value:
    """The sum of no elements is false, and the least of none is true."""
    op = "ReduceMin" if c.name == "all" else "ReduceSum"
    return c.cast(_reduced(c, op, c.cast(c.inputs[0], int32)), c.result.dtype)


@writes("variance")
def variance(c: CallWriter) -> Value | None:
    if c.attrs.unbiased:
        return c.no_form("the unbiased variance")
    difference = c.emit("Sub", *c.inputs)
    return _reduced(c, "ReduceMean", c.emit("Mul", difference, difference))


@writes("argmax", "argmin")
def arg_extreme(c: CallWriter) -> Value | None:
    op = "ArgMax" if c.name == "argmax" else "ArgMin"
    axes, name = reduced_axes(c.attrs, c.ndim), c.inputs[0]
    if len(axes) != 1 and axes != tuple(range(c.ndim)):
        return c.no_form("positions along some axes")
    axis = axes[0] if len(axes) == 1 else 0
    if len(axes) != 1:
        name = c.emit("Reshape", name, c.ints(-1))
    found = c.emit(op, name, axis=axis, keepdims=int(c.attrs.keepdims and len(axes) == 1),
                   select_last_index=int(c.attrs.select_last_index))
    if len(axes) != 1:
        found = c.reshaped(found, c.result.shape)
    return c.as_dtype(found, int64, c.result.dtype)


@writes("cumsum", "cumprod")
def running(c: CallWriter) -> Value | None:
    if c.name == "cumprod":
        return c.no_form("running products are of opset 26")
    wide = arithmetic_dtype(c.result.dtype)
    found = c.emit("CumSum", c.as_dtype(c.inputs[0], c.dtype, wide),
                   c.const(c.attrs.axis % max(c.ndim, 1), int64),
                   exclusive=int(c.attrs.exclusive), reverse=int(c.attrs.reverse))
    return c.as_dtype(found, wide, c.result.dtype)


@writes("topk")
def topk(c: CallWriter) -> Value:
    k = c.sizes((c.attrs.k,))
    values, indices = c.emit_many("TopK", 2, c.inputs[0], k, axis=c.attrs.axis,
                                  largest=int(not c.attrs.is_ascend), sorted=1)
    return values, c.as_dtype(indices, int64, c.attrs.dtype)


@writes("sort", "argsort")
def sort(c: CallWriter) -> Value:
    """TopK of a whole axis; equal elements stay in order, as ONNX demands."""
    axis = c.attrs.axis % c.ndim
    wide = arithmetic_dtype(c.dtype)
    name = c.as_dtype(c.inputs[0], c.dtype, wide)
    values, indices = c.emit_many("TopK", 2, name, c.sizes((c.types[0].shape[axis],)), axis=axis,
                                  largest=int(not c.attrs.is_ascend), sorted=1)
    if c.name == "sort":
        return c.as_dtype(values, wide, c.dtype)
    return c.as_dtype(indices, int64, c.attrs.dtype)


@writes("unique")
def unique(c: CallWriter) -> Value:
    return tuple(_unique(c))


def _unique(c: CallWriter) -> list[str]:
    wide = arithmetic_dtype(c.dtype)
    if wide == int32:
        wide = int64  # of which runtimes find the unique ones
    found = c.emit_many("Unique", 4, c.as_dtype(c.inputs[0], c.dtype, wide),
                        sorted=int(c.attrs.is_sorted))
    return [c.as_dtype(name, have, type_.dtype) for name, have, type_ in
            zip(found, (wide, int64, int64, int64), c.results, strict=True)]


@writes("argwhere")
def argwhere(c: CallWriter) -> Value | None:
    """``NonZero`` gives the transpose, and its indices are int64."""
    if c.ndim == 0:
        return c.no_form("the indices of a scalar")
    found = c.emit("Transpose", c.emit("NonZero", c.inputs[0]), perm=[1, 0])
    return c.as_dtype(found, int64, c.result.dtype)


@writes("nn.softmax", "nn.fast_softmax", "nn.log_softmax")
def softmax(c: CallWriter) -> Value:
    is_log = c.name == "nn.log_softmax"
    return c.emit("LogSoftmax" if is_log else "Softmax", *c.inputs, axis=c.attrs.axis)
