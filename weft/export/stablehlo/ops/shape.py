"""Shapes, slices, joins, new tensors, reads and writes at indices."""

from __future__ import annotations

from weft.export.stablehlo.call import CallWriter, writes
from weft.export.stablehlo.text import array, ints, type_text
from weft.export.writers import Value
from weft.ir import TensorType
from weft.ir.dtype import int64
from weft.op.transform.slice import axis_slices


@writes("reshape", "expand_dims", "squeeze", "nn.batch_flatten", "reshape_like", "reverse_reshape")
def reshape(c: CallWriter) -> Value:
    return c.reshaped(c.inputs[0], c.result.concrete_shape)


@writes("transpose")
def transpose(c: CallWriter) -> Value:
    ndim = c.type(c.inputs[0]).ndim
    axes = c.attrs.axes
    order = [a % ndim for a in axes] if axes else list(range(ndim))[::-1]
    return c.transposed(c.inputs[0], order)


@writes("broadcast_to", "broadcast_to_like")
def broadcast_to(c: CallWriter) -> Value:
    return c.broadcast(c.inputs[0], c.result.concrete_shape)


@writes("concatenate")
def concatenate(c: CallWriter) -> Value:
    return c.typed("stablehlo.concatenate", c.inputs, c.result,
                   f"dim = {c.attrs.axis % c.result.ndim}")


@writes("strided_slice")
def strided_slice(c: CallWriter) -> Value:
    """Steps backwards are those of the reversed axis."""
    name = c.inputs[0]
    shape = c.shape(name)
    limits = [(0, d, 1) for d in shape]
    backwards: list[int] = []
    for cut in axis_slices(c.attrs, len(shape)):
        size = shape[cut.axis]
        found = range(*slice(cut.begin, cut.end, cut.stride).indices(size))
        step = abs(cut.stride)
        if cut.stride < 0:
            backwards.append(cut.axis)
        first = (found[0] if cut.stride > 0 else size - 1 - found[0]) if found else 0
        end = first + (len(found) - 1) * step + 1 if found else first
        limits[cut.axis] = (first, end, step)
    if backwards:
        name = _reversed(c, name, backwards)
    text = ", ".join(f"{a}:{b}" if s == 1 else f"{a}:{b}:{s}" for a, b, s in limits)
    return c.body.add(f"stablehlo.slice {name} [{text}] : ({type_text(c.type(name))}) -> "
                      f"{type_text(c.result)}", c.result)


def _reversed(c: CallWriter, name: str, axes: list[int]) -> str:
    return c.emit("stablehlo.reverse", [name, f"dims = {ints(axes)}"], c.type(name))


@writes("reverse")
def reverse(c: CallWriter) -> Value:
    return _reversed(c, c.inputs[0], [c.attrs.axis % c.result.ndim])


@writes("nn.pad")
def pad(c: CallWriter) -> Value | None:
    if c.attrs.pad_mode != "constant":
        return c.no_form(f"padding with the {c.attrs.pad_mode}")
    low, high = zip(*c.attrs.pad_width, strict=True) if c.attrs.pad_width else ((), ())
    inner = ints([0] * len(low))
    return c.typed("stablehlo.pad", c.inputs, c.result,
                   f"low = {ints(low)}, high = {ints(high)}, interior = {inner}")


@writes("full", "full_like", "zeros", "zeros_like", "ones", "ones_like")
def full(c: CallWriter) -> Value:
    if c.name.startswith("full"):
        value = c.converted(c.inputs[-1], c.result.dtype)
        return c.broadcast(value, c.result.concrete_shape, ())
    return c.filled(int(c.name.startswith("ones")), c.result)


@writes("arange")
def arange(c: CallWriter) -> Value:
    a, type_ = c.attrs, c.result
    found = c.body.add(f"stablehlo.iota dim = 0 : {type_text(type_)}", type_)
    if a.step != 1:
        found = c.emit("stablehlo.multiply", [found, c.filled(a.step, type_)], type_)
    return found if a.start == 0 else \
        c.emit("stablehlo.add", [found, c.filled(a.start, type_)], type_)


@writes("take")
def take(c: CallWriter) -> Value | None:
    """A gather of slices, whose start indices are clamped."""
    axis, (x, indices) = c.attrs.axis, c.inputs
    if c.attrs.mode != "clip" or 0 in c.shape(x):
        return c.no_form(f"mode {c.attrs.mode!r}")
    if axis is None:
        x, axis = c.reshaped(x, (_count(c, x),)), 0
    shape, at = c.shape(x), c.shape(indices)
    axis %= len(shape)
    offsets = [*range(axis), *range(axis + len(at), axis + len(at) + len(shape) - axis - 1)]
    sizes = [1 if a == axis else d for a, d in enumerate(shape)]
    numbers = (f"#stablehlo.gather<offset_dims = {ints(offsets)}, collapsed_slice_dims = [{axis}],"
               f" start_index_map = [{axis}], index_vector_dim = {len(at)}>")
    index = c.reshaped(c.converted(indices, int64), (*at, 1))
    types = f"({type_text(c.type(x))}, {type_text(c.type(index))}) -> {type_text(c.result)}"
    return c.body.add(f'"stablehlo.gather"({x}, {index}) <{{dimension_numbers = {numbers}, '
                      f"indices_are_sorted = false, slice_sizes = {array(sizes)}}}> : {types}",
                      c.result)


def _count(c: CallWriter, name: str) -> int:
    count = 1
    for size in c.shape(name):
        count *= size
    return count


_COMBINED = {"add": "add", "mul": "multiply", "max": "maximum", "min": "minimum"}


@writes("scatter_nd")
def scatter_nd(c: CallWriter) -> Value:
    """Updates out of range are left out, as in weft; the index tuples are along axis 0."""
    x, indices, updates = c.inputs
    index = c.converted(indices, int64)
    length, *batch = c.shape(index)
    windows = range(len(batch), len(c.shape(updates)))
    inserted = list(range(length))
    numbers = (f"#stablehlo.scatter<update_window_dims = {ints(list(windows))}, "
               f"inserted_window_dims = {ints(inserted)}, scatter_dims_to_operand_dims = "
               f"{ints(inserted)}, index_vector_dim = 0>")
    scalar = type_text(TensorType((), c.result.dtype))
    a, b, r = (c.body.fresh() for _ in range(3))
    combine = _COMBINED.get(c.attrs.mode)
    inner = (f"      {r} = stablehlo.{combine} {a}, {b} : {scalar}\n" if combine else "")
    given = ", ".join(type_text(c.type(n)) for n in (x, index, updates))
    return c.body.add(
        f'"stablehlo.scatter"({x}, {index}, {updates}) <{{indices_are_sorted = false, '
        f"scatter_dimension_numbers = {numbers}, unique_indices = false}}> ({{\n"
        f"    ^bb0({a}: {scalar}, {b}: {scalar}):\n{inner}"
        f"      stablehlo.return {r if combine else b} : {scalar}\n"
        f"    }}) : ({given}) -> {type_text(c.result)}", c.result)
