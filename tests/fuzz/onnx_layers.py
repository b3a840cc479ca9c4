"""Draws of nodes that convolve, pool, multiply matrices, normalise, resize, order and quantise."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import TensorProto, helper

from tests.fuzz.onnx_graph import Graph
from tests.fuzz.onnx_nodes import Draw, allowed
from tests.fuzz.onnx_peers import is_float, typed_value


def _image(
    g: Graph, op: str, axes: int, channels: int | None = None, *, numbers: bool = False
) -> str:
    """Data with so many spatial axes; without NaN where ``numbers`` are asked for."""

    def fits(a: np.ndarray) -> bool:
        if numbers and np.isnan(a.astype(np.float64)).any():
            return False
        return 0 not in a.shape and (channels is None or a.shape[1] == channels)

    found = [n for n, a in g.arrays.items()
             if a.ndim == axes + 2 and fits(a) and a.dtype.name in allowed(g, op)
             and n not in g.constants]
    if found and g.chance(0.6):
        return g.one_of(found)
    spatial = [g.int(2, 7) for _ in range(axes)] if axes < 3 else [g.int(2, 4)] * axes
    shape = (g.int(1, 2), channels or g.int(1, 4), *spatial)
    return g.fresh(g.one_of(allowed(g, op)), shape, tame=numbers)


def _window(g: Graph, sizes: tuple[int, ...], *, dilates: bool, most: int = 3) -> dict[str, Any]:
    """Attributes of a window that fits into axes of these sizes, some of them left out."""
    kernel = [g.int(1, min(most, s)) for s in sizes]
    attrs: dict[str, Any] = {"kernel_shape": kernel}
    if g.chance(0.6):
        attrs["strides"] = [g.int(1, 3) for _ in sizes]
    if dilates and g.chance(0.3):
        attrs["dilations"] = [
            g.int(1, 2) if (k - 1) * 2 < s else 1 for k, s in zip(kernel, sizes, strict=True)
        ]
    mode = g.one_of(["pads", "pads", "none", "SAME_UPPER", "SAME_LOWER", "VALID"])
    if mode == "pads":
        attrs["pads"] = [g.int(0, k - 1) for k in kernel * 2]
    elif mode != "none":
        attrs["auto_pad"] = mode
        # Where windows leave gaps, peers crop the data for SAME, or refuse.
        attrs["strides"] = [
            min(s, k) for s, k in zip(attrs.get("strides", kernel), kernel, strict=True)
        ]
    return attrs


def conv(g: Graph) -> Any:
    axes = g.one_of([1, 2, 2, 2, 3])
    x = _image(g, "Conv", axes)
    array = g.array(x)
    attrs = _window(g, array.shape[2:], dilates=True)
    group = g.one_of([d for d in range(1, array.shape[1] + 1) if array.shape[1] % d == 0])
    outputs = group * g.int(1, 3)
    # Of an infinite tap beside the image some kernels read the zero there, and others do not.
    shape = (outputs, array.shape[1] // group, *attrs["kernel_shape"])
    w = g.fresh(array.dtype.name, shape, tame=True)
    bias = [g.fresh(array.dtype.name, (outputs,))] if g.chance(0.5) else []
    return g.add("Conv", [x, w, *bias], group=group, **attrs)


def conv_transpose(g: Graph) -> Any:
    axes = g.one_of([1, 2, 2, 3])
    x = _image(g, "ConvTranspose", axes)
    array = g.array(x)
    group = g.one_of([d for d in range(1, array.shape[1] + 1) if array.shape[1] % d == 0])
    kernel = [g.int(1, 3) for _ in range(axes)]
    attrs: dict[str, Any] = {"strides": [g.int(1, 3) for _ in range(axes)]}
    if g.chance(0.4):
        attrs["dilations"] = [g.int(1, 2) for _ in range(axes)]
    if g.chance(0.4):
        attrs["pads"] = [g.int(0, 1) for _ in range(2 * axes)]
    if g.chance(0.4):
        attrs["output_padding"] = [g.int(0, s - 1) for s in attrs["strides"]]
    outputs = g.int(1, 3)
    # Infinite taps at the border need the kernel at compile time.
    weight = g.data(array.dtype.name, (array.shape[1], outputs, *kernel))
    w = g.new(weight, constant=True if g.special else None)
    bias = [g.fresh(array.dtype.name, (outputs * group,))] if g.chance(0.4) else []
    return g.add("ConvTranspose", [x, w, *bias], group=group, **attrs)


def pool(g: Graph) -> Any:
    op = g.one_of(["MaxPool", "AveragePool", "AveragePool", "LpPool"])
    # The largest of NaN and a number is NaN in weft and torch, and an accident of order elsewhere.
    x = _image(g, op, g.one_of([1, 2, 2, 3]), numbers=op == "MaxPool")
    dilates = g.opset >= (10 if op == "MaxPool" else 19 if op == "AveragePool" else 18)
    attrs = _window(g, g.array(x).shape[2:], dilates=dilates)
    if g.opset >= 10 and g.chance(0.4) and "auto_pad" not in attrs and op != "LpPool":
        attrs["ceil_mode"] = g.int(0, 1)
    if op == "AveragePool" and g.chance(0.5):
        attrs["count_include_pad"] = g.int(0, 1)
    if op == "LpPool":
        attrs["p"] = g.int(1, 3)
    both = op == "MaxPool" and g.chance(0.3) and x in g.exact
    return g.add(op, [x], 2 if both else 1, exact=op == "MaxPool", **attrs)


def global_pool(g: Graph) -> Any:
    op = g.one_of(["GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool"])
    x = _image(g, op, g.one_of([1, 2, 3]), numbers=op == "GlobalMaxPool")
    return g.add(op, [x], exact=op == "GlobalMaxPool")


def matmul(g: Graph) -> Any:
    a = g.pick(allowed(g, "MatMul"), lambda v: v.ndim > 0)
    shape = g.array(a).shape
    inner, rank = shape[-1], g.int(1, 3)
    if rank == 1:
        other: tuple[int, ...] = (inner,)
    else:
        lead = [1 if g.chance(0.4) else d for d in shape[:-2]][: 2 if rank == 3 else 0]
        other = (*(lead[-(rank - 2):] if rank > 2 else ()), inner, g.size())
    return g.add("MatMul", [a, g.fresh(g.array(a).dtype.name, other)])


def gemm(g: Graph) -> Any:
    a = g.pick(allowed(g, "Gemm"), rank=2)
    array = g.array(a)
    trans_a, trans_b = g.int(0, 1), g.int(0, 1)
    rows, inner = array.shape[::-1] if trans_a else array.shape
    columns = g.size()
    b = g.fresh(array.dtype.name, (columns, inner) if trans_b else (inner, columns))
    shape = g.one_of([(rows, columns), (columns,), (1, columns), (rows, 1), ()])
    c = [g.fresh(array.dtype.name, shape)] if g.opset < 11 or g.chance(0.7) else []
    attrs: dict[str, Any] = {}
    if is_float(array):
        attrs = {"alpha": g.uniform(-2, 2), "beta": g.one_of([0.0, 0.5, 1.0, -1.5])}
    return g.add("Gemm", [a, b, *c], transA=trans_a, transB=trans_b, **attrs)


_EQUATIONS = ("ii", "iij", "ii,jk", "ij->ji", "ij,jk", "ij,jk->ik", "bij,bjk->bik", "i,j->ij",
              "ij,ij->", "...ij,...jk->...ik", "...ii->...i", "ij->i", "bii,i", "ij,kj->ik",
              "abc,cd,b->ad", "ij", "ba", "i...,i...->...")  # fmt: skip


def einsum(g: Graph) -> Any:
    equation = g.one_of(_EQUATIONS)
    # Sizes of 0 end the process of onnxruntime.
    sizes = {c: max(g.size(), 1) for c in "abcdijk"}
    lead = [max(g.size(), 1) for _ in range(g.int(0, 1))]
    kind = g.one_of([k for k in allowed(g, "Einsum") if k != "bool"])
    operands = []
    for term in equation.split("->")[0].split(","):
        shape = [sizes[c] for c in term.replace("...", "")]
        if "..." in term:
            at = term.index("...")
            shape[at:at] = lead
        operands.append(g.fresh(kind, shape))
    return g.add("Einsum", operands, equation=equation)


def softmax(g: Graph) -> Any:
    op = g.one_of(["Softmax", "LogSoftmax"])
    x = g.pick(allowed(g, op), lambda a: a.ndim > 0)
    rank = g.array(x).ndim
    low = -rank if g.opset >= 11 else 0
    return g.add(op, [x], **({"axis": g.int(low, rank - 1)} if g.chance(0.8) else {}))


def norm(g: Graph) -> Any:
    op = g.one_of(["BatchNormalization", "InstanceNormalization", "LRN", "LpNormalization"])
    if op == "LpNormalization":
        x = g.pick(allowed(g, op), lambda a: a.ndim > 0)
        rank = g.array(x).ndim
        return g.add(op, [x], axis=g.int(-rank, rank - 1), p=g.int(1, 2))
    x = _image(g, op, g.one_of([1, 2]) if op != "LRN" else 2)
    array = g.array(x)
    if op == "LRN":
        return g.add(op, [x], size=g.one_of([1, 3, 5]), alpha=0.01, beta=0.75, bias=1.0)
    channels = array.shape[1]
    vectors = [g.fresh(array.dtype.name, (channels,)) for _ in range(2)]
    if op == "BatchNormalization":
        variance = np.abs(g.data(array.dtype.name, (channels,), tame=True)) + 0.5
        vectors += [g.fresh(array.dtype.name, (channels,)), g.new(variance.astype(array.dtype))]
    return g.add(op, [x, *vectors], epsilon=0.125)


def layer_norm(g: Graph) -> Any:
    op = g.one_of(["LayerNormalization", "RMSNormalization", "GroupNormalization",
                   "MeanVarianceNormalization"])  # fmt: skip
    if op == "GroupNormalization":
        groups = g.int(1, 2)
        channels = groups * g.int(1, 2)
        x = _image(g, op, 2, channels)
        count = channels if g.opset >= 21 else groups
        vectors = [g.fresh(g.array(x).dtype.name, (count,)) for _ in range(2)]
        return g.add(op, [x, *vectors], num_groups=groups, epsilon=0.125)
    if op == "MeanVarianceNormalization":
        x = _image(g, op, 2)
        return g.add(op, [x], axes=g.one_of([[0, 2, 3], [2, 3], [1]]))
    x = g.pick(allowed(g, op), lambda a: a.ndim > 0)
    array = g.array(x)
    axis = g.int(-array.ndim, array.ndim - 1)
    vectors = [g.fresh(array.dtype.name, array.shape[axis:]) for _ in range(2)]
    count = 1 if op == "RMSNormalization" else g.int(1, 2)
    return g.add(op, [x, *vectors[:count]], axis=axis, epsilon=0.125)


def resize(g: Graph) -> Any:
    x = _image(g, "Resize", g.one_of([1, 2, 2]))
    array = g.array(x)
    factors = [1.0, 1.0, *(g.one_of([0.5, 1.0, 1.5, 2.0, 3.0]) for _ in array.shape[2:])]
    scales = g.new(np.array(factors, np.float32), constant=True)
    if g.opset < 11:
        return g.add("Resize", [x, scales], mode=g.one_of(["nearest", "linear"]))
    attrs: dict[str, Any] = {
        "mode": g.one_of(["nearest", "linear", "cubic"]),
        "coordinate_transformation_mode": g.one_of(
            ["half_pixel", "align_corners", "asymmetric", "pytorch_half_pixel"]),
    }
    if attrs["mode"] == "nearest":
        attrs["nearest_mode"] = g.one_of(["floor", "ceil", "round_prefer_floor"])
    if attrs["mode"] == "cubic":
        attrs |= {"cubic_coeff_a": g.one_of([-0.75, -0.5]), "exclude_outside": g.int(0, 1)}
    nothing = "" if g.opset >= 13 else g.new(np.zeros(0, np.float32), constant=True)
    if g.chance(0.6):
        return g.add("Resize", [x, nothing, scales], **attrs)
    sizes = [*array.shape[:2], *(g.int(1, 8) for _ in array.shape[2:])]
    return g.add("Resize", [x, nothing, "" if g.opset >= 13 else nothing, g.ints(sizes)], **attrs)


def order(g: Graph) -> Any:
    op = g.one_of(["TopK", "ArgMax", "ArgMin", "Unique", "NonZero"])
    x = g.pick(allowed(g, op), lambda a: a.ndim > 0 and 0 not in a.shape
               and not np.isnan(a.astype(np.float64)).any(), exact=True)  # fmt: skip
    rank = g.array(x).ndim
    axis = g.int(-rank, rank - 1)
    if op in ("NonZero", "Unique"):
        attrs: dict[str, Any] = {"axis": axis} if op == "Unique" and g.chance(0.5) else {}
        found = g.add(op, [x], g.int(1, 4) if op == "Unique" else 1, exact=True, **attrs)
        g.last |= set(found or ()) if g.chance(0.9) else set()
        return found
    if op != "TopK":
        last = {"select_last_index": g.int(0, 1)} if g.opset >= 12 else {}
        return g.add(op, [x], exact=True, axis=axis, keepdims=g.int(0, 1), **last)
    count = g.int(1, g.array(x).shape[axis])
    if g.opset < 10:
        return g.add(op, [x], 2, exact=True, axis=axis, k=count)
    attrs = {"largest": g.int(0, 1)} if g.opset >= 11 else {}
    return g.add(op, [x, g.ints([count])], 2, exact=True, axis=axis, **attrs)


def quantize(g: Graph) -> Any:
    # The standard does not say what becomes of NaN.
    x = g.pick(["float32"], lambda a: not np.isnan(a).any(), exact=True)
    kind = g.one_of([np.uint8, np.int8])
    scale = g.new(np.array(g.one_of([0.125, 0.25, 0.0625]), np.float32), constant=True)
    zero = g.new(np.array(g.int(0, 5), kind), constant=True)
    found = g.add("QuantizeLinear", [x, scale, zero], exact=True)
    if found is None or g.chance(0.2):
        return found
    return g.add("DequantizeLinear", [*found, scale, zero], exact=True)


def integer_products(g: Graph) -> Any:
    left, right = g.one_of(["uint8", "int8"]), g.one_of(["uint8", "int8"])
    rows, inner, columns = g.int(1, 4), g.int(1, 6), g.int(1, 4)
    a, b = g.fresh(left, (rows, inner)), g.fresh(right, (inner, columns))
    zeros = [g.fresh(left, ()), g.fresh(right, ())]
    if g.chance(0.5):
        return g.add("MatMulInteger", [a, b, *zeros[: g.int(0, 2)]], exact=True)
    def scale() -> str:
        return g.new(np.array(g.one_of([0.25, 0.5, 0.125]), np.float32))

    kind = g.fresh(left, ())
    return g.add("QLinearMatMul", [a, scale(), zeros[0], b, scale(), zeros[1], scale(), kind],
                 exact=True)


def branch(g: Graph) -> Any:
    """If over a captured value, with a condition that run time decides."""
    x = g.pick(["float32", "float64"])
    array = g.array(x)
    bodies = []
    for name in ("then", "else"):
        op = g.one_of(["Neg", "Abs", "Relu", "Tanh", "Identity"])
        result = f"{name}_{len(g.steps)}"
        bodies.append(helper.make_graph(
            [helper.make_node(op, [x], [result])], name, [], [typed_value(result, array)]))
    condition = g.new(np.array(g.chance(0.5)))
    # The node reads x by name, so it is run with it as an input of the graph around it.
    return g.add("If", [condition], then_branch=bodies[0], else_branch=bodies[1], reads=(x,))


def loop(g: Graph) -> Any:
    """A loop of a few rounds over one carried value, with or without what each round gives out."""
    x = g.pick(["float32", "int32"], lambda a: a.ndim < 4)
    array, tag = g.array(x), len(g.steps)
    op = g.one_of(["Add", "Mul", "Max"] if is_float(array) else ["Add", "Sub"])
    step = g.fresh(array.dtype.name, array.shape)
    scans = g.int(0, 1)
    names = [f"{n}_{tag}" for n in ("round", "going", "carried", "next", "kept", "scan")]
    kind = helper.np_dtype_to_tensor_dtype(array.dtype)
    nodes = [helper.make_node(op, [names[2], step], [names[3]]),
             helper.make_node("Identity", [names[1]], [names[4]])]
    outputs = [helper.make_tensor_value_info(names[4], TensorProto.BOOL, []),
               helper.make_tensor_value_info(names[3], kind, array.shape)]
    if scans:
        nodes.append(helper.make_node("Identity", [names[3]], [names[5]]))
        outputs.append(helper.make_tensor_value_info(names[5], kind, array.shape))
    body = helper.make_graph(nodes, "body", [
        helper.make_tensor_value_info(names[0], TensorProto.INT64, []),
        helper.make_tensor_value_info(names[1], TensorProto.BOOL, []),
        helper.make_tensor_value_info(names[2], kind, array.shape),
    ], outputs)  # fmt: skip
    count = g.new(np.array(g.int(0, 3), np.int64), constant=True)
    return g.add("Loop", [count, "", x], 1 + scans, body=body, reads=(step,))


DRAWS: dict[Draw, float] = {
    conv: 3, conv_transpose: 2, pool: 3, global_pool: 1, matmul: 3, gemm: 2, einsum: 2,
    softmax: 2, norm: 2, layer_norm: 1.5, resize: 2, order: 2.5, quantize: 1.5,
    integer_products: 1, branch: 1, loop: 1,
}  # fmt: skip
