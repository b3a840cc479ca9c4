"""Draws of nodes that compute elementwise, reduce, and move elements.

A draw takes its operands from the graph, adds one node, and may raise ``LookupError`` where no
operand fits.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import onnx

from tests.fuzz.onnx_graph import FLOATS, INTEGERS, Graph, numpy_dtype
from tests.fuzz.onnx_peers import element_type, is_float

Draw = Callable[[Graph], Any]
_NAMES = {"tensor(float)": "float32", "tensor(double)": "float64", "tensor(float16)": "float16"}
ANY = (*FLOATS, *INTEGERS, "bool")

_SMOOTH = {
    "Abs": {}, "Neg": {}, "Relu": {}, "Exp": {}, "Log": {}, "Sqrt": {}, "Sigmoid": {}, "Tanh": {},
    "Sin": {}, "Cos": {}, "Tan": {}, "Asin": {}, "Acos": {}, "Atan": {}, "Sinh": {}, "Cosh": {},
    "Asinh": {}, "Acosh": {}, "Atanh": {}, "Erf": {}, "Reciprocal": {}, "Softplus": {},
    "Softsign": {}, "Mish": {}, "HardSwish": {}, "Identity": {}, "Elu": ("alpha",),
    "Selu": ("alpha", "gamma"), "Celu": ("alpha",), "LeakyRelu": ("alpha",),
    "HardSigmoid": ("alpha", "beta"), "ThresholdedRelu": ("alpha",), "Gelu": {},
}  # fmt: skip
_STEPS = ("Ceil", "Floor", "Round", "Sign", "IsNaN", "IsInf", "Shrink", "Hardmax")
_EXACT_UNARY = {"Abs", "Neg", "Relu", "Identity"}


@cache
def dtypes_of(op: str, opset: int, place: int = 0) -> tuple[str, ...]:
    """What the standard allows an operand to be; raises ``LookupError`` where it lacks the node."""
    try:
        schema = onnx.defs.get_schema(op, opset)
    except onnx.defs.SchemaError as error:
        raise LookupError(op) from error
    allowed = schema.inputs[min(place, len(schema.inputs) - 1)].types
    names = [_NAMES.get(t, t.removeprefix("tensor(").removesuffix(")")) for t in sorted(allowed)]
    return tuple(n for n in names if n in ANY or n == "bfloat16")


def allowed(g: Graph, op: str, place: int = 0) -> list[str]:
    """The dtypes of an operand, floats of 32 bits drawn most."""
    names = dtypes_of(op, g.opset, place)
    return [n for n in names for _ in range(6 if n == "float32" else 1)]


def unary(g: Graph) -> Any:
    op = g.one_of(list(_SMOOTH))
    x = g.pick(allowed(g, op))
    attrs = {name: g.uniform(-2, 2) or 1.0 for name in _SMOOTH[op] if g.chance(0.7)}
    if op == "Gelu":
        attrs = {"approximate": g.one_of(["none", "tanh"])}
    return g.add(op, [x], exact=op in _EXACT_UNARY, **attrs)


def step_function(g: Graph) -> Any:
    op = g.one_of(_STEPS)
    x = g.pick(allowed(g, op), exact=True)
    attrs: dict[str, Any] = {}
    if op == "IsInf":
        attrs = {"detect_negative": g.int(0, 1), "detect_positive": g.int(0, 1)}
    elif op == "Shrink":
        attrs = {"bias": g.uniform(-2, 2), "lambd": g.uniform(0, 2)}
    elif op == "Hardmax" and g.array(x).ndim:
        attrs = {"axis": g.int(-g.array(x).ndim, g.array(x).ndim - 1)}
    return g.add(op, [x], exact=True, **attrs)


def arithmetic(g: Graph) -> Any:
    op = g.one_of(["Add", "Add", "Sub", "Mul", "Mul", "Div", "Pow", "PRelu"])
    a = g.pick(allowed(g, op))
    array = g.array(a)
    if is_float(array):
        b = g.broadcasting(a)
    else:  # a division by 0 or -1 may end the process of a peer
        values = g.data(array.dtype.name, array.shape, tame=True)
        small = np.abs(values.astype(np.int64)) % 5 + (2 if op == "Div" else 0)
        b = g.new(small.astype(array.dtype))
    pair = [b, a] if is_float(array) and op != "PRelu" and g.chance(0.3) else [a, b]
    return g.add(op, pair)


def modulo(g: Graph) -> Any:
    a = g.pick(allowed(g, "Mod"), exact=True)
    array = g.array(a)
    divisor = g.data(array.dtype.name, array.shape, tame=True)
    if not is_float(array):
        divisor = (np.abs(divisor.astype(np.int64)) % 7 + 2).astype(array.dtype)
    fmod = 1 if is_float(array) else g.int(0, 1)
    return g.add("Mod", [a, g.new(divisor)], exact=True, fmod=fmod)


def comparison(g: Graph) -> Any:
    op = g.one_of(["Equal", "Less", "Greater", "LessOrEqual", "GreaterOrEqual"])
    a = g.pick(allowed(g, op), exact=True)
    b = g.broadcasting(a)
    if b not in g.exact:
        b = g.fresh(g.array(a).dtype.name, g.array(a).shape)
    return g.add(op, [a, b], exact=True)


def logic(g: Graph) -> Any:
    op = g.one_of(["And", "Or", "Xor", "Not"])
    a = g.pick(["bool"])
    return g.add(op, [a] if op == "Not" else [a, g.broadcasting(a)], exact=True)


def bits(g: Graph) -> Any:
    op = g.one_of(["BitwiseAnd", "BitwiseOr", "BitwiseXor", "BitwiseNot", "BitShift"])
    a = g.pick(allowed(g, op))
    if op == "BitwiseNot":
        return g.add(op, [a], exact=True)
    array = g.array(a)
    if op == "BitShift":
        count = g.rng.integers(0, 8 * array.itemsize, array.shape).astype(array.dtype)
        return g.add(op, [a, g.new(count)], exact=True, direction=g.one_of(["LEFT", "RIGHT"]))
    return g.add(op, [a, g.broadcasting(a)], exact=True)


def variadic(g: Graph) -> Any:
    op = g.one_of(["Max", "Min", "Sum", "Mean"])
    a = g.pick(allowed(g, op))
    rest = [g.broadcasting(a) for _ in range(g.int(0, 2))]
    return g.add(op, [a, *rest], exact=op in ("Max", "Min"))


def where(g: Graph) -> Any:
    a = g.pick(allowed(g, "Where", 1))
    condition = g.broadcasting(a, "bool")
    return g.add("Where", [condition, a, g.broadcasting(a)], exact=True)


def clip(g: Graph) -> Any:
    a = g.pick(allowed(g, "Clip"))
    kind = g.array(a).dtype
    low = g.int(0, 3) if kind.kind == "u" else g.int(-4, 2)
    high = low + g.int(0, 5)
    if g.opset < 11:
        return g.add("Clip", [a], exact=True, min=float(low), max=float(high))
    ends = [g.new(np.array(v, kind)) if g.chance(0.8) else "" for v in (low, high)]
    return g.add("Clip", [a, *ends], exact=True)


def cast(g: Graph) -> Any:
    target = g.one_of(ANY)
    x = g.pick(allowed(g, "Cast"), lambda a: _casts_safely(a, target), exact=target[0] != "f")
    return g.add("Cast", [x], exact=True, to=element_type(numpy_dtype(target)))


def _casts_safely(array: np.ndarray, target: str) -> bool:
    """Out of the range of an integer type the result is the implementation's own."""
    if target == "bool" or target.startswith("float") or not is_float(array):
        return target != "bool" or not np.isnan(array.astype(np.float64)).any()
    low = 0 if target.startswith("u") else -100
    wide = array.astype(np.float64)
    return bool(np.all((wide > low - 0.99) & (wide < 100)))


