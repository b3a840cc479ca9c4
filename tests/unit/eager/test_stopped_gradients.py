"""``weft.grad`` and its family respect ``detach``, ``.data``, ``no_grad`` and users' ``Function``s.

The truth is ``backward`` of eager tensors, whose detachment is tested beside torch's.
"""

import numpy as np
import pytest

import weft
from weft.support.errors import InvalidInputError, PassError

X = weft.tensor([1.0, 2.0, 3.0], dtype=weft.float64)


class Tripled(weft.autograd.Function):
    """``(a * b, a + b)`` with three times the gradient, and none for ``b`` by the second result."""

    @staticmethod
    def forward(ctx, a, b):
        ctx.save_for_backward(a, b)
        return a * b, a + b

    @staticmethod
    def backward(ctx, by_product, by_sum):
        a, b = ctx.saved_tensors
        return 3 * by_product * b + by_sum, 3 * by_product * a


def without_gradient(t):
    with weft.no_grad():
        squares = t * t
    return (squares * t).sum()


def fields_without_gradient(t):
    with weft.no_grad():
        parts = (t * t).reshape(3, 1).unbind(0)
    return (parts[0] * t + parts[2].sum() * t).sum()


def changed_data(t):
    y = t * 2
    y.data = t.detach() * t
    return (y * t).sum()


def changed_in_place(t):
    y = t * t
    with weft.no_grad():
        y.mul_(t)
    return (y * t).sum()


def leaf_inside(t):
    return (t.detach().requires_grad_() * 2 * t).sum()


def through_integers(t):
    return (t * t.to(weft.int64).to(weft.float64)).sum()


def gradients_again(t):
    with weft.no_grad():
        y = t * t
        with weft.enable_grad():
            y = y * t
    return y.sum()


def own_rule(t):
    product, total = Tripled.apply(t, t * t)
    return (product * t.detach() + total * t).sum()


def own_rule_twice(t):
    return Tripled.apply(*Tripled.apply(t, t))[0].sum()


def own_rule_from_outside(t):
    shared = t * 2

    class Scaled(weft.autograd.Function):
        @staticmethod
        def forward(ctx, a):
            return a * shared

        @staticmethod
        def backward(ctx, dy):
            return dy * shared * 5

    return (Scaled.apply(t) * shared).sum()


PROGRAMS = {f.__name__: f for f in (
    without_gradient, fields_without_gradient, changed_data, changed_in_place, leaf_inside,
    through_integers, gradients_again, own_rule, own_rule_twice, own_rule_from_outside)}
PROGRAMS |= {
    "detach": lambda t: (t.detach() * t).sum(),
    "data": lambda t: (t.data * t).sum(),
    "nothing": lambda t: (t * t).sum(),
    "half": lambda t: (t.sin().detach().exp() * t + t.cos()).sum(),
}


def eager_gradient(function):
    x = X.detach().requires_grad_()
    function(x).backward()
    return x.grad.numpy()


@pytest.mark.parametrize("name", PROGRAMS)
def test_grad_is_backward(name):
    function = PROGRAMS[name]
    expected = eager_gradient(function)
    assert np.any(expected)
    np.testing.assert_allclose(weft.grad(function)(X).numpy(), expected)
    value, gradient = weft.value_and_grad(function)(X)
    np.testing.assert_allclose(value.item(), function(X).item())
    np.testing.assert_allclose(gradient.numpy(), expected)


@pytest.mark.parametrize("name", ["detach", "without_gradient", "fields_without_gradient"])
def test_forward_mode_and_batches_stop_too(name):
    function = PROGRAMS[name]
    expected = eager_gradient(function)
    x, ones = X.numpy(), np.ones(3)
    tangent = weft.compile(weft.jvp(function, example_inputs=(X,)))(x, ones)[1]
    np.testing.assert_allclose(tangent, expected.sum())
    product = weft.compile(weft.vjp(function, example_inputs=(X,)))(x, np.asarray(1.0))[1]
    np.testing.assert_allclose(product, expected)
    each = weft.vmap(weft.grad(function))(weft.stack([X, X]))
    np.testing.assert_allclose(each.numpy(), [expected, expected])
    batch = weft.grad(weft.vmap(function), cotangent="ones")(weft.stack([X, X]))
    np.testing.assert_allclose(batch.numpy(), [expected, expected])


def test_second_derivatives_stop_where_the_first_do():
    hessian = weft.hessian(lambda t: (t.detach() * t * t).sum())(X)
    np.testing.assert_allclose(hessian.numpy(), np.diag(2 * X.numpy()))
    jacobian = weft.jacobian(lambda t: t.detach() * t)(X)
    np.testing.assert_allclose(jacobian.numpy(), np.diag(X.numpy()))


def test_the_text_of_a_program_says_where_gradients_stop():
    text = str(weft.trace(PROGRAMS["detach"], X))
    assert text.count("annotation.stop_gradient") == 1
    again = weft.compile(weft.grad(weft.parse(text)))(X.numpy())[0]
    np.testing.assert_allclose(again, eager_gradient(PROGRAMS["detach"]))
    assert "stop_gradient" not in str(weft.trace(PROGRAMS["nothing"], X))


def test_no_grad_around_a_transformation_says_nothing_about_its_inside():
    with weft.no_grad():
        found = weft.grad(PROGRAMS["nothing"])(X)
    np.testing.assert_allclose(found.numpy(), 2 * X.numpy())


def test_second_derivatives_of_an_own_rule():
    """Those of what ``backward`` computes, as with ``create_graph=True``; in reverse mode."""
    x = X.detach().requires_grad_()
    (first,) = weft.autograd.grad(own_rule(x), x, create_graph=True)
    first.sum().backward()
    found = weft.jacobian(weft.grad(own_rule), mode="reverse")(X).numpy()
    np.testing.assert_allclose(found.sum(0), x.grad.numpy())
    with pytest.raises(PassError, match="forward mode through @Tripled_0") as caught:
        weft.hessian(own_rule)(X)
    assert 'mode="reverse"' in caught.value.help


def test_hooks_of_gradients_are_refused():
    def hooked(t):
        y = t * t
        y.register_hook(lambda gradient: gradient * 2)
        return y.sum()

    with pytest.raises(InvalidInputError, match="a hook of a gradient"):
        weft.grad(hooked)(X)
