"""Random programs of operators that are cut in different ways, over small whole numbers.

Sums of such numbers are exact in float32, so a sharded program must give the same bits.
"""

from __future__ import annotations

import numpy as np

from weft import op
from weft.ir.expr import Constant, Expr, Function, Tuple, const, var
from weft.ir.sharding import Mesh, Sharding
from weft.ir.types import TensorType
from weft.ir.typing.infer import infer_expr

MESHES = (Mesh({"a": 2}), Mesh({"a": 2, "b": 2}), Mesh({"a": 2, "b": 3}), Mesh({"a": 4}))
ROWS, COLUMNS = 12, 24


def numbers(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.integers(-2, 3, shape).astype(np.float32)


def shape_of(x: Expr) -> tuple[int, ...]:
    type_ = x.checked_type
    assert isinstance(type_, TensorType)
    return type_.concrete_shape


def grown(rng: np.random.Generator, values: list[Expr]) -> Expr:
    """One more value from those there are; all of them are matrices."""
    x, y = (values[rng.integers(len(values))] for _ in range(2))
    rows, columns = shape_of(x)
    match rng.integers(18):
        case 0:
            return op.nn.relu(x)
        case 1:
            return op.clip(op.nn.dense(x, Constant(numbers(rng, COLUMNS, columns))),
                           a_min=-8.0, a_max=8.0)
        case 2:
            return op.add(x, op.reshape(op.sum(x, axis=(1,)), newshape=(rows, 1)))
        case 3:
            return op.transpose(x, axes=(1, 0))
        case 4 if shape_of(x) == shape_of(y):
            return op.maximum(x, y)
        case 5:
            return op.concatenate(Tuple((x, op.negative(x))), axis=int(rng.integers(2)))
        case 6:
            folded = op.reshape(x, newshape=(rows // 2, 2, columns))
            return op.reshape(op.transpose(folded, axes=(1, 0, 2)), newshape=(rows, columns))
        case 7:
            return op.take(x, Constant(rng.integers(0, rows, ROWS)), axis=0)
        case 8:
            return op.cast(op.argsort(x, axis=1), dtype="float32")
        case 9:
            return op.add(x, op.max(x, axis=(0,), keepdims=True))
        case 10:
            return op.strided_slice(x, begin=(0,), end=(columns // 2,), strides=(1,), axes=(1,))
        case 11 if columns == shape_of(y)[1]:
            return op.clip(op.nn.dense(x, y), a_min=-8.0, a_max=8.0)
        case 12:
            return op.add(x, op.floor(op.mean(x, axis=int(rng.integers(2)), keepdims=True)))
        case 13 | 14 as kind:  # exponentials of 0 and of at most -128: their sums are exact
            normal = op.nn.softmax if kind == 13 else op.nn.log_softmax
            far = normal(op.multiply(x, const(128.0)), axis=int(rng.integers(2)))
            return op.clip(op.ceil(far), a_min=-8.0, a_max=8.0)
        case 15 | 16 | 17 as kind:
            image = windows_of(op.reshape(x, newshape=(1, 1, rows, columns)), kind, rng)
            return op.reshape(image, newshape=(rows, columns))
    return op.multiply(x, Constant(numbers(rng, columns)))


def windows_of(image: Expr, kind: int, rng: np.random.Generator) -> Expr:
    """A convolution or pooling with random taps that keeps the size."""
    taps = tuple(int(2 * n + 1) for n in rng.integers(0, 3, 2))
    around = tuple(n // 2 for n in taps)
    if kind == 15:
        kernel = Constant(numbers(rng, 1, 1, *taps))
        return op.clip(op.nn.conv2d(image, kernel, padding=around), a_min=-8.0, a_max=8.0)
    if kind == 16:
        return op.nn.max_pool2d(image, pool_size=taps, padding=around)
    return op.floor(op.nn.avg_pool2d(image, pool_size=taps, padding=around,
                                     count_include_pad=True))


def random_program(rng: np.random.Generator, calls: int = 6) -> Function:
    """Two inputs, and the last value with the sum of another one."""
    params = (var("x", (ROWS, COLUMNS)), var("y", (COLUMNS, ROWS)))
    values: list[Expr] = [infer_expr(p) for p in params]
    while len(values) < calls + 2:
        made = infer_expr(grown(rng, values))
        if min(shape_of(made)) % 2 == 0 and max(shape_of(made)) <= 96:
            values.append(made)
    fn = infer_expr(Function(params, Tuple((values[-1], op.sum(values[-2])))))
    assert isinstance(fn, Function)
    return fn


def random_sharding(rng: np.random.Generator, shape: tuple[int, ...], mesh: Mesh) -> Sharding:
    """Axes on dimensions that they divide; some stay unused."""
    made = Sharding.replicated(len(shape))
    for axis in rng.permutation(list(mesh.axes)):
        dim = int(rng.integers(len(shape))) if shape and rng.random() < 0.8 else None
        if dim is not None:
            axes = (*made.dims[dim], str(axis))
            if shape[dim] % mesh.parts(axes) == 0:
                made = made.with_dim(dim, axes)
    return made