def reduction(g: Graph) -> Any:
    op = g.one_of([
        "ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2",
        "ReduceLogSum", "ReduceLogSumExp", "ReduceSumSquare",
    ])  # fmt: skip
    x = g.pick(allowed(g, op))
    if op == "ReduceMean" and np.abs(g.array(x).astype(np.float64)).max(initial=0) > 2**50:
        raise LookupError("peers compute means of integers in floats")
    rank = g.array(x).ndim
    axes = sorted(int(a) for a in g.rng.permutation(rank)[:g.int(0, rank)])
    axes = [a - rank if g.chance(0.3) and g.opset >= 11 else a for a in axes]
    attrs: dict[str, Any] = {"keepdims": g.int(0, 1)} if g.chance(0.8) else {}
    exact = op in ("ReduceMax", "ReduceMin")
    if g.opset >= (13 if op == "ReduceSum" else 18):
        if g.chance(0.2):
            attrs["noop_with_empty_axes"] = g.int(0, 1)
        operands = [x, g.ints(axes)] if axes or g.chance(0.3) else [x]
        return g.add(op, operands, exact=exact, **attrs)
    if axes:
        attrs["axes"] = axes
    return g.add(op, [x], exact=exact, **attrs)


def cumulative(g: Graph) -> Any:
    x = g.pick(allowed(g, "CumSum"), lambda a: a.ndim > 0)
    axis = g.int(-g.array(x).ndim, g.array(x).ndim - 1)
    place = g.new(np.array(axis, np.int32 if g.chance(0.5) else np.int64), constant=True)
    return g.add("CumSum", [x, place], exclusive=g.int(0, 1), reverse=g.int(0, 1))


