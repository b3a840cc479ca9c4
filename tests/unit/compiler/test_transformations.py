"""``weft.grad``, ``jvp``, ``vjp``, ``jacobian``, ``hessian``: values, nesting, options, errors."""

from __future__ import annotations

import numpy as np
import pytest

import weft
from weft.ir.python.from_python import Tensor
from weft.support.errors import OptionError, PassError
from weft.transform.analysis.reference import evaluate

V = "Tensor[(3,), float64]"
THREE = Tensor[(3,), "float64"]
X, Y = np.array([1.0, 2.0, 3.0]), np.array([0.5, -1.0, 2.0])
PRODUCT = f"def @main(%x: {V}, %y: {V}) {{ sum(multiply(sin(%x), multiply(%y, %y))) }}"
DX, DY = np.cos(X) * Y * Y, 2 * np.sin(X) * Y
PAIR = f"""def @main(%x: {V}, %w: Tensor[(2, 3), float64]) {{
    (sum(multiply(%w, %x), axis=1), exp(%x)) }}"""
W = np.arange(6.0).reshape(2, 3)


def run(mod, *inputs):
    return evaluate(mod, list(inputs))


def same(found, expected) -> None:
    if isinstance(expected, tuple):
        assert isinstance(found, tuple)
        assert len(found) == len(expected)
        for f, e in zip(found, expected, strict=True):
            same(f, e)
    else:
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-15)


def test_argnums_choose_the_form_of_the_result():
    mod = weft.parse(PRODUCT)
    same(run(weft.grad(mod), X, Y), (DX, DY))
    same(run(weft.grad(mod, 0), X, Y), DX)
    same(run(weft.grad(mod, -1), X, Y), DY)
    same(run(weft.grad(mod, (1, 0)), X, Y), (DY, DX))
    same(run(weft.grad(mod, (1,)), X, Y), (DY,))
    same(run(weft.grad(mod, with_respect_to="y"), X, Y), DY)
    same(run(weft.grad(mod, with_respect_to=["y"]), X, Y), (DY,))
    value = np.sum(np.sin(X) * Y * Y)
    same(run(weft.value_and_grad(mod, 1), X, Y), (value, DY))


def test_compiled():
    found = weft.compile(weft.hessian(weft.parse(PRODUCT), (0, 1)))(X, Y)
    expected = (np.diag(-np.sin(X) * Y * Y), np.diag(2 * np.cos(X) * Y),
                np.diag(2 * np.cos(X) * Y), np.diag(2 * np.sin(X)))
    same(tuple(found), expected)


def test_auxiliary_results():
    mod = weft.parse(f"def @main(%x: {V}) {{ (sum(exp(%x)), sin(%x)) }}")
    same(run(weft.grad(mod, 0, has_aux=True), X), (np.exp(X), np.sin(X)))
    same(run(weft.value_and_grad(mod, 0, has_aux=True), X),
         ((np.exp(X).sum(), np.sin(X)), np.exp(X)))
    more = weft.parse(f"def @main(%x: {V}) {{ (sum(exp(%x)), sin(%x), %x) }}")
    same(run(weft.grad(more, 0, has_aux=True), X), (np.exp(X), (np.sin(X), X)))


def test_cotangents():
    mod = weft.parse(f"def @main(%x: {V}) {{ exp(%x) }}")
    same(run(weft.grad(mod, 0, cotangent=Y), X), Y * np.exp(X))
    same(run(weft.grad(mod, 0, cotangent="ones"), X), np.exp(X))
    same(run(weft.grad(mod, 0, cotangent="parameter"), X, Y), Y * np.exp(X))
    same(run(weft.vjp(mod, 0), X, Y), (np.exp(X), Y * np.exp(X)))
    pair = weft.parse(PAIR)
    a, b = np.array([2.0, -1.0]), Y
    same(run(weft.grad(pair, 0, cotangent=(a, b)), X, W), a @ W + b * np.exp(X))
    scalar = weft.parse(f"def @main(%x: {V}) {{ sum(%x) }}")
    same(run(weft.grad(scalar, 0, cotangent=3), X), np.full(3, 3.0))


