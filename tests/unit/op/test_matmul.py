"""``nn.matmul`` agrees with NumPy for operands of every rank: types, values and gradients."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import weft
from weft import op
from weft.ir import Function, IRModule, infer_type, var
from weft.ir.expr import const
from weft.ir.shape import SymDim
from weft.support.errors import TypeInferenceError
from weft.transform.analysis.reference import evaluate

SIZES = st.sampled_from([0, 1, 2, 3])


@st.composite
def operands(draw: st.DrawFn, sizes: st.SearchStrategy[int] = SIZES
             ) -> tuple[tuple[int, ...], tuple[int, ...], bool, bool]:
    """Shapes that NumPy accepts, and whether each operand is stored transposed."""
    m, n, k = (draw(sizes) for _ in range(3))
    batch = draw(st.lists(sizes, max_size=2))
    shapes, flags = [], []
    for last, axis in (((m, k), 0), ((k, n), 1)):
        if draw(st.integers(0, 4)) == 0:
            shapes.append((k,))
            flags.append(False)
            continue
        own = batch[draw(st.integers(0, len(batch))):]
        lead = [draw(st.sampled_from([size, 1])) for size in own]
        flags.append(draw(st.booleans()))
        shapes.append((*lead, *(last[::-1] if flags[axis] else last)))
    return shapes[0], shapes[1], flags[0], flags[1]


def program(a: tuple[int, ...], b: tuple[int, ...], swap_a: bool, swap_b: bool,
            dtype: str = "float32") -> IRModule:
    x, y = var("x", a, dtype), var("y", b, dtype)
    body = op.nn.matmul(x, y, transpose_a=swap_a, transpose_b=swap_b)
    return infer_type(IRModule.from_expr(Function((x, y), body)))


def expected(x: np.ndarray, y: np.ndarray, swap_a: bool, swap_b: bool) -> np.ndarray:
    return np.asarray((x.swapaxes(-1, -2) if swap_a else x) @ (y.swapaxes(-1, -2) if swap_b else y))


def whole(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Small integers in float32, whose sums are exact."""
    return rng.integers(-4, 5, shape).astype(np.float32)


@given(operands(), st.booleans())
@settings(max_examples=40, deadline=None)
def test_values_are_those_of_numpy(drawn: tuple, is_constant: bool) -> None:
    a, b, *swaps = drawn
    rng = np.random.default_rng(0)
    x, y = whole(rng, a), whole(rng, b)
    wanted = expected(x, y, *swaps)
    mod = program(a, b, *swaps)
    assert mod["main"].checked_type.ret_type.concrete_shape == wanted.shape
    np.testing.assert_array_equal(evaluate(mod, [x, y]), wanted)
    if is_constant:
        v = var("x", a)
        mod = IRModule.from_expr(Function((v,), op.nn.matmul(
            v, y, transpose_a=swaps[0], transpose_b=swaps[1])))
        found = weft.compile(mod)(x)
    else:
        found = weft.compile(mod)(x, y)
    assert found.shape == wanted.shape
    np.testing.assert_array_equal(found, wanted)