# Moving elements


def transpose(g: Graph) -> Any:
    x = g.pick(allowed(g, "Transpose"))
    perm = {"perm": g.rng.permutation(g.array(x).ndim).tolist()} if g.chance(0.8) else {}
    return g.add("Transpose", [x], exact=True, **perm)


def reshape(g: Graph) -> Any:
    x = g.pick(allowed(g, "Reshape"))
    size, shape = g.array(x).size, list(g.array(x).shape)
    if g.chance(0.3) or size == 0:
        target = [0] * len(shape)
    else:
        target = []
        while size > 1 and len(target) < 3:
            divisor = g.one_of([d for d in range(1, size + 1) if size % d == 0])
            target.append(divisor)
            size //= divisor
        target.append(size)
    if target and g.chance(0.4) and 0 not in target:
        target[g.int(0, len(target) - 1)] = -1
    return g.add("Reshape", [x, g.ints(target)], exact=True)


def flatten(g: Graph) -> Any:
    x = g.pick(allowed(g, "Flatten"))
    return g.add("Flatten", [x], exact=True, axis=g.int(0, g.array(x).ndim))


def squeeze(g: Graph) -> Any:
    x = g.pick(allowed(g, "Squeeze"))
    ones = [i for i, d in enumerate(g.array(x).shape) if d == 1]
    axes = ones[: g.int(0, len(ones))]
    return _with_axes(g, "Squeeze", x, axes or None)


def unsqueeze(g: Graph) -> Any:
    x = g.pick(allowed(g, "Unsqueeze"), lambda a: a.ndim < 5)
    rank = g.array(x).ndim + g.int(1, 2)
    axes = g.rng.permutation(rank)[: rank - g.array(x).ndim].tolist()
    return _with_axes(g, "Unsqueeze", x, sorted(axes))


def _with_axes(g: Graph, op: str, x: str, axes: list[int] | None) -> Any:
    if axes is None:
        return g.add(op, [x], exact=True)
    if g.opset < 13:
        return g.add(op, [x], exact=True, axes=axes)
    return g.add(op, [x, g.ints(axes)], exact=True)


def expand(g: Graph) -> Any:
    x = g.pick(allowed(g, "Expand"), lambda a: a.size < 60)
    shape = [g.int(2, 3) if d == 1 and g.chance(0.5) else d for d in g.array(x).shape]
    shape = [1 if d > 1 and g.chance(0.2) else d for d in shape]
    lead = [g.int(1, 2) for _ in range(g.int(0, 1))]
    return g.add("Expand", [x, g.ints(lead + shape)], exact=True)


def tile(g: Graph) -> Any:
    x = g.pick(allowed(g, "Tile"), lambda a: a.size < 100)
    return g.add("Tile", [x, g.ints([g.int(0, 3) for _ in g.array(x).shape])], exact=True)


def concat(g: Graph) -> Any:
    x = g.pick(allowed(g, "Concat"), lambda a: a.ndim > 0)
    array = g.array(x)
    axis = g.int(-array.ndim, array.ndim - 1)
    parts = [x]
    for _ in range(g.int(0, 2)):
        shape = list(array.shape)
        shape[axis] = g.size()
        parts.append(g.fresh(array.dtype.name, shape) if g.chance(0.7) else x)
    return g.add("Concat", parts, exact=True, axis=axis)


def split(g: Graph) -> Any:
    x = g.pick(allowed(g, "Split"), lambda a: a.ndim > 0)
    array = g.array(x)
    axis = g.int(-array.ndim, array.ndim - 1)
    size, count = array.shape[axis], g.int(1, 3)
    cuts = sorted(g.int(0, size) for _ in range(count - 1))
    sizes = np.diff([0, *cuts, size]).tolist()
    if g.opset < 13:
        return g.add("Split", [x], count, exact=True, axis=axis, split=sizes)
    if g.opset >= 18 and g.chance(0.3):
        return g.add("Split", [x], count, exact=True, axis=axis, num_outputs=count)
    return g.add("Split", [x, g.ints(sizes)], count, exact=True, axis=axis)


