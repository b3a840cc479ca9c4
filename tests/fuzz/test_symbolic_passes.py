"""Passes keep the meaning of programs with symbolic sizes, whatever sizes arrive.

A program with symbols ``b`` and ``s`` goes through passes once; the result is evaluated at several
sizes by the reference interpreter, and must agree with the program without passes, for which the
symbols are replaced first.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.deep_programs import EVERY_PASS, deep_codegen
from tests.fuzz.test_passes_keep_meaning import PASSES, after_passes, examples
from weft import op
from weft.ir import IRModule, infer_type, parse_pipeline
from weft.ir.expr import Expr, Function, Tuple, TupleGetItem, const, var
from weft.ir.shape import SymDim
from weft.ir.substitution import substitute_symbols
from weft.transform import evaluate
from weft.transform.analysis.equivalence import arrays_of

B, S = SymDim.symbol("b"), SymDim.symbol("s")
SHAPE = (B, S, 8)
SIZES = [(1, 1), (2, 3), (3, 1), (1, 5), (0, 2)]
# Passes that look at values between kernels or that need other kinds of programs.
NAMES = [name for name in PASSES
         if not any(word in name for word in ("precision", "quantize", "codegen"))]


@pytest.fixture(autouse=True, scope="module")
def _codegen():
    with deep_codegen():
        yield


def _weight(draw: Any, *shape: int) -> Expr:
    values = np.random.default_rng(draw(st.integers(0, 3))).uniform(-0.5, 0.5, shape)
    return const(values.astype(np.float32))


def _unary(draw: Any, x: Expr) -> Expr:
    return draw(st.sampled_from([op.nn.relu, op.tanh, op.negative, op.copy]))(x)


def _with_constant(draw: Any, x: Expr) -> Expr:
    other = _weight(draw, *draw(st.sampled_from([(), (8,), (1, 1, 8)])))
    return draw(st.sampled_from([op.add, op.multiply]))(x, other)


def _dense(draw: Any, x: Expr) -> Expr:
    weight, bias = _weight(draw, 8, 8), _weight(draw, 8)
    if draw(st.booleans()):
        return op.add(op.nn.dense(x, weight), bias)
    rows = op.nn.dense(op.reshape(x, newshape=(-1, 8)), weight)
    return op.reshape(op.add(rows, bias), newshape=SHAPE)


def _norm(draw: Any, x: Expr) -> Expr:
    if draw(st.booleans()):
        return op.nn.softmax(x, axis=-1)
    return op.nn.layer_norm(x, _weight(draw, 8), _weight(draw, 8))


def _heads(_draw: Any, x: Expr) -> Expr:
    """Attention of two heads over itself."""
    split = op.transpose(op.reshape(x, newshape=(B, S, 2, 4)), axes=(0, 2, 1, 3))
    flat = op.reshape(split, newshape=(B * 2, S, 4))
    scores = op.multiply(op.nn.batch_matmul(flat, flat), const(np.float32(0.5)))
    mixed = op.nn.batch_matmul(op.nn.softmax(scores, axis=-1), flat, transpose_b=False)
    back = op.transpose(op.reshape(mixed, newshape=(B, 2, S, 4)), axes=(0, 2, 1, 3))
    return op.reshape(back, newshape=(0, 0, -1))


def _there_and_back(draw: Any, x: Expr) -> Expr:
    moved = op.transpose(op.transpose(x, axes=(1, 0, 2)), axes=(1, 0, 2))
    flat = op.reshape(moved if draw(st.booleans()) else x, newshape=(B * S * 8,))
    return op.reshape(op.reshape(flat, newshape=(B * S, 2, 4)), newshape=SHAPE)


def _shifted(_draw: Any, x: Expr) -> Expr:
    """Every row with its predecessor, zeros before the first."""
    padded = op.nn.pad(x, const(np.float32(0)), pad_width=((0, 0), (1, 0), (0, 0)))
    return op.add(x, op.strided_slice(padded, begin=(0,), end=(S,), axes=(1,)))


def _halves(_draw: Any, x: Expr) -> Expr:
    parts = op.split(x, indices_or_sections=2, axis=2)
    return op.concatenate(Tuple((TupleGetItem(parts, 1), TupleGetItem(parts, 0))), axis=2)


def _masked(_draw: Any, x: Expr) -> Expr:
    steps = op.reshape(op.arange(stop=S, dtype="float32"), newshape=(1, S, 1), allowzero=True)
    return op.multiply(x, op.cast(op.less(steps, const(np.float32(2))), dtype="float32"))


def _by_shape(_draw: Any, x: Expr) -> Expr:
    """A reshape to a computed shape."""
    sizes = op.shape_of(x)
    total = op.reshape(op.prod(op.strided_slice(sizes, begin=(0,), end=(2,))), newshape=(1,))
    rows = op.dyn.reshape(x, op.concatenate(Tuple((total, const(np.array([8])))), axis=0))
    return op.dyn.reshape(op.tanh(rows), sizes)


STEPS = [_unary, _with_constant, _dense, _norm, _heads, _there_and_back, _shifted, _halves, _masked]


@st.composite
def programs(draw: Any, *, dynamic: bool = False) -> IRModule:
    x, y = var("x", SHAPE), var("y", SHAPE)
    values: list[Expr] = [x, y]
    for _ in range(draw(st.integers(1, 5))):
        source = values[-draw(st.integers(1, min(3, len(values))))]
        if draw(st.integers(0, 3)) == 0:
            values.append(op.add(source, draw(st.sampled_from(values))))
        else:
            values.append(draw(st.sampled_from(STEPS))(draw, source))
    if dynamic:
        values.append(_by_shape(draw, values[-1]))
    return infer_type(IRModule.from_expr(Function((x, y), Tuple((values[-1], values[-2])))))


def check(before: IRModule, after: IRModule) -> None:
    for batch, length in SIZES:
        rng = np.random.default_rng(batch + length)
        inputs = [rng.uniform(-1, 1, (batch, length, 8)).astype(np.float32) for _ in range(2)]
        expected = evaluate(substitute_symbols(before, {"b": batch, "s": length}), inputs)
        for found, wanted in zip(arrays_of(evaluate(after, inputs)), arrays_of(expected),
                                 strict=True):
            np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=1e-4)


@examples(40)
@given(mod=programs(), names=st.lists(st.sampled_from(NAMES), min_size=1, max_size=4))
def test_passes_over_symbolic_programs(mod: IRModule, names: list[str]) -> None:
    check(mod, after_passes(mod, names))


@examples(10)
@given(mod=programs(dynamic=True))
def test_computed_shapes_become_symbolic(mod: IRModule) -> None:
    after = parse_pipeline("to_graph_normal_form,dynamic_to_static")(mod, EVERY_PASS)
    assert "dyn." not in str(after)
    assert "?" not in str(infer_type(after)["main"].checked_type)
    check(mod, after)
