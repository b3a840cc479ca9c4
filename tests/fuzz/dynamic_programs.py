"""Random programs with symbolic sizes, drawn call by call.

Two inputs have ``n`` and ``m`` rows; an operator whose relation refuses its drawn operands is drawn
again. The results are what nothing else uses.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np

from weft import op
from weft.ir.expr import Call, Expr, Function, Tuple, const, var
from weft.ir.module import IRModule
from weft.ir.types import TensorType
from weft.ir.typing.infer import infer_expr, infer_type
from weft.ir.visitor import post_order
from weft.support.errors import WeftError

Make = Callable[[random.Random, Expr, Expr], Expr]
MOST_CALLS = 9
_TRIES = 60
_MOST_AXES = 4


def _type(x: Expr) -> TensorType:
    assert isinstance(x.checked_type, TensorType)
    return x.checked_type


def _axis(rng: random.Random, x: Expr) -> int:
    return rng.randrange(max(_type(x).ndim, 1))


def _weight(rng: random.Random, *shape: int) -> Expr:
    values = np.random.default_rng(rng.randrange(4)).uniform(-0.5, 0.5, shape)
    return const(values.astype(np.float32))


def _unary(rng: random.Random, x: Expr, _other: Expr) -> Expr:
    return rng.choice([op.tanh, op.nn.relu, op.negative, op.abs, op.sigmoid])(x)


def _binary(rng: random.Random, x: Expr, other: Expr) -> Expr:
    return rng.choice([op.add, op.multiply, op.maximum, op.subtract])(x, other)


def _reduction(rng: random.Random, x: Expr, _other: Expr) -> Expr:
    reduce = rng.choice([op.sum, op.mean, op.max, op.min, op.prod])
    axes = tuple(sorted(rng.sample(range(_type(x).ndim), rng.randint(1, _type(x).ndim))))
    return reduce(x, axis=axes, keepdims=rng.random() < 0.6)


def _place(rng: random.Random, x: Expr, _other: Expr) -> Expr:
    find = rng.choice([op.argmax, op.argmin])
    return op.cast(find(x, axis=(_axis(rng, x),), keepdims=True), dtype="float32")


def _normal(rng: random.Random, x: Expr, _other: Expr) -> Expr:
    width = _type(x).shape[-1]
    if isinstance(width, int) and rng.random() < 0.4:
        return op.nn.layer_norm(x, _weight(rng, width), _weight(rng, width))
    return rng.choice([op.nn.softmax, op.nn.log_softmax])(x, axis=_axis(rng, x))


def _dense(rng: random.Random, x: Expr, other: Expr) -> Expr:
    width = _type(x).shape[-1]
    if isinstance(width, int) and rng.random() < 0.5:
        return op.nn.dense(x, _weight(rng, rng.choice([1, 3, 4]), width))
    return op.nn.dense(x, other)


def _moved(rng: random.Random, x: Expr, _other: Expr) -> Expr:
    order = list(range(_type(x).ndim))
    rng.shuffle(order)
    return op.transpose(x, axes=tuple(order))


def _reshaped(rng: random.Random, x: Expr, _other: Expr) -> Expr:
    rank = _type(x).ndim
    return rng.choice([
        lambda: op.reshape(x, newshape=(-1,)),
        lambda: op.reshape(x, newshape=(-1, rng.choice([2, 4]))),
        lambda: op.reshape(x, newshape=(*(0,) * (rank - 1), 2, -1)),
        lambda: op.expand_dims(x, axis=rng.randrange(rank + 1), num_newaxis=1),
        lambda: op.squeeze(x, axis=(_axis(rng, x),))])()


def _joined(rng: random.Random, x: Expr, other: Expr) -> Expr:
    return op.concatenate(Tuple((x, other)), axis=_axis(rng, x))


def _sliced(rng: random.Random, x: Expr, _other: Expr) -> Expr:
    begin, end, stride = rng.choice([(1, 2**63 - 1, 1), (0, -1, 1), (0, 2**63 - 1, 2), (-2, 9, 1),
                                     (1, 3, 1), (-1, -(2**62), -1), (0, 1, 1)])
    return op.strided_slice(x, begin=(begin,), end=(end,), strides=(stride,), axes=(_axis(rng, x),))


def _taken(rng: random.Random, x: Expr, _other: Expr) -> Expr:
    places, mode = rng.choice([[0], [1, 0], [-1, 2]]), rng.choice(["clip", "wrap"])
    return op.take(x, const(np.array(places)), axis=_axis(rng, x), mode=mode)


def _repeated(rng: random.Random, x: Expr, _other: Expr) -> Expr:
    axis = _axis(rng, x)
    return rng.choice([lambda: op.repeat(x, repeats=2, axis=axis),
                       lambda: op.tile(x, reps=(2,) + (1,) * (_type(x).ndim - 1)),
                       lambda: op.reverse(x, axis=axis)])()


def _padded(rng: random.Random, x: Expr, _other: Expr) -> Expr:
    width = [(0, 0)] * _type(x).ndim
    width[_axis(rng, x)] = rng.choice([(1, 0), (0, 2), (1, 1)])
    mode = rng.choice(["constant", "constant", "edge", "reflect"])
    return op.nn.pad(x, const(np.float32(0.5)), pad_width=tuple(width), pad_mode=mode)


def _ordered(rng: random.Random, x: Expr, _other: Expr) -> Expr:
    axis = _axis(rng, x)
    return rng.choice([lambda: op.cumsum(x, axis=axis),
                       lambda: op.gather(x, op.argsort(x, axis=axis, dtype="int64"), axis=axis)])()


def _windows(rng: random.Random, x: Expr, _other: Expr) -> Expr:
    rank = _type(x).ndim
    image = x if rank == 3 else op.expand_dims(x, axis=0, num_newaxis=1)
    taps, step, pad = rng.choice([1, 2, 3]), rng.choice([1, 2]), rng.choice([0, 1])
    if rng.random() < 0.4:
        channels = _type(infer_expr(image)).shape[1]
        if isinstance(channels, int):
            return op.nn.conv1d(image, _weight(rng, 2, channels, taps), strides=(step,),
                                padding=(pad, pad))
    pool = rng.choice([op.nn.max_pool1d, op.nn.avg_pool1d])
    return pool(image, pool_size=(taps,), strides=(step,), padding=(min(pad, taps // 2),) * 2)


def _chosen(_rng: random.Random, x: Expr, other: Expr) -> Expr:
    return op.where(op.greater(x, const(np.float32(0))), x, other)


MAKERS: tuple[Make, ...] = (_unary, _binary, _binary, _reduction, _reduction, _place, _normal,
                            _dense, _moved, _reshaped, _reshaped, _joined, _sliced, _sliced,
                            _taken, _repeated, _padded, _ordered, _windows, _chosen)


def draw_program(seed: int) -> IRModule:
    """A typed program of up to ``MOST_CALLS`` drawn operators, float32."""
    rng = random.Random(seed)
    inputs = [var("x", ("n", 4)), var("y", rng.choice([("m", 4), ("n", 4), ("m", "n")]))]
    values: list[Expr] = [p.with_type(p.annotation) for p in inputs]  # type: ignore[arg-type]
    used: set[int] = set()
    calls = 0
    for _ in range(_TRIES):
        picked = [rng.randrange(len(values)) for _ in range(2)]
        try:
            made = infer_expr(rng.choice(MAKERS)(rng, *(values[at] for at in picked)))
        except WeftError:
            continue
        if isinstance(made, Call) and 0 < _type(made).ndim <= _MOST_AXES:
            values.append(made)
            used.update(_operands_among(made, values))
            calls += 1
        if calls == MOST_CALLS:
            break
    results = [v for at, v in enumerate(values[2:], start=2) if at not in used] or [values[0]]
    body = results[0] if len(results) == 1 else Tuple(tuple(results))
    return infer_type(IRModule.from_expr(Function(tuple(values[:2]), body)))  # type: ignore[arg-type]


def _operands_among(made: Expr, values: list[Expr]) -> list[int]:
    inside = {id(node) for node in post_order(made)} - {id(made)}
    return [at for at, value in enumerate(values) if id(value) in inside]
