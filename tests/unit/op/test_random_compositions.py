"""Gradients of random compositions of operators are those of torch's autograd."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weft import op
from weft.ir.expr import Expr, Function, var
from weft.ir.module import IRModule
from weft.ir.typing.infer import infer_type
from weft.transform.analysis.reference import evaluate
from weft.transform.autodiff.forward.transform import ForwardMode
from weft.transform.autodiff.reverse.gradient import Gradient

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

SHAPE = (3, 4)
_HALF, _TWO = np.float64(0.5), np.float64(2)

# The same function in weft and in torch, of one or two matrices of SHAPE, to one.
UNARY: list[tuple[Callable[..., Expr], Callable[..., Any]]] = [
    (op.tanh, torch.tanh), (op.sigmoid, torch.sigmoid), (op.nn.relu, torch.relu),
    (op.abs, torch.abs), (op.sin, torch.sin), (op.erf, torch.erf),
    (lambda x: op.exp(op.multiply(x, _HALF)), lambda x: torch.exp(x * 0.5)),
    (lambda x: op.log(op.add(op.multiply(x, x), _TWO)), lambda x: torch.log(x * x + 2)),
    (lambda x: op.sqrt(op.add(op.multiply(x, x), _HALF)), lambda x: torch.sqrt(x * x + 0.5)),
    (op.nn.softmax, lambda x: torch.softmax(x, -1)),
    (lambda x: op.nn.log_softmax(x, axis=0), lambda x: torch.log_softmax(x, 0)),
    (lambda x: op.subtract(x, op.mean(x, axis=(1,), keepdims=True)),
     lambda x: x - x.mean(1, keepdim=True)),
    (lambda x: op.broadcast_to(op.max(x, axis=(1,), keepdims=True), shape=SHAPE),
     lambda x: torch.amax(x, 1, keepdim=True).expand(SHAPE)),
    (lambda x: op.cumsum(x, axis=1), lambda x: torch.cumsum(x, 1)),
    (lambda x: op.sort(x, axis=0), lambda x: torch.sort(x, dim=0)[0]),
    (lambda x: op.reverse(x, axis=1), lambda x: torch.flip(x, (1,))),
    (lambda x: op.take(x, np.array([2, 0, 2]), axis=0), lambda x: x[torch.tensor([2, 0, 2])]),
    (lambda x: op.reshape(op.transpose(x), newshape=SHAPE), lambda x: x.T.reshape(SHAPE)),
    (lambda x: op.clip(x, a_min=-0.7, a_max=0.8), lambda x: torch.clamp(x, -0.7, 0.8)),
    (lambda x: op.strided_slice(op.concatenate((x, x), axis=1), begin=(2,), end=(6,), axes=(1,)),
     lambda x: torch.cat((x, x), 1)[:, 2:6]),
    (lambda x: op.strided_slice(op.nn.pad(x, np.float64(0.3), pad_width=((1, 0), (0, 1))),
                                begin=(0, 1), end=(3, 5)),
     lambda x: torch.nn.functional.pad(x, (0, 1, 1, 0), value=0.3)[0:3, 1:5]),
]
BINARY: list[tuple[Callable[..., Expr], Callable[..., Any]]] = [
    (op.add, torch.add), (op.subtract, torch.sub), (op.multiply, torch.mul),
    (op.maximum, torch.maximum), (op.minimum, torch.minimum),
    (lambda x, y: op.divide(x, op.add(op.multiply(y, y), _TWO)), lambda x, y: x / (y * y + 2)),
    (lambda x, y: op.where(op.greater(x, y), op.multiply(x, y), x),
     lambda x, y: torch.where(x > y, x * y, x)),
    (lambda x, y: op.nn.dense(op.nn.dense(x, y), op.transpose(y)), lambda x, y: x @ y.T @ y),
]
STEPS = st.lists(st.tuples(st.integers(0, len(UNARY) + len(BINARY) - 1), st.integers(0, 9),
                           st.integers(0, 9)), min_size=1, max_size=8)


def _composed(steps: list[tuple[int, int, int]], values: list[Any], side: int) -> Any:
    """The last of the values that the steps append; ``side`` 0 is weft, 1 is torch."""
    for which, first, second in steps:
        a, b = values[first % len(values)], values[second % len(values)]
        if which < len(UNARY):
            values = [*values, UNARY[which][side](a)]
        else:
            values = [*values, BINARY[which - len(UNARY)][side](a, b)]
    return values[-1]


@settings(max_examples=150, deadline=None)
@given(steps=STEPS, seed=st.integers(0, 2**16))
def test_gradients_are_those_of_torch(steps: list[tuple[int, int, int]], seed: int) -> None:
    """And forward mode gives their dot product with the tangents."""
    rng = np.random.default_rng(seed)
    arrays = [rng.uniform(-1.5, 1.5, SHAPE) for _ in range(2)]
    weights = rng.uniform(-1, 1, SHAPE)
    params = [var(f"x{n}", SHAPE, "float64") for n in range(2)]
    total = op.sum(op.multiply(_composed(steps, list(params), 0), weights))
    module = infer_type(IRModule.from_expr(Function(tuple(params), total)))
    value, found = evaluate(Gradient()(module), arrays)
    tensors = [torch.tensor(a, requires_grad=True) for a in arrays]
    expected = (_composed(steps, list(tensors), 1) * torch.tensor(weights)).sum()
    expected.backward()
    np.testing.assert_allclose(value, expected.detach().numpy(), rtol=1e-9, atol=1e-9)
    size = 1 + max(abs(np.asarray(g)).max() for g in found)
    for gradient, tensor in zip(found, tensors, strict=True):
        wanted = np.zeros(SHAPE) if tensor.grad is None else tensor.grad.numpy()
        np.testing.assert_allclose(gradient, wanted, rtol=1e-8, atol=1e-10 * size)
    tangents = [rng.uniform(-1, 1, SHAPE) for _ in range(2)]
    _, moved = evaluate(ForwardMode()(module), [*arrays, *tangents])
    dot = sum((np.asarray(g) * t).sum() for g, t in zip(found, tangents, strict=True))
    np.testing.assert_allclose(moved, dot, rtol=1e-8, atol=1e-9 * size)
