"""NNVM's options of gradients: entries, cotangents, and functions that build the result."""

from __future__ import annotations

import numpy as np
import pytest

import weft
from weft import op
from weft.ir.expr import Tuple, var
from weft.ir.op import OPS
from weft.ir.typing.relations import same_type_as
from weft.ir.visitor import post_order
from weft.support.errors import OptionError, PassError
from weft.transform.analysis.graph import op_name
from weft.transform.analysis.reference import evaluate
from weft.transform.autodiff.reverse.graph_gradient import graph_gradient

V = "Tensor[(3,), float64]"
X, Y = np.array([1.0, 2.0, 3.0]), np.array([0.5, -1.0, 2.0])
TEXT = f"""def @main(%x: {V}, %y: {V}) {{
    let %h = multiply(%x, %y);
    let %z = add(sin(%h), %h);
    (%z, exp(%x)) }}"""


def count(mod, name: str) -> int:
    return sum(op_name(n) == name for n in post_order(mod["main"]))


def test_inner_entries_and_several_results():
    mod = weft.parse(TEXT)
    slope = np.cos(X * Y) + 1
    dx, dh = evaluate(graph_gradient(mod, [0], ["x", "h"]), [X, Y])
    np.testing.assert_allclose(dx, slope * Y)
    np.testing.assert_allclose(dh, slope)
    (both,) = evaluate(graph_gradient(mod, ["z", 1], ["x"]), [X, Y])
    np.testing.assert_allclose(both, slope * Y + np.exp(X))
    (inner,) = evaluate(graph_gradient(mod, ["h"], ["y"]), [X, Y])
    np.testing.assert_allclose(inner, X)
    node = next(n for n in post_order(mod["main"]) if op_name(n) == "sin")
    np.testing.assert_allclose(evaluate(graph_gradient(mod, [0], [node]), [X, Y])[0], np.ones(3))


def test_own_cotangents():
    mod = weft.parse(TEXT)
    dy = var("dy", (3,), "float64")
    made = graph_gradient(mod, [0, 1], ["x"], ys_out_grad=[dy, None])
    assert [p.name for p in made["main"].params] == ["x", "y", "dy"]
    (dx,) = evaluate(made, [X, Y, Y])
    np.testing.assert_allclose(dx, Y * (np.cos(X * Y) + 1) * Y + np.exp(X))
    with pytest.raises(OptionError, match="ys_out_grad does not fit ys"):
        graph_gradient(mod, [0], ["x"], ys_out_grad=[])
    with pytest.raises(OptionError, match="does not fit the entry"):
        graph_gradient(mod, [0], ["x"], ys_out_grad=[var("dy", (4,), "float64")])


def test_aggregate_fun_sees_all_uses_at_once():
    mod = weft.parse(f"def @main(%x: {V}) {{ add(sin(%x), add(cos(%x), exp(%x))) }}")
    seen: list[int] = []

    def aggregate(gradients):
        seen.append(len(gradients))
        return op.sum(op.stack(Tuple(tuple(gradients))), axis=(0,))

    made = graph_gradient(mod, [0], ["x"], aggregate_fun=aggregate)
    assert seen == [3]
    np.testing.assert_allclose(evaluate(made, [X])[0], np.cos(X) - np.sin(X) + np.exp(X))
    assert count(made, "stack") == 1


def test_mirrored_calls_are_computed_again():
    mod = weft.parse(f"def @main(%x: {V}) {{ let %h = exp(sin(%x)); multiply(%h, %h) }}")
    plain = graph_gradient(mod, [0], ["x"])
    mirrored = graph_gradient(mod, [0], ["x"], mirror_fun=lambda call: op_name(call) == "exp")
    for made in (plain, mirrored):
        np.testing.assert_allclose(weft.compile(made)(X)[0],
                                   2 * np.exp(2 * np.sin(X)) * np.cos(X), rtol=1e-12)
    assert count(mirrored, "annotation.barrier") > 0 == count(plain, "annotation.barrier")


def test_entries_without_influence():
    mod = weft.parse(f"def @main(%x: {V}, %y: {V}) {{ sum(%x) }}")
    with pytest.raises(PassError, match="no path") as caught:
        graph_gradient(mod, [0], ["y"])
    assert caught.value.got == "%y"
    for options in ({"zero_ops": ["zeros"]}, {"zero_ops": ["zeros_like"]},
                    {"attr_hint_fun": lambda value, zeros: op.zeros_like(value)}):
        made = graph_gradient(mod, [0], ["y", "x"], **options)
        found = evaluate(made, [X, Y])
        np.testing.assert_array_equal(found[0], np.zeros(3))
        np.testing.assert_array_equal(found[1], np.ones(3))


def test_zero_gradients_pass_operators_without_a_rule(request):
    @weft.define_op("without_rule", relation=same_type_as(0))
    def compute(x, attrs):
        """An operator of this test."""
        return x

    request.addfinalizer(lambda: OPS.remove("without_rule"))
    mod = weft.parse(f"def @main(%x: {V}) {{ (without_rule(%x), exp(%x)) }}")
    with pytest.raises(PassError, match="missing gradient of without_rule"):
        graph_gradient(mod, [0], ["x"])
    zeros = op.zeros(shape=(3,), dtype="float64")
    made = graph_gradient(mod, [0, 1], ["x"], ys_out_grad=[zeros, None], zero_ops=["zeros"])
    assert "exp" in str(made)


def test_copies_of_equal_gradients():
    mod = weft.parse(f"def @main(%x: {V}, %y: {V}) {{ add(%x, %y) }}")
    assert count(graph_gradient(mod, [0], ["x", "y"]), "copy") == 0
    assert count(graph_gradient(mod, [0], ["x", "y"], copy_op="copy"), "copy") == 1


def test_operators_with_an_expansion():
    mod = weft.parse("""def @main(%x: Tensor[(2, 3), float64], %g: Tensor[(3,), float64],
                                  %b: Tensor[(3,), float64]) { nn.layer_norm(%x, %g, %b) }""")
    names = ("x", "g", "b")
    dy = np.arange(6.0).reshape(2, 3)
    inputs = [np.vstack([X, Y]), Y, X]
    made = graph_gradient(mod, [0], names, ys_out_grad=[var("dy", (2, 3), "float64")])
    found = evaluate(made, [*inputs, dy])
    expected = evaluate(weft.grad(mod, cotangent=dy), inputs)
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b)


@pytest.mark.parametrize(("ys", "xs", "message"), [
    (["nothing"], ["x"], "unknown entry nothing"),
    ([2], ["x"], "no such result"),
    ([0], ["<text>"], "ambiguous entry"),
])
def test_entries_that_do_not_exist(ys, xs, message):
    with pytest.raises(OptionError, match=message):
        graph_gradient(weft.parse(TEXT), ys, xs)


def test_programs_that_are_no_graphs():
    mod = weft.parse(f"""def @main(%x: {V}) {{
        if (less(sum(%x), sum(exp(%x)))) {{ sin(%x) }} else {{ %x }} }}""")
    with pytest.raises(PassError, match="graph_gradient met If"):
        graph_gradient(mod, [0], ["x"])
