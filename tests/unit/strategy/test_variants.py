"""Variants of kernels with symbolic sizes."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import weft
from weft import op
from weft.ir import IRModule
from weft.ir.expr import Call, Function, var
from weft.ir.shape import SymDim
from weft.ir.symbol import SizeRange
from weft.ir.typing.infer import infer_expr
from weft.strategy.variants import (
    VARIANTS,
    SizeCondition,
    Variant,
    intersection,
    variants_for,
    variants_that_pay,
)
from weft.support.errors import InternalError
from weft.target import CpuTarget

TARGET = CpuTarget.host()


def _function(symbol: str) -> Function:
    x = var("x", (SymDim.symbol(symbol), 4), "float32")
    body = infer_expr(op.nn.log_softmax(x))
    return Function((x,), body, body.checked_type, attrs={"primitive": True})


def at(size: str, low: int, high: int | None, multiple: int = 1) -> Variant:
    return (SizeCondition(SymDim.symbol(size), SizeRange(low, high, multiple)),)


@pytest.fixture
def hook() -> Iterator[list[Variant]]:
    """The variants that a hook of nn.log_softmax names, for a test to fill."""
    ranges: list[Variant] = []
    name = "cpu:nn.log_softmax"
    assert name not in VARIANTS

    @variants_for("nn.log_softmax", target="cpu")
    def _(_call: Call, _target: CpuTarget) -> list[Variant]:
        return ranges

    yield ranges
    VARIANTS.remove(name)


def test_ranges_are_cut_to_those_of_the_symbol(hook: list[Variant]) -> None:
    symbol = "n{2..32}"
    hook += [at(symbol, 1, 1), at(symbol, 1, 8), at(symbol, 2, 8), at(symbol, 0, None, 16),
             at(symbol, 1, 64)]
    assert variants_that_pay(_function(symbol), TARGET) == (
        at(symbol, 2, 8), at(symbol, 16, 32, 16))


def test_a_function_of_fixed_sizes_has_no_variants(hook: list[Variant]) -> None:
    hook.append(at("n", 1, 1))
    x = var("x", (3, 4), "float32")
    body = infer_expr(op.nn.log_softmax(x))
    assert variants_that_pay(Function((x,), body, body.checked_type), TARGET) == ()


def test_an_unknown_symbol_is_reported(hook: list[Variant]) -> None:
    hook.append(at("m", 1, 1))
    with pytest.raises(InternalError, match="unknown symbol"):
        variants_that_pay(_function("n"), TARGET)


_RANGES = st.builds(
    lambda low, length, multiple: SizeRange(
        -(-low // multiple) * multiple,
        None if length is None else -(-low // multiple) * multiple + length * multiple, multiple),
    st.integers(0, 20), st.none() | st.integers(0, 10), st.integers(1, 6))


@given(_RANGES, _RANGES)
def test_an_intersection_contains_the_sizes_of_both(a: SizeRange, b: SizeRange) -> None:
    both = intersection(a, b)
    for size in range(130):
        assert (both is not None and size in both) == (size in a and size in b)
    if both is not None:
        assert both.low in both
        assert both.high is None or both.high in both


def test_images_that_shrink_have_a_kernel_that_chooses_rows_first() -> None:
    x = var("x", (*map(SymDim.symbol, ("b", "h", "w")), 3), "float32")
    body = infer_expr(op.image.resize2d(x, size=(8, 4), layout="NHWC"))
    function = Function((x,), body, body.checked_type, attrs={"primitive": True})
    (variant,) = variants_that_pay(function, TARGET)
    assert variant == (*at("h", 9, None), *at("w", 5, None))
    module = weft.compile(IRModule.from_expr(Function((x,), op.image.resize2d(
        x, size=(8, 4), layout="NHWC"))))
    for shape in ((2, 21, 9, 3), (2, 21, 3, 3), (1, 5, 3, 3)):
        image = np.random.default_rng(0).random(shape, np.float32)
        y = var("y", shape, "float32")
        fixed = weft.compile(IRModule.from_expr(Function((y,), op.image.resize2d(
            y, size=(8, 4), layout="NHWC"))))
        np.testing.assert_allclose(module(image), fixed(image), rtol=1e-5, atol=1e-6)