@pytest.mark.parametrize(("cotangent", "expected"), [
    (np.ones(4), r"Tensor\[\(3,\), float64\]"),
    (np.ones(3, np.float32), "float64"),
    ((Y, Y), r"Tensor\[\(3,\), float64\]"),
    (2.0, r"Tensor\[\(3,\), float64\]"),
])
def test_cotangents_that_do_not_fit(cotangent, expected):
    mod = weft.parse(f"def @main(%x: {V}) {{ exp(%x) }}")
    with pytest.raises(OptionError, match="cotangent does not fit the result") as caught:
        weft.grad(mod, cotangent=cotangent)
    assert caught.match(expected)


def test_jvp():
    mod = weft.parse(PAIR)
    dw = W[::-1]
    same(run(weft.jvp(mod), X, W, Y, dw), ((W @ X, np.exp(X)), (dw @ X + W @ Y, np.exp(X) * Y)))
    same(run(weft.jvp(mod, 1), X, W, dw), ((W @ X, np.exp(X)), (dw @ X, np.zeros(3))))


@pytest.mark.parametrize("mode", ["forward", "reverse", None])
def test_jacobian(mode):
    mod = weft.parse(PAIR)
    dw = np.zeros((2, 2, 3))
    dw[0, 0] = dw[1, 1] = X
    same(run(weft.jacobian(mod, mode=mode), X, W),
         ((W, dw), (np.diag(np.exp(X)), np.zeros((3, 2, 3)))))
    same(run(weft.jacobian(mod, 0, mode=mode), X, W), (W, np.diag(np.exp(X))))
    same(run(weft.jacobian(weft.parse(PRODUCT), mode=mode), X, Y), (DX, DY))


def test_jacobians_and_hessians_of_symbolic_size():
    mod = weft.parse("def @main(%x: Tensor[(n,), float64]) { multiply(%x, sum(%x)) }")
    second = weft.hessian(weft.parse("def @main(%x: Tensor[(n,), float64]) { prod(%x) }"), 0)
    for n in (2, 4):
        x = np.arange(1.0, n + 1)
        for mode in ("forward", "reverse"):
            found = run(weft.jacobian(mod, 0, mode=mode), x)
            same(found, np.diag(np.full(n, x.sum())) + x[:, None])
        expected = np.prod(x) / np.outer(x, x)
        np.fill_diagonal(expected, 0)
        same(run(second, x), expected)


def test_hessian_of_a_vector():
    mod = weft.parse(f"def @main(%x: {V}) {{ multiply(%x, sin(%x)) }}")
    expected = np.zeros((3, 3, 3))
    for i in range(3):
        expected[i, i, i] = 2 * np.cos(X[i]) - X[i] * np.sin(X[i])
    same(run(weft.hessian(mod, 0), X), expected)


def test_transformations_nest_in_any_order():
    """The product of the Hessian and a vector in four ways; and gradients of vmap."""
    mod = weft.parse(f"def @main(%x: {V}) {{ sum(multiply(sin(%x), exp(%x))) }}")
    expected = 2 * np.cos(X) * np.exp(X) * Y
    same(run(weft.jvp(weft.grad(mod, 0)), X, Y)[1], expected)
    same(run(weft.vjp(weft.grad(mod, 0)), X, Y)[1], (expected,))
    forward = weft.jvp(mod)
    same(run(weft.grad(forward, 0, cotangent=(0, 1)), X, Y), expected)
    same(run(weft.jvp(forward, 0), X, Y, Y)[1][1], np.sum(expected * Y))
    third = run(weft.jvp(weft.hessian(mod, 0)), X, Y)[1]
    same(third, np.diag((2 * np.cos(X) - 2 * np.sin(X)) * np.exp(X) * Y))
    batch = np.stack([X, Y])
    same(run(weft.vmap(weft.grad(mod, 0), axis_size=2), batch),
         (np.sin(batch) + np.cos(batch)) * np.exp(batch))
    same(run(weft.grad(weft.vmap(mod, axis_size=2), 0, cotangent=np.array([1.0, 2.0])), batch),
         np.array([[1.0], [2.0]]) * (np.sin(batch) + np.cos(batch)) * np.exp(batch))


def test_stop_gradient_in_python():
    @weft.function
    def loss(x: THREE):
        return weft.op.sum(x * weft.stop_gradient(weft.op.exp(x)))

    same(run(weft.grad(loss, 0), X), np.exp(X))
    same(run(weft.jvp(loss), X, Y)[1], np.sum(np.exp(X) * Y))
    first, second = weft.stop_gradient([weft.ir.var("x", (2,)), (weft.ir.var("y", (2,)),)])
    assert "stop_gradient" in str(first)
    assert "stop_gradient" in str(second[0])