def summed_to(gradient: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    lead = gradient.ndim - len(shape)
    axes = [i for i, size in enumerate(gradient.shape) if i < lead or shape[i - lead] != size]
    return gradient.sum(axis=tuple(axes), keepdims=True).reshape(shape)


@given(operands(st.sampled_from([1, 2, 3])))
@settings(max_examples=25, deadline=None)
def test_gradients_are_those_of_the_definition(drawn: tuple) -> None:
    """The gradient of the sum of the result: sums over the other operand."""
    a, b, *swaps = drawn
    rng = np.random.default_rng(1)
    x, y = whole(rng, a), whole(rng, b)
    left = x.swapaxes(-1, -2) if swaps[0] else x
    right = y.swapaxes(-1, -2) if swaps[1] else y
    left, right = left[None, :] if x.ndim == 1 else left, right[:, None] if y.ndim == 1 else right
    ones = np.ones_like(left @ right)
    dx, dy = ones @ right.swapaxes(-1, -2), left.swapaxes(-1, -2) @ ones
    dx, dy = summed_to(dx, left.shape), summed_to(dy, right.shape)
    dx = (dx.swapaxes(-1, -2) if swaps[0] else dx).reshape(a)
    dy = (dy.swapaxes(-1, -2) if swaps[1] else dy).reshape(b)
    mod = weft.value_and_grad(program(a, b, *swaps), cotangent="ones")
    _, (got_x, got_y) = evaluate(mod, [x, y])
    np.testing.assert_array_equal(got_x, dx)
    np.testing.assert_array_equal(got_y, dy)


def test_the_operator_of_python_builds_it() -> None:
    x, y = var("x", (2, 3, 5)), var("y", (5,))
    rng = np.random.default_rng(0)
    a, b = whole(rng, (2, 3, 5)), whole(rng, (5,))
    np.testing.assert_array_equal(weft.compile(Function((x, y), x @ y))(a, b), a @ b)


@pytest.mark.parametrize(("a", "b", "flags", "words"), [
    ((), (3,), {}, "rank 1 or more"),
    ((2, 3), (4, 2), {}, "inner sizes"),
    ((3,), (2, 4, 2), {}, "inner sizes"),
    ((2, 3, 5), (3, 5, 4), {}, "numbers of matrices"),
    ((4, 2, 3, 5), (3, 5, 4), {}, "numbers of matrices"),
    ((3,), (3, 4), {"transpose_a": True}, "vector cannot be stored transposed"),
    ((4, 3), (3,), {"transpose_b": True}, "vector cannot be stored transposed"),
])
def test_shapes_that_numpy_rejects(a: tuple, b: tuple, flags: dict, words: str) -> None:
    x, y = var("x", a), var("y", b)
    with pytest.raises(TypeInferenceError, match=words):
        infer_type(IRModule.from_expr(Function((x, y), op.nn.matmul(x, y, **flags))))


def test_dynamic_shapes() -> None:
    """One program runs every batch, and so does its gradient; types keep the name."""
    mod = weft.parse("""
        def @main(%x: Tensor[(n, 2, 3), float32], %y: Tensor[(n, 3, 4), float32]) {
          nn.matmul(%x, %y)
        }""")
    assert "Tensor[(n, 2, 4), float32]" in str(infer_type(mod)["main"].checked_type)
    model, rng = weft.compile(mod), np.random.default_rng(0)
    gradient = weft.value_and_grad(mod, cotangent="ones")
    for count in (1, 3, 0):
        x, y = whole(rng, (count, 2, 3)), whole(rng, (count, 3, 4))
        np.testing.assert_array_equal(model(x, y), x @ y)
        _, (dx, dy) = evaluate(gradient, [x, y])
        ones = np.ones((count, 2, 4), np.float32)
        np.testing.assert_array_equal(dx, ones @ y.swapaxes(1, 2))
        np.testing.assert_array_equal(dy, x.swapaxes(1, 2) @ ones)


def test_one_program_multiplies_stacks_of_every_size() -> None:
    """A matmul of rank 4 and one with a weight, with symbolic batch and length."""
    rng = np.random.default_rng(0)
    weight = whole(rng, (6, 8))
    batch, length = SymDim.symbol("batch"), SymDim.symbol("length")
    x = var("x", (batch, 3, length, 6), "float32")
    y = op.nn.matmul(x, const(weight))
    model = weft.compile(Function((x,), op.nn.matmul(y, y, transpose_b=True)))
    for size in ((1, 1), (2, 5), (3, 40), (0, 2), (2, 0)):
        data = whole(rng, (size[0], 3, size[1], 6))
        product = data @ weight
        np.testing.assert_array_equal(model(data), product @ product.swapaxes(-1, -2))


def test_stacks_run_by_the_gemm_of_batch_matmul() -> None:
    """The pipeline expands calls of higher rank into ``nn.batch_matmul`` and ``nn.dense``."""
    mod = program((2, 8, 64, 32), (8, 32, 48), False, False)
    kernels = [step.implementation for step in weft.compile(mod).manifest.steps]
    assert any(k.startswith("nn.batch_matmul.cpu") and "generic" not in k for k in kernels), kernels
    assert math.prod(weft.compile(mod).outputs[0].shape) == 2 * 8 * 64 * 48
