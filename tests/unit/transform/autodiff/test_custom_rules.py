"""``custom_jvp`` and ``custom_vjp``: in text and in Python, both modes, orders, errors."""

from __future__ import annotations

import numpy as np
import pytest

import weft
from weft import op
from weft.ir.python.from_python import Tensor
from weft.support.errors import OptionError, PassError
from weft.transform.analysis.reference import evaluate

V = "Tensor[(3,), float64]"
THREE = Tensor[(3,), "float64"]
X, Y = np.array([1.0, 2.0, 3.0]), np.array([0.5, -1.0, 2.0])
SEVEN = np.int32(7)


def text(rule: str, body: str = "sum(exp(@f(%x, %i)))") -> str:
    """The derivative of f is said to be ``i x``, which is not that of its body."""
    return f"""
        def @f(%x: {V}, %i: int32{rule}) -> {V} {{ multiply(%x, sin(%x)) }}
        def @tangent(%x: {V}, %i: int32, %dx: {V}) -> ({V}, {V}) {{
          (multiply(%x, sin(%x)), multiply(%dx, multiply(%x, cast(%i, dtype="float64")))) }}
        def @product(%x: {V}, %i: int32, %dy: {V}) -> ({V},) {{
          (multiply(%dy, multiply(%x, cast(%i, dtype="float64"))),) }}
        def @forward(%x: {V}, %i: int32) -> ({V}, ({V}, int32)) {{
          (multiply(%x, sin(%x)), (%x, %i)) }}
        def @backward(%r: ({V}, int32), %dy: {V}) -> {V} {{
          multiply(%dy, multiply(%r.0, cast(%r.1, dtype="float64"))) }}
        def @main(%x: {V}, %i: int32) {{ {body} }}"""


RULES = (', custom_jvp="tangent"', ', custom_vjp="product"',
         ', custom_vjp=["forward", "backward"]')
F = X * np.sin(X)


@pytest.mark.parametrize("rule", RULES)
def test_reverse_mode(rule):
    mod = weft.parse(text(rule))
    expected = np.exp(F) * X * 7
    gradient = weft.grad(mod, 0)
    np.testing.assert_allclose(evaluate(gradient, [X, SEVEN]), expected)
    again = weft.grad(weft.parse(str(mod)), 0)
    np.testing.assert_allclose(weft.compile(again)(X, SEVEN), expected)


@pytest.mark.parametrize("rule", RULES)
def test_in_branches_and_recursion(rule):
    body = "if (less(%i, 9)) { sum(@f(@f(%x, %i), %i)) } else { sum(%x) }"
    gradient = weft.grad(weft.parse(text(rule, body)), 0)
    np.testing.assert_allclose(evaluate(gradient, [X, SEVEN]), F * 7 * X * 7)
    np.testing.assert_allclose(evaluate(gradient, [X, np.int32(9)]), np.ones(3))
    loop = f"""
        def @loop(%x: {V}, %i: int32, %n: int32) -> {V} {{
          if (equal(%n, 0)) {{ %x }} else {{ @loop(@f(%x, %i), %i, subtract(%n, 1)) }} }}"""
    mod = weft.parse(text(rule, "sum(@loop(%x, %i, 2))") + loop)
    np.testing.assert_allclose(evaluate(weft.grad(mod, 0), [X, SEVEN]), F * 7 * X * 7)


def test_forward_mode_and_second_order():
    mod = weft.parse(text(RULES[0]))
    _, dy = evaluate(weft.jvp(mod), [X, SEVEN, Y])
    np.testing.assert_allclose(dy, np.sum(np.exp(F) * X * 7 * Y))
    # The rule is differentiated like any function: 7 x is a function of x.
    hessian = evaluate(weft.jacobian(weft.grad(mod, 0), 0), [X, SEVEN])
    np.testing.assert_allclose(hessian, np.diag(np.exp(F) * ((7 * X) ** 2 + 7)))
    pair = weft.parse(text(RULES[2]))
    second = evaluate(weft.jvp(weft.grad(pair, 0)), [X, SEVEN, Y])[1]
    slope = np.sin(X) + X * np.cos(X)  # of the function that replaces f
    np.testing.assert_allclose(second, np.exp(F) * 7 * Y * (1 + X * slope))


def test_function_values_have_their_rules():
    body = f"""let %g = fn (%h: fn({V}, int32) -> {V}) {{ %h(%x, %i) }}; sum(%g(@f))"""
    mod = weft.parse(text(RULES[0], body))
    np.testing.assert_allclose(evaluate(weft.jvp(mod), [X, SEVEN, Y])[1], np.sum(7 * X * Y))
    np.testing.assert_allclose(evaluate(weft.grad(mod, 0), [X, SEVEN]), 7 * X)


def test_python_functions():
    @weft.custom_vjp
    @weft.function
    def rounded(x: THREE):
        return op.round(x)

    def forward(x):
        return op.round(x), x

    def backward(x, dy):  # the types of saved values and of dy are known
        return (dy * x,)

    rounded.defvjp(forward, backward)

    @weft.function
    def loss(x: THREE):
        return op.sum(rounded(x * x))

    np.testing.assert_allclose(evaluate(weft.grad(loss, 0), [X]), X * X * 2 * X)
    np.testing.assert_allclose(evaluate(loss.module, [X]), np.sum(np.round(X * X)))
    np.testing.assert_allclose(evaluate(weft.grad(rounded, 0, cotangent=Y), [X]), X * Y)


def test_python_tangents():
    @weft.custom_jvp
    def root(x: THREE):
        return op.sqrt(x)

    @root.defjvp
    @weft.function
    def root_tangent(x: THREE, dx: THREE):
        y = root(x)
        return y, dx / (y + y) + dx

    @weft.function
    def loss(x: THREE):
        return op.sum(root(x))

    expected = 0.5 / np.sqrt(X) + 1
    np.testing.assert_allclose(evaluate(weft.grad(loss, 0), [X]), expected)
    np.testing.assert_allclose(evaluate(weft.jvp(loss), [X, Y])[1], np.sum(expected * Y))
    np.testing.assert_allclose(evaluate(weft.jvp(root), [X, Y])[1], expected * Y)


WRONG = {
    "a function that does not exist": (', custom_vjp="nothing"', "not in the module"),
    "a tangent of another type": (', custom_jvp="product"', "@product of @f has the wrong type"),
    "gradients of another type": (', custom_vjp="tangent"', "@tangent of @f has the wrong type"),
    "three functions": (', custom_vjp=["forward", "backward", "f"]', "needs two functions"),
    "no saved values": (', custom_vjp=["tangent", "backward"]', "@tangent of @f has the wrong"),
    "other saved values": (', custom_vjp=["forward", "product"]', "@product of @f has the wrong"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_rules(name):
    rule, message = WRONG[name]
    with pytest.raises(PassError, match=message) as caught:
        weft.grad(weft.parse(text(rule)), 0)
    assert "<text>:" in caught.value.where


def test_forward_mode_needs_a_tangent():
    with pytest.raises(PassError, match="forward mode through @f") as caught:
        weft.jvp(weft.parse(text(RULES[1])))
    assert "custom_jvp" in caught.value.help


def test_misuse_in_python():
    @weft.custom_vjp
    def f(x: THREE):
        return x

    with pytest.raises(OptionError, match="has no rules"):
        weft.grad(f)
    with pytest.raises(OptionError, match="defjvp is for custom_jvp"):
        f.defjvp(f)
    with pytest.raises(OptionError, match="defvjp takes"):
        f.defvjp()
    with pytest.raises(OptionError, match="a rule is a function"):
        f.defvjp(3)
