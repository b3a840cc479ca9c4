"""Checks at run time, users' functions, hooks, and rules of gradients."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest

import weft
from weft.autograd import Function, TensorOp


def line() -> int:
    """The line of the caller."""
    frame = inspect.currentframe()
    assert frame is not None
    assert frame.f_back is not None
    return frame.f_back.f_lineno


def test_an_index_out_of_range_names_the_line_that_recorded_it() -> None:
    with pytest.raises(IndexError, match="7 is out of range"):
        weft.ones(3)[weft.tensor([0, 7])]
    table = weft.ones(3, 2) * 2
    index = weft.tensor([0, 3]) * 2
    recorded = line() + 1
    rows = table.index_select(0, index)
    with pytest.raises(IndexError) as raised:
        rows.numpy()
    assert f"{__file__}:{recorded}" in str(raised.value)
    assert (table + 1).sum().item() == 18  # other tensors are not in the way


def test_the_first_operator_that_made_a_nan_is_named() -> None:
    x = weft.tensor([1.0, 0.0])
    recorded = line() + 2
    with weft.detect_anomaly():
        y = (x - 1).log() * 2
        z = y.sum()
        with pytest.raises(weft.WeftError, match="log made a NaN") as raised:
            z.numpy()
    assert f"{__file__}:{recorded}" in str(raised.value)
    assert np.isnan((x - 1).log().numpy()).any()


def test_a_compiled_step_names_the_operator_that_made_a_nan() -> None:
    w = weft.tensor([1.0], requires_grad=True)

    def step(x: Any) -> Any:
        loss = (w * x).log().sum()
        loss.backward()
        with weft.no_grad():
            w.sub_(w.grad)
        return loss

    compiled = weft.train_step(step, debug_nans=True)
    assert compiled(weft.tensor([2.0])).item() == pytest.approx(np.log(2))
    with pytest.raises(weft.WeftError, match="log made a NaN") as raised:
        compiled(weft.tensor([2.0]))
    assert __file__ in str(raised.value)


class Cube(Function):
    """x ** 3 by hand."""

    @staticmethod
    def forward(ctx: Any, x: Any, scale: float) -> Any:
        ctx.save_for_backward(x)
        ctx.scale = scale
        return x * x * x * scale, x.detach()

    @staticmethod
    def backward(ctx: Any, dy: Any, _dx: Any) -> Any:
        (x,) = ctx.saved_tensors
        return dy * 3 * x * x * ctx.scale, None


class Logarithm(TensorOp):
    """An operator in Needle's form."""

    def compute(self, a: Any) -> Any:
        return a.log()

    def gradient(self, out_grad: Any, node: Any) -> Any:
        return out_grad / node.inputs[0]


def test_functions_with_gradients_of_their_own() -> None:
    x = weft.tensor([1.0, 2.0], requires_grad=True)
    y, _ = Cube.apply(x, 2.0)
    (first,) = weft.autograd.grad(y.sum(), x, create_graph=True)
    np.testing.assert_allclose(first.detach().numpy(), [6, 24])
    (second,) = weft.autograd.grad(first.sum(), x)
    np.testing.assert_allclose(second.numpy(), [12, 24])
    Logarithm()(x * x).sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), [2, 1])


def test_a_gradient_of_the_wrong_shape_is_refused() -> None:
    class Wrong(Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 2

        @staticmethod
        def backward(ctx: Any, dy: Any) -> Any:
            return dy.sum()

    with pytest.raises(weft.WeftError, match="Wrong does not fit"):
        Wrong.apply(weft.ones(2, requires_grad=True)).sum().backward()


def test_rules_of_torch() -> None:
    x = weft.tensor([1.0, 2.0], requires_grad=True)
    y = (x * x).sum()
    y.backward()
    with pytest.raises(weft.WeftError, match="freed"):
        y.backward()
    z = (x * x).sum()
    z.backward(retain_graph=True)
    z.backward()
    np.testing.assert_allclose(x.grad.numpy(), [6, 12])
    with pytest.raises(weft.WeftError, match="several elements"):
        (x * 2).backward()
    (x * 2).backward(weft.tensor([1.0, 10.0]))
    np.testing.assert_allclose(x.grad.numpy(), [8, 32])
    with pytest.raises(weft.WeftError, match="changed in place"):
        x += 1
    with pytest.raises(weft.WeftError, match="does not require"):
        weft.ones(1).sum().backward()
    with pytest.raises(weft.WeftError, match="only floating-point"):
        weft.ones(2, dtype="int64").requires_grad_()
    with pytest.raises(weft.WeftError, match="detach"):
        x.numpy()


def test_hooks_see_and_replace_gradients() -> None:
    x = weft.tensor([1.0, 2.0], requires_grad=True)
    seen = []
    hook = x.register_hook(lambda g: seen.append(g.tolist()))
    h = x * 3
    h.register_hook(lambda g: g * 10)
    h.retain_grad()
    h.sum().backward()
    assert seen == [[30.0, 30.0]]
    assert h.grad.tolist() == [10.0, 10.0]
    hook.remove()
    (x * 1).sum().backward()
    assert len(seen) == 1
    assert x.grad.tolist() == [31.0, 31.0]
