"""Shapes: reshapes, transposes, slices, joins, repetition, and new tensors."""

from __future__ import annotations

from collections.abc import Sequence

from weft.export.onnx.call import CallWriter
from weft.export.onnx.registry import writes
from weft.export.writers import Value
from weft.ir.dtype import int64
from weft.ir.shape import KnownDim, SymDim
from weft.ir.types import has_any
from weft.op.transform.slice import axis_slices


@writes("reshape", "expand_dims", "squeeze", "nn.batch_flatten", "reshape_like", "reverse_reshape")
def reshape(c: CallWriter) -> Value | None:
    """Any change of shape alone; the shape of the result is known."""
    if has_any(c.result.shape):
        return _reshape_any(c)
    return c.reshaped(c.inputs[0], c.result.shape)


def _reshape_any(c: CallWriter) -> Value | None:
    name = c.name
    if name == "expand_dims":
        axis = c.attrs.axis % (c.ndim + 1)
        return c.emit("Unsqueeze", c.inputs[0], c.ints(*range(axis, axis + c.attrs.num_newaxis)))
    if name == "squeeze":
        axes = c.attrs.axis
        given = () if axes is None else (axes,) if isinstance(axes, int) else axes
        return c.emit("Squeeze", c.inputs[0], *((c.ints(*given),) if axes is not None else ()))
    if name == "reshape":
        return c.emit("Reshape", c.inputs[0], c.sizes(c.attrs.newshape),
                      allowzero=int(c.attrs.allowzero))
    if name == "nn.batch_flatten":
        return c.emit("Flatten", c.inputs[0], axis=1)
    return c.no_form("a data-dependent size")


@writes("transpose")
def transpose(c: CallWriter) -> Value:
    axes = c.attrs.axes
    order = [a % c.ndim for a in axes] if axes else list(range(c.ndim))[::-1]
    return c.transposed(c.inputs[0], order) if c.ndim > 1 else c.emit("Identity", c.inputs[0])


@writes("broadcast_to", "broadcast_to_like", "collapse_sum_like", "collapse_sum_to")
def broadcast_to(c: CallWriter) -> Value | None:
    name = c.name
    if name.endswith("_like") and has_any(c.result.shape):
        return c.no_form("a data-dependent size") if name.startswith("c") \
            else c.emit("Expand", c.inputs[0], c.emit("Shape", c.inputs[1]))
    if name.startswith("broadcast"):
        return c.emit("Expand", c.inputs[0], c.sizes(c.result.shape))
    return _collapsed(c)


def _collapsed(c: CallWriter) -> Value:
    """Sums over the axes that broadcasting to the argument's shape would repeat."""
    have, want = c.types[0].shape, c.result.shape
    lead = len(have) - len(want)
    axes = [*range(lead), *(i + lead for i, d in enumerate(want) if d == 1 != have[i + lead])]
    found = c.emit("ReduceSum", c.inputs[0], c.ints(*axes), keepdims=1) if axes else c.inputs[0]
    return c.reshaped(found, want)


@writes("concatenate", "stack")
def concatenate(c: CallWriter) -> Value:
    if c.name == "concatenate":
        return c.emit("Concat", *c.inputs, axis=c.attrs.axis)
    axis = c.attrs.axis % c.result.ndim
    parts = [c.emit("Unsqueeze", name, c.ints(axis)) for name in c.inputs]
    return c.emit("Concat", *parts, axis=axis)


@writes("split")
def split(c: CallWriter) -> Value:
    axis = c.attrs.axis % c.ndim
    sizes = c.sizes([t.shape[axis] for t in c.results])
    return c.emit_many("Split", len(c.results), c.inputs[0], sizes, axis=axis)


@writes("strided_slice")
def strided_slice(c: CallWriter) -> Value:
    cuts = axis_slices(c.attrs, c.ndim)
    begin, end = (_bounds(c, [getattr(cut, side) for cut in cuts]) for side in ("begin", "end"))
    return c.emit("Slice", c.inputs[0], begin, end, c.ints(*(cut.axis for cut in cuts)),
                  c.ints(*(cut.stride for cut in cuts)))


def _bounds(c: CallWriter, values: Sequence[KnownDim]) -> str:
    """Numbers are kept within int64, beyond which Python's integers may go."""
    return c.sizes([max(-(2**63), min(v, 2**63 - 1)) if isinstance(v, int) else v for v in values])


