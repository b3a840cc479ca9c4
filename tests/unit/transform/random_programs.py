"""Random typed programs, for the property that passes keep values."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from weft import op
from weft.ir.expr import Call, Expr, Function, If, Let, Tuple, TupleGetItem, Var, const, var
from weft.ir.module import IRModule
from weft.ir.typing.infer import infer_type

SHAPE = (1, 8, 4, 4)


def _weight(draw, shape):
    seed = draw(st.integers(0, 3))  # few seeds, so that equal weights occur
    values = np.random.default_rng(seed).uniform(-0.5, 0.5, shape)
    return const(values.astype(np.float32))


def _unary(draw, x):
    apply = draw(
        st.sampled_from(
            [
                op.nn.relu,
                op.tanh,
                op.negative,
                op.copy,
                lambda v: op.clip(v, a_min=-1.0, a_max=1.0),
                lambda v: op.cast(v, dtype="float32"),
            ]
        )
    )
    return apply(x)


def _binary(draw, x, y):
    return draw(st.sampled_from([op.add, op.multiply, op.subtract, op.maximum]))(x, y)


def _with_constant(draw, x):
    shape = draw(st.sampled_from([(), (8, 1, 1), (1, 8, 1, 1), (4,), SHAPE]))
    value = draw(st.sampled_from([None, 0.0, 1.0]))
    other = _weight(draw, shape) if value is None else const(np.full(shape, value, np.float32))
    return draw(st.sampled_from([op.add, op.multiply]))(x, other)


def _convolution(draw, x):
    groups = draw(st.sampled_from([1, 1, 2, 8]))
    weight = _weight(draw, (8, 8 // groups, 3, 3))
    return op.nn.conv2d(
        x, weight, padding=(1, 1, 1, 1), channels=8, kernel_size=(3, 3), groups=groups
    )


def _normalisation(draw, x):
    vectors = [_weight(draw, (8,)) for _ in range(3)]
    variance = const(np.abs(_weight(draw, (8,)).data) + np.float32(0.5))
    return TupleGetItem(op.nn.batch_norm(x, *vectors, variance, axis=1), 0)


def _pool(draw, x):
    kind = draw(st.sampled_from([op.nn.max_pool2d, op.nn.avg_pool2d]))
    return kind(x, pool_size=(3, 3), strides=(1, 1), padding=(1, 1, 1, 1))


def _there_and_back(draw, x):
    flat = op.reshape(x, newshape=(1, 8, 16))
    if draw(st.booleans()):
        flat = op.transpose(op.transpose(flat, axes=(0, 2, 1)), axes=(0, 2, 1))
    return op.reshape(op.squeeze(op.expand_dims(flat, axis=0), axis=(0,)), newshape=SHAPE)


def _halves(draw, x):
    parts = op.split(x, indices_or_sections=2, axis=1)
    first, second = TupleGetItem(parts, 0), TupleGetItem(parts, 1)
    swapped = (second, first) if draw(st.booleans()) else (first, second)
    return op.concatenate(Tuple(swapped), axis=1)


def _spread(draw, x):
    return op.add(x, op.mean(op.tanh(x), axis=(2, 3), keepdims=True))


def _pooled_gate(draw, x):
    return op.multiply(x, op.sigmoid(op.nn.global_avg_pool2d(x)))


_STEPS = [
    _unary, _unary, _with_constant, _with_constant, _convolution, _normalisation, _pool,
    _there_and_back, _halves, _spread, _pooled_gate,
]  # fmt: skip


def _branch(draw, values, source):
    """A choice by an input, whose branches share values with each other and with the outside."""
    # The inputs come first; rounding in a pass cannot turn the comparison over.
    cond = op.less(op.sum(values[0]), const(draw(st.sampled_from([-1e6, 0.0, 1e6]))))
    other = draw(st.sampled_from(values))
    return If(cond, draw(st.sampled_from(_STEPS))(draw, source), _unary(draw, other))


def _closure(draw, values, source):
    """A local function that reads values around it, called twice."""
    captured = draw(st.sampled_from(values))
    param, name = var("p", SHAPE), Var("f")
    body = _binary(draw, draw(st.sampled_from(_STEPS))(draw, param), captured)
    fn = Function((param,), body)
    return Let(name, fn, op.add(Call(name, (source,)), Call(name, (_unary(draw, captured),))))


def _loop(draw, values, source):
    """A recursive local function that runs up to three times."""
    captured = draw(st.sampled_from(values))
    name, count, state = Var("loop"), var("k", (), "int32"), var("s", SHAPE)
    again = Call(name, (op.add(count, const(1)), op.tanh(_binary(draw, state, captured))))
    body = If(op.less(count, const(3)), again, state)
    fn = Function((count, state), body, state.annotation)
    return Let(name, fn, Call(name, (const(draw(st.integers(0, 3))), source)))


def _pair(draw, values, source):
    """A tuple that goes through a choice and is taken apart again."""
    one, two = Tuple((source, values[1])), Tuple((values[0], _unary(draw, source)))
    cond = op.less(op.sum(values[1]), const(draw(st.sampled_from([-1e6, 0.0, 1e6]))))
    chosen = If(cond, one, two)
    return op.add(TupleGetItem(chosen, 0), TupleGetItem(chosen, 1))


_CONTROL = [_branch, _closure, _loop, _pair]


@st.composite
def programs(draw, max_steps: int = 10, *, control: bool = False) -> IRModule:
    """A module whose values all have one shape, so that any two of them may meet.

    With ``control``, choices, local functions and loops are among the steps.
    """
    x, y = var("x", SHAPE), var("y", SHAPE)
    values: list[Expr] = [x, y]
    for _ in range(draw(st.integers(1, max_steps))):
        source = values[-draw(st.integers(1, min(4, len(values))))]
        if control and draw(st.integers(0, 2)) == 0:
            values.append(draw(st.sampled_from(_CONTROL))(draw, values, source))
        elif draw(st.integers(0, 3)) == 0:
            values.append(_binary(draw, source, draw(st.sampled_from(values))))
        else:
            values.append(draw(st.sampled_from(_STEPS))(draw, source))
    result = Tuple((values[-1], values[-2])) if draw(st.booleans()) else values[-1]
    return infer_type(IRModule.from_expr(Function((x, y), result)))