def slice_(g: Graph) -> Any:
    x = g.pick(allowed(g, "Slice"), lambda a: a.ndim > 0)
    rank = g.array(x).ndim
    axes = g.rng.permutation(rank)[: g.int(1, rank)].tolist()
    bound = [-(2**63), -9, -4, -2, -1, 0, 1, 2, 3, 5, 9, 2**63 - 1]
    starts, ends = ([g.one_of(bound) for _ in axes] for _ in range(2))
    if g.chance(0.5):  # empty slices end the game soon
        starts = [g.int(0, 1) for _ in axes]
        ends = [2**31 - 1 for _ in axes]
    if g.opset < 10:
        return g.add("Slice", [x], exact=True, starts=starts, ends=ends, axes=axes)
    steps = [g.one_of([1, 1, 2, 3, -1, -2, -3, 2**40]) for _ in axes]
    if min(steps) < 0 and g.chance(0.7):
        starts, ends = ends, starts
    operands = [x, *(g.ints(v) for v in (starts, ends, axes))]
    return g.add("Slice", [*operands, g.ints(steps)] if g.chance(0.8) else operands, exact=True)


def pad(g: Graph) -> Any:
    x = g.pick(allowed(g, "Pad"), lambda a: a.size < 200)
    array = g.array(x)
    modes = ["constant", "constant", "edge", "reflect", *(["wrap"] if g.opset >= 19 else [])]
    mode = g.one_of(modes)
    low = -1 if mode == "constant" else 0
    if mode != "constant" and 0 in array.shape:
        raise LookupError("an empty axis")
    ends = [min(2, max(d - 1, 0)) if mode == "reflect" else 2 for d in array.shape]
    pads = [g.int(max(low, -d // 2), e) for _ in range(2)
            for d, e in zip(array.shape, ends, strict=True)]
    if g.opset < 11:
        return g.add("Pad", [x], exact=True, mode=mode, pads=pads, value=g.uniform(-2, 2))
    operands = [x, g.ints(pads)]
    if g.chance(0.5):
        operands.append(g.new(g.data(array.dtype.name, ())))
    return g.add("Pad", operands, exact=True, mode=mode)


def gather(g: Graph) -> Any:
    op = g.one_of(["Gather", "Gather", "GatherElements", "GatherND"])
    x = g.pick(allowed(g, op), lambda a: a.ndim > 0 and 0 not in a.shape)
    shape = g.array(x).shape
    if op == "GatherND":
        depth = g.int(1, len(shape))
        lead = [*g.shape(g.int(0, 2))]
        places = np.stack([g.rng.integers(-d, d, lead) for d in shape[:depth]], -1)
        return g.add(op, [x, g.new(places.astype(np.int64))], exact=True)
    axis = g.int(-len(shape), len(shape) - 1)
    size = shape[axis]
    if op == "GatherElements":
        wanted = [d if i == axis % len(shape) else g.int(1, d) for i, d in enumerate(shape)]
    else:
        wanted = [*g.shape(g.int(0, 2))]
    kind = np.int32 if g.chance(0.3) else np.int64
    places = g.rng.integers(-size, size, wanted).astype(kind)
    return g.add(op, [x, g.new(places)], exact=True, axis=axis)


def scatter(g: Graph) -> Any:
    op = g.one_of(["ScatterElements", "ScatterND"])
    x = g.pick(allowed(g, op), lambda a: a.ndim > 0 and 0 not in a.shape)
    array = g.array(x)
    shape, kinds = array.shape, ["none"]
    attrs: dict[str, Any] = {}
    if g.opset >= 16 and array.dtype != bool:
        kinds += ["add", "mul"] + (["max", "min"] if g.opset >= 18 else [])
        attrs["reduction"] = g.one_of(kinds)
    unique = attrs.get("reduction", "none") == "none"
    tame = attrs.get("reduction") in ("max", "min")
    if tame and np.isnan(array.astype(np.float64)).any():
        raise LookupError("the largest of NaN and a number is an accident of order")
    if op == "ScatterND":
        depth = g.int(1, len(shape))
        count = int(np.prod(shape[:depth]))
        flat = g.rng.permutation(count)[: g.int(1, min(count, 5))]
        flat = flat if unique else g.rng.integers(0, count, 4)
        places = np.stack(np.unravel_index(flat, shape[:depth]), -1).astype(np.int64)
        updates = g.data(array.dtype.name, (len(flat), *shape[depth:]), tame=tame)
    else:
        axis = g.int(-len(shape), len(shape) - 1)
        attrs["axis"] = axis
        wanted = [g.int(1, d) for d in shape]
        line = g.rng.permutation(shape[axis])[: wanted[axis]]
        along = [-1 if i == axis % len(shape) else 1 for i in range(len(shape))]
        places = np.broadcast_to(line.reshape(along), wanted).astype(np.int64)
        if not unique:
            places = g.rng.integers(-shape[axis], shape[axis], wanted)
        updates = g.data(array.dtype.name, wanted, tame=tame)
    exact = unique or attrs["reduction"] in ("max", "min")
    return g.add(op, [x, g.new(places), g.new(updates)], exact=exact, **attrs)


def space(g: Graph) -> Any:
    op = g.one_of(["DepthToSpace", "SpaceToDepth"])
    block = g.int(1, 2)
    n, c, h, w = (g.int(1, 3) for _ in range(4))
    shape = (n, c * block**2, h, w) if op == "DepthToSpace" else (n, c, h * block, w * block)
    x = g.fresh(g.one_of(allowed(g, op)), shape)
    attrs = {"mode": g.one_of(["DCR", "CRD"])} if op == "DepthToSpace" and g.opset >= 11 else {}
    return g.add(op, [x], exact=True, blocksize=block, **attrs)


def shapes(g: Graph) -> Any:
    op = g.one_of(["Shape", "Size", "ConstantOfShape", "Range", "EyeLike", "OneHot"])
    if op in ("Shape", "Size"):
        x = g.pick(allowed(g, op))
        ends = op == "Shape" and g.opset >= 15 and g.chance(0.5)
        attrs = {"start": g.int(-3, 2), "end": g.int(-7, 7)} if ends else {}
        return g.add(op, [x], exact=True, **attrs)
    if op == "ConstantOfShape":
        value = onnx.numpy_helper.from_array(g.data(g.one_of(ANY), (1,), tame=True))
        return g.add(op, [g.ints(g.shape(g.int(0, 3)))], exact=True, value=value)
    if op == "EyeLike":
        x = g.pick(allowed(g, op), rank=2)
        return g.add(op, [x], exact=True, k=g.int(-2, 2))
    if op == "Range":
        kind = g.one_of([np.int64, np.int32, np.float32, np.int16])
        limits = [np.array(v, kind) for v in (g.int(-5, 5), g.int(-5, 9), g.one_of([1, 2, -1, 3]))]
        return g.add(op, [g.new(v, constant=True) for v in limits], exact=True)
    depth = g.int(1, 4)
    indices = g.rng.integers(-depth - 1, depth + 1, g.shape(g.int(0, 2))).astype(np.int64)
    values = g.new(g.data(g.one_of(["float32", "int32", "int64"]), (2,), tame=True), constant=True)
    count = g.new(np.array(depth, np.int64), constant=True)
    return g.add(op, [g.new(indices), count, values], exact=True, axis=g.one_of([-1, 0]))


def trilu(g: Graph) -> Any:
    x = g.pick(allowed(g, "Trilu"), lambda a: a.ndim >= 2)
    operands = [x, g.new(np.array(g.int(-4, 4), np.int64), constant=True)]
    return g.add("Trilu", operands[: g.int(1, 2)], exact=True, upper=g.int(0, 1))


def compress(g: Graph) -> Any:
    x = g.pick(allowed(g, "Compress"), lambda a: a.ndim > 0)
    array = g.array(x)
    axis = g.int(-array.ndim, array.ndim - 1) if g.chance(0.7) else None
    size = array.size if axis is None else array.shape[axis]
    kept = g.new(g.rng.random(min(size, 9)) < 0.6, constant=True)
    return g.add("Compress", [x, kept], exact=True, **({} if axis is None else {"axis": axis}))


DRAWS: dict[Draw, float] = {
    unary: 6, step_function: 2, arithmetic: 6, modulo: 1, comparison: 2, logic: 1, bits: 1,
    variadic: 2, where: 2, clip: 1.5, cast: 2, reduction: 5, cumulative: 1, transpose: 2,
    reshape: 2, flatten: 0.7, squeeze: 1, unsqueeze: 1, expand: 1, tile: 1, concat: 2, split: 1.5,
    slice_: 3, pad: 2, gather: 2.5, scatter: 2, space: 1, shapes: 1.5, trilu: 0.7, compress: 0.7,
}  # fmt: skip
