"""Equal sums in either order of their operands, and sums of multiples of one value."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import weft
from tests.unit.transform.helpers import check_values, op_calls, parse_program
from weft import op
from weft.ir import Function, IRModule, const, infer_type, var
from weft.transform.analysis.reference import evaluate
from weft.transform.passes.eliminate_common_subexpr import EliminateCommonSubexpr
from weft.transform.passes.simplify_expr import SimplifyExpr

FLOATS = ("float16", "float32", "float64")
INTEGERS = ("int8", "uint8", "int16", "int32", "uint32", "int64")


def typed(inputs: list, body) -> IRModule:
    return infer_type(IRModule.from_expr(Function(tuple(inputs), body)))


@pytest.mark.parametrize("dtype", [*FLOATS, "bfloat16", *INTEGERS])
def test_two_multiples_of_a_sum_in_both_orders_are_one_product(dtype: str) -> None:
    a, c = var("a", (4,), dtype), var("c", (4,), dtype)
    mod = typed([a, c], (a + c) * const(12, dtype) + (c + a) * const(2, dtype))
    model = weft.compile(mod)
    assert op_calls(infer_type(weft.parse(model.as_text("optimized")))) == ["add", "multiply"]
    assert "14" in model.as_text("optimized")
    x = np.arange(4).astype(a.annotation.dtype.numpy)
    np.testing.assert_array_equal(model(x, x + 1), evaluate(mod, [x, x + 1]))


def commuting(name: str, dtype: str) -> list[str]:
    x, y = var("x", (3,), dtype), var("y", (3,), dtype)
    operator = getattr(op, name)
    mod = typed([x, y], op.equal(operator(x, y), operator(y, x)))
    after = EliminateCommonSubexpr()(mod)
    return op_calls(after)


@pytest.mark.parametrize(("name", "dtype"), [
    ("add", "float32"), ("multiply", "int32"), ("equal", "float32"), ("not_equal", "int8"),
    ("logical_and", "bool"), ("logical_or", "bool"), ("logical_xor", "bool"),
    ("bitwise_and", "int32"), ("bitwise_or", "uint8"), ("bitwise_xor", "int64"),
    ("maximum", "int32"), ("minimum", "uint8"),
])
def test_operands_may_change_places(name: str, dtype: str) -> None:
    assert commuting(name, dtype) == [name, "equal"]


@pytest.mark.parametrize(("name", "dtype"), [
    ("subtract", "int32"), ("divide", "float32"), ("power", "float32"), ("less", "int32"),
    ("left_shift", "int32"), ("maximum", "float32"), ("minimum", "float16"),
])
def test_operands_that_stay_in_their_places(name: str, dtype: str) -> None:
    """The maximum of 0.0 and -0.0 is either of them, by position."""
    assert commuting(name, dtype) == [name, name, "equal"]


def sum_of_multiples(dtype: str, a: float, b: float, form: str = "add") -> IRModule:
    x = var("x", (64,), dtype)
    left, right = op.multiply(x, const(a, dtype)), op.multiply(const(b, dtype), x)
    body = {"add": lambda: op.add(left, right), "one": lambda: op.add(x, left),
            "subtract": lambda: op.subtract(left, right), "less": lambda: op.subtract(left, x),
            "more": lambda: op.subtract(x, left)}[form]()
    return typed([x], body)


WHOLE = st.integers(-(1 << 63), (1 << 63) - 1)


@pytest.mark.parametrize("form", ["add", "one", "subtract", "less", "more"])
@pytest.mark.parametrize("dtype", INTEGERS)
@given(WHOLE, WHOLE, st.randoms(use_true_random=False))
@settings(max_examples=12, deadline=None)
@example((1 << 31) - 1, -(1 << 31), None)
@example(0, 1, None)
@example(1, 0, None)
@example(1, 1, None)
def test_integers_wrap_the_same(dtype: str, form: str, a: int, b: int, random) -> None:
    info = np.iinfo(dtype)
    fit = [(v - int(info.min)) % (1 << info.bits) + int(info.min) for v in (a, b)]
    mod = sum_of_multiples(dtype, *fit, form)
    after = SimplifyExpr()(mod)
    assert len(op_calls(after)) <= 1  # a factor 1 is none
    extremes = [int(info.min), int(info.max), 0, 1, *((-1,) if info.min else ())]
    rng = np.random.default_rng(0 if random is None else random.randrange(1 << 32))
    drawn = rng.integers(info.min, info.max, 64 - len(extremes), dtype, endpoint=True)
    x = np.concatenate([np.array(extremes, dtype), drawn])
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(evaluate(after, [x]), evaluate(mod, [x]))


@pytest.mark.parametrize("dtype", FLOATS)
@given(st.floats(allow_nan=False, width=16), st.floats(allow_nan=False, width=16))
@settings(max_examples=40, deadline=None)
@example(3e4, 3e4)
@example(-3e4, -1.0)
def test_floats_of_one_sign_lose_nothing(dtype: str, a: float, b: float) -> None:
    """Infinities and NaN stay where they are, zeros keep signs, and errors do not grow."""
    mod = sum_of_multiples(dtype, a, b)
    after = SimplifyExpr()(mod)
    info = np.finfo(dtype)
    rng = np.random.default_rng(0)
    special = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, info.max, info.min, info.tiny,
                        info.smallest_subnormal, 1.0])
    drawn = rng.standard_normal(64 - special.size) * 10.0 ** rng.integers(-3, 4, 64 - special.size)
    x = np.concatenate([special, drawn]).astype(dtype)
    with np.errstate(all="ignore"):
        before, now = evaluate(mod, [x]), evaluate(after, [x])
        exact = x.astype(np.longdouble) * (np.longdouble(a) + np.longdouble(b))
    if len(op_calls(after)) > 1:  # apart, and the same
        np.testing.assert_array_equal(now, before)
        return
    np.testing.assert_array_equal(np.isnan(now), np.isnan(before))
    np.testing.assert_array_equal(np.signbit(now[:2]), np.signbit(before[:2]))
    ordinary = np.isfinite(before) & np.isfinite(now) & (np.abs(exact) >= info.tiny)
    error = np.abs(now[ordinary].astype(np.longdouble) - exact[ordinary])
    assert np.all(error <= 1.01 * info.eps * np.abs(exact[ordinary]))
    edge = np.isfinite(before) != np.isfinite(now)  # within the roundings of the largest number
    assert np.all(np.abs(exact[edge]) >= (1 - 4 * info.eps) * np.longdouble(info.max))


@pytest.mark.parametrize("body", [
    "add(multiply(%x, 12f), multiply(%x, -2f))",  # both products may be infinite
    "add(multiply(%x, 12f), multiply(%x, 0f))",
    "add(multiply(%x, 3e38f), multiply(%x, 3e38f))",  # the sum of the factors is infinite
    "subtract(multiply(%x, 12f), multiply(%x, 2f))",
    "subtract(multiply(%x, 12f), %x)",
    "subtract(%x, multiply(%x, 12f))",
    "add(multiply(%x, 12f), multiply(exp(%x), 2f))",
    "add(multiply(%x, const([1, 2], (2,), float32)), multiply(%x, const([3, 4], (2, 1), float32)))",
    "add(multiply(%x, const([1, 2, 1, 2], (1, 2, 2), float32)), multiply(%x, 2f))",
    "multiply(add(%x, 12f), add(%x, 2f))",
])
def test_what_stays_apart(body: str) -> None:
    mod = parse_program(f"def @main(%x: Tensor[(2, 2), float32]) {{ {body} }}")
    after = SimplifyExpr()(mod)
    if "3e38" not in body:
        check_values(mod, after)
    assert sorted(op_calls(after)) == sorted(op_calls(mod))


def test_factors_of_shapes_that_agree() -> None:
    mod = parse_program("""
        def @main(%x: Tensor[(4, 2), float32]) {
          add(multiply(%x, const([1, 2], (2,), float32)), multiply(%x, 2f))
        }""")
    after = SimplifyExpr()(mod)
    check_values(mod, after)
    assert op_calls(after) == ["multiply"]
