"""Forward mode over the whole language: tangents against central differences, and compiled."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

import weft
from tests.unit.transform.helpers import example_of, random_inputs
from tests.unit.transform.random_programs import programs
from weft.ir.expr import var
from weft.ir.op import OPS
from weft.ir.structural import assert_structural_equal
from weft.ir.typing.infer import infer_type
from weft.ir.typing.relations import same_type_as
from weft.ir.verify import verify_module
from weft.op import exp, multiply, sin
from weft.support.errors import OperatorError, PassError
from weft.transform.analysis.reference import evaluate
from weft.transform.autodiff.forward.transform import ForwardMode
from weft.transform.autodiff.reverse.gradient import Gradient

T = "Tensor[(4,), float64]"
STEP = 1e-6


def flat(value) -> list[np.ndarray]:
    return [a for v in value for a in flat(v)] if isinstance(value, (tuple, list)) else [
        np.asarray(value)]


def tangents_are_slopes(text: str, *inputs: np.ndarray, compiled: bool = True) -> None:
    """``dy`` against central differences in a random direction, by the interpreter and compiled."""
    before = weft.parse(text)
    after = ForwardMode()(before)
    verify_module(after)
    again = weft.parse(str(after))
    rng = np.random.default_rng(0)
    way = [rng.standard_normal(x.shape) if x.dtype.kind == "f" else None for x in inputs]
    tangents = [d for d in way if d is not None]
    ahead, behind = (
        [x if d is None else np.asarray(x + sign * STEP * d) for x, d in zip(inputs, way,
                                                                             strict=True)]
        for sign in (1, -1))
    y, dy = evaluate(again, [*inputs, *tangents])
    for one, expected in zip(flat(y), flat(evaluate(before, list(inputs))), strict=True):
        np.testing.assert_array_equal(one, expected)
    slopes = zip(flat(evaluate(before, ahead)), flat(evaluate(before, behind)), strict=True)
    for tangent, (a, b) in zip(flat(dy), slopes, strict=True):
        np.testing.assert_allclose(tangent, (a - b) / (2 * STEP), rtol=1e-5, atol=1e-7)
    if compiled:
        found = flat(weft.compile(after)(*inputs, *tangents))
        for one, expected in zip(found, flat((y, dy)), strict=True):
            np.testing.assert_allclose(one, expected, rtol=1e-9, atol=1e-12)


X = np.arange(1, 5, dtype=np.float64) / 4
Y = X + 0.7
N = np.int32(3)

LANGUAGE = {
    "shared nodes": (f"def @main(%x: {T}) {{ %0 = exp(%x); add(%0, multiply(%0, sin(%0))) }}", X),
    "lets": (f"""def @main(%x: {T}, %y: {T}) {{
        let %a = multiply(%x, %y); let %b = (sin(%a), %y); add(%b.0, multiply(%b.1, %a)) }}""",
             X, Y),
    "tuples of operators": (f"""def @main(%x: {T}, %y: {T}) {{
        %0 = split(%x, indices_or_sections=2);
        (concatenate((%0.1, exp(%0.0), %y)), %y) }}""", X, Y),
    "branches": (f"""def @main(%x: {T}, %i: int32) {{
        let %t = if (less(%i, 3)) {{ (%x, (%i, sin(%x))) }}
                 else {{ (exp(%x), (add(%i, 1), %x)) }};
        (multiply(%t.0, %t.1.1), %t.1.0) }}""", X, N),
    "a loop whose state gets a tangent": (f"""
        def @main(%x: {T}, %n: int32) {{ @loop(%x, %n, ones(shape=(4,), dtype="float64")) }}
        def @loop(%x: {T}, %n: int32, %acc: {T}) -> {T} {{
          if (equal(%n, 0)) {{ %acc }} else {{ @loop(%x, subtract(%n, 1), multiply(%acc, %x)) }}
        }}""", X, N),
    "local recursion with a captured value": (f"""def @main(%x: {T}, %i: int32) {{
        let %f = fn (%n: int32, %y: {T}) -> {T} {{
          if (equal(%n, 0)) {{ %y }} else {{ %f(subtract(%n, 1), multiply(sin(%y), %x)) }} }};
        %f(%i, %x) }}""", X, N),
    "mutual recursion": (f"""
        def @a(%x: {T}, %n: int32) -> {T} {{
          if (equal(%n, 0)) {{ %x }} else {{ @b(sin(%x), subtract(%n, 1)) }} }}
        def @b(%x: {T}, %n: int32) -> {T} {{
          if (equal(%n, 0)) {{ %x }} else {{ multiply(@a(exp(%x), subtract(%n, 1)), %x) }} }}
        def @main(%x: {T}, %n: int32) {{ @a(%x, %n) }}""", X, N),
    "functions as values": (f"""
        def @twice(%f: fn({T}) -> {T}, %x: {T}) -> {T} {{ %f(%f(%x)) }}
        def @square(%x: {T}) -> {T} {{ multiply(%x, %x) }}
        def @main(%x: {T}, %y: {T}) {{
          add(@twice(@square, %x), @twice(fn (%z: {T}) {{ multiply(%z, %y) }}, %x)) }}""", X, Y),
    "generic functions of the prelude": (f"""import "prelude"
        def @main(%x: {T}, %y: {T}) {{
          let %l = Cons(%x, Cons(%y, Cons(exp(%x), Nil())));
          let %m = @map(fn (%z: {T}) {{ multiply(%z, %y) }}, @rev(%l));
          @foldl(fn (%a: {T}, %b: {T}) {{ add(sin(%a), %b) }}, %x, %m) }}""", X, Y),
    "lists of integers": (f"""import "prelude"
        def @main(%x: {T}) {{
          let %l = Cons(%x, Cons(sin(%x), Nil()));
          (@sum(@map(fn (%z: {T}) {{ 1 }}, %l)), @hd(@rev(%l))) }}""", X),
    "options of tuples": (f"""import "prelude"
        def @main(%x: {T}, %i: int32) {{
          let %o = if (less(%i, 4)) {{ Some((%x, %i)) }} else {{ None() }};
          match (%o) {{ Some((%a, %j)) => {{ sin(%a) }}, None => {{ %x }} }} }}""", X, N),
    "a data type with tensors in it": (f"""
        type Formula {{ Leaf({T}, int32), Product(Formula, Formula), Other(List2) }}
        type List2 {{ End, More(Formula, List2) }}
        def @value(%t: Formula) -> {T} {{ match (%t) {{
          Leaf(%v, %i) => {{ multiply(%v, cast(%i, dtype="float64")) }},
          Product(%a, %b) => {{ multiply(@value(%a), sin(@value(%b))) }},
          Other(More(%a, _)) => {{ @value(%a) }},
          Other(End) => {{ ones(shape=(4,), dtype="float64") }} }} }}
        def @main(%x: {T}, %y: {T}) {{
          @value(Product(Leaf(%x, 2), Product(Leaf(%y, 3), Other(More(Leaf(%x, 1), End()))))) }}""",
                                       X, Y),
    "references": (f"""def @main(%x: {T}) {{
        let %r = ref(%x);
        let %_ = ref_write(%r, multiply(ref_read(%r), ref_read(%r)));
        let %z = ref_read(%r);
        let %_ = ref_write(%r, sin(%z));
        add(ref_read(%r), %z) }}""", X),
    "a closure in a reference": (f"""def @main(%x: {T}) {{
        let %r = ref(fn (%z: {T}) {{ multiply(%z, %x) }});
        let %g = ref_read(%r);
        let %_ = ref_write(%r, fn (%z: {T}) {{ %g(%g(%z)) }});
        ref_read(%r)(sin(%x)) }}""", X),
    "integers in tuples of functions": (f"""
        def @saved(%x: {T}, %i: int32, %n: int32) -> ({T}, ({T}, int32)) {{
          if (equal(%n, 0)) {{ (sin(%x), (%x, %i)) }}
          else {{ @saved(%x, add(%i, 1), subtract(%n, 1)) }} }}
        def @main(%x: {T}, %i: int32) {{
          let %r = @saved(%x, %i, 2);
          multiply(%r.0, multiply(%r.1.0, cast(%r.1.1, dtype="float64"))) }}""", X, N),
    "composed functions": (f"""import "prelude"
        def @main(%x: {T}) {{ @iterate(fn (%z: {T}) {{ sin(%z) }}, 3)(%x) }}""", X),
    "integers between floats": (f"""def @main(%x: {T}, %i: int32) {{
        multiply(%x, cast(add(cast(sum(%x), dtype="int32"), %i), dtype="float64")) }}""", X, N),
}

COMPILED = {"branches", "a loop whose state gets a tangent", "functions as values",
            "generic functions of the prelude", "a data type with tensors in it", "references"}


def test_example():
    before, expected = example_of(ForwardMode)
    assert_structural_equal(ForwardMode()(before), expected)


@pytest.mark.parametrize("name", LANGUAGE)
def test_language(name):
    text, *inputs = LANGUAGE[name]
    tangents_are_slopes(text, *inputs, compiled=name in COMPILED)


bounded = settings(max_examples=30, deadline=None, derandomize=True,
                   suppress_health_check=[HealthCheck.too_slow])


@bounded
@given(mod=programs(max_steps=8, control=True))
def test_random_programs_agree_with_reverse_mode(mod):
    """``<w, J t> = <J^T w, t>`` with w = 1."""
    inputs = random_inputs(mod["main"])
    rng = np.random.default_rng(1)
    way = [np.asarray(rng.uniform(-1, 1, x.shape), x.dtype) for x in inputs]
    _, gradients = evaluate(Gradient()(mod), inputs)
    forward = ForwardMode()(mod)
    verify_module(forward)
    y, dy = evaluate(forward, [*inputs, *way])
    left = sum(float(t.astype(np.float64).sum()) for t in flat(dy) if t.dtype.kind == "f")
    right = sum(float((g.astype(np.float64) * t).sum()) for g, t in zip(flat(gradients), way,
                                                                        strict=True))
    scale = max(1.0, *(float(np.abs(a).sum()) for a in (*flat(dy), *flat(gradients))))
    assert abs(left - right) <= 1e-4 * scale
    assert len(flat(y)) == len(flat(dy))


def test_zero_tangents_cost_nothing():
    """Only what depends on the parameters wanted is differentiated."""
    mod = weft.parse(f"""
        def @main(%x: {T}, %y: {T}) {{
          let %z = exp(sin(%y));
          let %w = if (less(sum(%y), sum(%z))) {{ (%z, %x) }} else {{ (%y, %x) }};
          multiply(%w.0, %w.1) }}""")
    after = ForwardMode(with_respect_to=("x",))(mod)
    assert [p.name for p in after["main"].params] == ["x", "y", "dx"]
    text = str(after)
    assert "cos" not in text and "zeros" not in text  # noqa: PT018
    assert text.count("multiply") == 2


def test_loops_keep_their_form():
    """A tail call stays one, and the version of a loop serves its recursive calls."""
    text, *_ = LANGUAGE["a loop whose state gets a tangent"]
    after = ForwardMode()(weft.parse(text))
    assert set(after.functions) == {"main", "loop", "loop_jvp", "loop_jvp_"}
    assert "if" in str(after["loop_jvp_"].body) and "%" in str(after)  # noqa: PT018


def test_forward_over_forward_and_over_reverse():
    mod = weft.parse(f"def @main(%x: {T}) {{ sum(multiply(sin(%x), exp(%x))) }}")
    way = np.array([1.0, -2.0, 0.5, 3.0])
    second = 2 * np.cos(X) * np.exp(X)  # of sin(x) exp(x)
    _, ((_, (hessian_way,))) = evaluate(ForwardMode()(infer_type(Gradient()(mod))), [X, way])
    np.testing.assert_allclose(hessian_way, second * way, rtol=1e-12)
    twice = ForwardMode(with_respect_to=("x",))(ForwardMode()(mod))
    assert [p.name for p in twice["main"].params] == ["x", "dx", "dx_"]
    (_, _), (_, dd) = evaluate(twice, [X, way, way])
    np.testing.assert_allclose(dd, np.sum(second * way * way), rtol=1e-12)


def test_symbolic_sizes():
    mod = weft.parse("""def @main(%x: Tensor[(n, 3), float64], %w: Tensor[(3, 3), float64]) {
        mean(nn.softmax(nn.matmul(%x, %w)), axis=(0,)) }""")
    after = ForwardMode()(mod)
    fn = weft.compile(after)
    rng = np.random.default_rng(0)
    for n in (2, 5):
        x, w, dx, dw = (rng.standard_normal(s) for s in ((n, 3), (3, 3), (n, 3), (3, 3)))
        _, dy = fn(x, w, dx, dw)
        ahead, behind = (evaluate(mod, [x + s * STEP * dx, w + s * STEP * dw]) for s in (1, -1))
        np.testing.assert_allclose(dy, (ahead - behind) / (2 * STEP), rtol=1e-6, atol=1e-9)


def test_long_chains():
    x = var("x", (2,), "float64")
    body = x
    for _ in range(4_000):
        body = sin(body)
    mod = infer_type(weft.IRModule.from_expr(weft.Function((x,), body)))
    after = ForwardMode()(mod)
    assert len(after["main"].params) == 2


@pytest.mark.parametrize(("text", "message"), [
    (f"def @main(%x: {T}, %l: Tensor[(2,), int32]) {{ %x }}", "%l"),
    (f"def @main(%x: {T}) {{ %x }}", "%y"),
])
def test_parameters_without_tangents(text, message):
    with pytest.raises(PassError, match=message):
        ForwardMode(with_respect_to=(message[1:],))(weft.parse(text))


def test_data_types_at_the_border_are_refused():
    with pytest.raises(PassError, match="no tangent type") as caught:
        ForwardMode()(weft.parse(f'import "prelude"\ndef @main(%x: {T}) {{ Cons(%x, Nil()) }}'))
    assert "List" in caught.value.got


def test_lists_of_integers_are_parameters():
    mod = weft.parse(f"""import "prelude"
        def @main(%x: {T}, %l: List[int32]) {{
          multiply(%x, cast(@sum(%l), dtype="float64")) }}""")
    after = ForwardMode()(mod)
    assert [p.name for p in after["main"].params] == ["x", "l", "dx"]


def test_missing_rules_are_listed(request):
    text = f"""def @main(%x: {T}) {{
        %0 = add(%x, one_without_rule(%x));
        another_without_rule(%0) }}"""
    _defined(request, "one_without_rule")
    _defined(request, "another_without_rule")
    with pytest.raises(PassError, match="one_without_rule, another_without_rule") as caught:
        ForwardMode()(weft.parse(text))
    assert [note.split(" at ")[0] for note in caught.value.notes] == [
        "one_without_rule", "another_without_rule"]
    assert "<text>:2" in caught.value.notes[0]


def _defined(request, name: str):
    """An operator for the time of one test."""
    @weft.define_op(name, relation=same_type_as(0))
    def compute(x, attrs):
        """An operator of this test."""
        return x

    request.addfinalizer(lambda: OPS.remove(name))
    return compute


def test_a_wrong_rule_is_reported(request):
    operator = _defined(request, "with_wrong_jvp")
    operator.jvp(lambda call, _y, tangents: sum_of(tangents[0]))
    with pytest.raises(OperatorError, match="tangent of with_wrong_jvp has the wrong type") as e:
        ForwardMode()(weft.parse(f"def @main(%x: {T}) {{ with_wrong_jvp(%x) }}"))
    assert "test_forward_mode.py" in e.value.where


def sum_of(x):
    return weft.op.sum(multiply(exp(x), x))