@writes("slice_like")
def slice_like(c: CallWriter) -> Value:
    axes = c.attrs.axes
    named = range(min(t.ndim for t in c.types)) if axes is None else [a % c.ndim for a in axes]
    sizes = c.sizes([c.types[1].shape[a] for a in named])
    return c.emit("Slice", c.inputs[0], c.ints(*(0 for _ in named)), sizes, c.ints(*named))


@writes("reverse")
def reverse(c: CallWriter) -> Value:
    return c.emit("Slice", c.inputs[0], c.ints(-1), c.ints(-(2**63)), c.ints(c.attrs.axis % c.ndim),
                  c.ints(-1))


@writes("tile")
def tile(c: CallWriter) -> Value:
    reps, shape = tuple(c.attrs.reps), c.types[0].shape
    name, lead = c.inputs[0], len(reps) - c.ndim
    if lead > 0:
        name = c.reshaped(name, ((1,) * lead + shape))
    reps = (1,) * -lead + reps
    return c.emit("Tile", name, c.sizes(reps))


@writes("repeat")
def repeat(c: CallWriter) -> Value:
    """Each element in a new axis behind its own, which is then joined with it."""
    shape, axis, name = c.types[0].shape, c.attrs.axis, c.inputs[0]
    if not c.attrs.repeats:
        return c.zeros_of(c.result)
    if axis is None:
        name, shape, axis = c.emit("Reshape", name, c.ints(-1)), c.result.shape, 0
        shape = (shape[0] // c.attrs.repeats,)
    axis %= len(shape)
    apart = (*shape[:axis + 1], 1, *shape[axis + 1:])
    whole = (*shape[:axis + 1], c.attrs.repeats, *shape[axis + 1:])
    found = c.emit("Expand", c.reshaped(name, apart), c.sizes(whole))
    return c.reshaped(found, c.result.shape)


@writes("full", "full_like", "zeros", "zeros_like", "ones", "ones_like")
def full(c: CallWriter) -> Value:
    name = c.name
    dtype = c.result.dtype
    if name.startswith("full"):
        value = c.as_dtype(c.inputs[-1], c.types[-1].dtype, dtype)
    else:
        value = c.const(int(name.startswith("ones")), dtype)
    if name.endswith("_like") and has_any(c.result.shape):
        return c.emit("Expand", value, c.emit("Shape", c.inputs[0]))
    return c.emit("Expand", value, c.sizes(c.result.shape))


@writes("arange")
def arange(c: CallWriter) -> Value:
    """Positions times the step: rounding does not add up. Start and step may be sizes."""
    a, dtype = c.attrs, c.result.dtype
    count = c.emit("Range", c.const(0, int64), c.size(c.result.shape[0]), c.const(1, int64))
    start, step = (c.as_dtype(c.size(v), int64, dtype) if isinstance(v, SymDim)
                   else c.const(v, dtype) for v in (a.start, a.step))
    steps = c.as_dtype(count, int64, dtype)
    if a.step != 1:
        steps = c.emit("Mul", steps, step)
    return steps if a.start == 0 else c.emit("Add", steps, start)


@writes("shape_of", "ndarray_size")
def shape_of(c: CallWriter) -> Value:
    op = "Shape" if c.name == "shape_of" else "Size"
    return c.as_dtype(c.emit(op, c.inputs[0]), int64, c.result.dtype)


@writes("nn.pad")
def pad(c: CallWriter) -> Value:
    before, after = zip(*c.attrs.pad_width, strict=True) if c.attrs.pad_width else ((), ())
    return c.emit("Pad", c.inputs[0], c.sizes((*before, *after)), c.inputs[1],
                  mode=c.attrs.pad_mode)


@writes("trilu")
def trilu(c: CallWriter) -> Value:
    k = c.as_dtype(c.inputs[1], c.types[1].dtype, int64)
    return c.emit("Trilu", c.inputs[0], k, upper=int(c.attrs.upper))


@writes("nn.depth_to_space", "nn.space_to_depth")
def space(c: CallWriter) -> Value | None:
    if c.attrs.layout not in ("NCHW", "NHWC") or c.dtype.name not in ("float32", "float64"):
        return c.no_form(f"layout {c.attrs.layout} of {c.dtype}")
    is_last = c.attrs.layout == "NHWC"
    name = c.transposed(c.inputs[0], (0, 3, 1, 2)) if is_last else c.inputs[0]
    if c.name == "nn.space_to_depth":
        found = c.emit("SpaceToDepth", name, blocksize=c.attrs.block_size)
    else:
        found = c.emit("DepthToSpace", name, blocksize=c.attrs.block_size, mode=c.attrs.mode)
    return c.transposed(found, (0, 2, 3, 1)) if is_last else found