def test_loops():
    mod = weft.parse(f"""
        def @main(%x: {V}, %n: int32) {{ sum(@power(%x, %n)) }}
        def @power(%x: {V}, %n: int32) -> {V} {{
          if (equal(%n, 0)) {{ ones(shape=(3,), dtype="float64") }}
          else {{ multiply(%x, @power(%x, subtract(%n, 1))) }} }}""")
    same(run(weft.grad(mod, 0), X, np.int32(4)), 4 * X**3)
    same(run(weft.jvp(weft.grad(mod, 0)), X, np.int32(4), Y)[1], 12 * X**2 * Y)


ERRORS = {
    "a result that is not a scalar": (
        lambda: weft.grad(weft.parse(PAIR)), PassError, "not a scalar"),
    "argnums out of range": (
        lambda: weft.grad(weft.parse(PRODUCT), 2), OptionError, "argnums out of range"),
    "negative argnums out of range": (
        lambda: weft.jvp(weft.parse(PRODUCT), (0, -3)), OptionError, "argnums out of range"),
    "a boolean": (lambda: weft.grad(weft.parse(PRODUCT), True), OptionError, "out of range"),
    "duplicates": (
        lambda: weft.grad(weft.parse(PRODUCT), (0, -2)), OptionError, "duplicate parameter %x"),
    "duplicate names": (
        lambda: weft.jacobian(weft.parse(PRODUCT), with_respect_to=["x", "x"]), OptionError,
        "duplicate parameter %x"),
    "both": (
        lambda: weft.grad(weft.parse(PRODUCT), 0, with_respect_to="x"), OptionError, "both given"),
    "an unknown name": (
        lambda: weft.grad(weft.parse(PRODUCT), with_respect_to="z"), PassError, "%z"),
    "an integer parameter": (
        lambda: weft.grad(weft.parse("def @main(%x: float32, %i: int32) { multiply(%x, 2.0) }"), 1),
        PassError, "respect to %i"),
    "nothing to differentiate by": (
        lambda: weft.grad(weft.parse('def @main(%i: int32) { cast(%i, dtype="float32") }')),
        OptionError, "no parameters"),
    "an unused parameter": (
        lambda: weft.grad(weft.parse(f"def @main(%x: {V}, %y: {V}) {{ sum(%x) }}")), PassError,
        "%y"),
    "an integer result": (
        lambda: weft.jacobian(weft.parse(f"def @main(%x: {V}) {{ (%x, argmax(%x)) }}")), PassError,
        "no Jacobian"),
    "an unknown mode": (
        lambda: weft.jacobian(weft.parse(PRODUCT), mode="sideways"), OptionError, "unknown mode"),
    "an unknown cotangent": (
        lambda: weft.grad(weft.parse(PRODUCT), cotangent="twos"), OptionError, "cotangent"),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors(name):
    call, kind, message = ERRORS[name]
    with pytest.raises(kind, match=message):
        call()


def test_zeros_on_request():
    mod = weft.parse(f"def @main(%x: {V}, %y: {V}) {{ sum(exp(%x)) }}")
    same(run(weft.grad(mod, unused="zeros"), X, Y), (np.exp(X), np.zeros(3)))


def test_jacobians_of_recursive_programs() -> None:
    """Forward mode has no tape; the tape of reverse mode runs example by example."""
    mod = weft.parse("""
        def @pow(%x: Tensor[(3,), float32], %n: Tensor[(), int32]) -> Tensor[(3,), float32] {
          if (less(%n, 1)) { tanh(%x) } else { multiply(%x, @pow(%x, subtract(%n, 1))) }
        }
        def @main(%x: Tensor[(3,), float32], %n: Tensor[(), int32]) { @pow(%x, %n) }""")
    x = np.arange(1, 4, dtype=np.float32)
    slope = 2 * x * np.tanh(x) + x**2 * (1 - np.tanh(x) ** 2)
    for mode in ("forward", "reverse"):
        found = weft.compile(weft.jacobian(mod, argnums=0, mode=mode))(x, np.int32(2))
        np.testing.assert_allclose(found, np.diag(slope), rtol=1e-5)
