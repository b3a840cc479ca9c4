"""Checkpointed functions: the same gradients from less memory."""

from __future__ import annotations

import numpy as np
import pytest

import weft
from tests.unit.transform.autodiff.memory import planned_arena
from tests.unit.transform.helpers import parse_program
from weft import op
from weft.compiler.options import CompileOptions
from weft.compiler.pipeline import run_pipeline
from weft.ir.expr import Call, Function, var
from weft.ir.module import IRModule
from weft.support.errors import OptionError, PassError
from weft.transform.analysis.reference import evaluate
from weft.transform.autodiff.checkpoint.checkpoint import in_segments
from weft.transform.autodiff.reverse.gradient import Gradient

ROWS, WIDTH = 64, 16


def block():
    """Seven values of which the derivative needs all."""
    x, w = var("x", (ROWS, WIDTH)), var("w", (WIDTH, WIDTH))
    y = op.tanh(op.nn.dense(x, w))
    return Function((x, w), op.sin(op.nn.dense(op.exp(op.negative(op.multiply(y, y))), w)))


def network(depth, wrap):
    x = var("x", (ROWS, WIDTH))
    weights = [var(f"w{i}", (WIDTH, WIDTH)) for i in range(depth)]
    y = x
    for weight in weights:
        y = Call(wrap(block()), (y, weight))
    return IRModule.from_expr(Function((x, *weights), op.sum(y)))


def flat(value):
    return [v for part in value for v in flat(part)] if isinstance(value, (tuple, list)) \
        else [np.asarray(value)]


def inputs_of(mod, seed=0):
    rng = np.random.default_rng(seed)
    return [(rng.normal(size=p.checked_type.concrete_shape) * 0.2).astype(np.float32)
            for p in mod["main"].params]


def test_same_gradients_from_less_memory():
    plain, again = (Gradient()(network(1, wrap)) for wrap in (lambda f: f, weft.checkpoint))
    inputs = inputs_of(plain)
    expected, got = weft.compile(plain)(*inputs), weft.compile(again)(*inputs)
    for a, b in zip(flat(expected), flat(got), strict=True):
        np.testing.assert_array_equal(a, b)
    kept, recomputed = (planned_arena(Gradient()(network(4, wrap)))
                        for wrap in (lambda f: f, weft.checkpoint))
    assert recomputed < 0.6 * kept


def test_values_are_computed_again_after_the_pipeline():
    """Without the barrier, common subexpressions of both passes would be merged."""
    mod = run_pipeline(Gradient()(network(2, weft.checkpoint)), CompileOptions.make())
    assert str(mod).count("annotation.barrier") >= 4


def test_nested_checkpoints_and_second_order():
    inner = weft.checkpoint(block())
    x, w = var("x", (ROWS, WIDTH)), var("w", (WIDTH, WIDTH))
    outer = weft.checkpoint(Function((x, w), op.tanh(Call(inner, (x, w)))))
    a, v = var("a", (ROWS, WIDTH)), var("v", (WIDTH, WIDTH))
    mod = IRModule.from_expr(Function((a, v), op.sum(Call(outer, (a, v)))))
    bare = IRModule.from_expr(Function((x, w), op.sum(op.tanh(block_of(x, w)))))
    inputs = inputs_of(Gradient()(bare))
    for first, second in ((Gradient()(mod), Gradient()(bare)),
                          (Gradient()(Gradient()(mod)), Gradient()(Gradient()(bare)))):
        for g, e in zip(flat(evaluate(first, inputs)), flat(evaluate(second, inputs)), strict=True):
            np.testing.assert_allclose(g, e, rtol=1e-4, atol=1e-4)


def block_of(x, w):
    y = op.tanh(op.nn.dense(x, w))
    return op.sin(op.nn.dense(op.exp(op.negative(op.multiply(y, y))), w))


def test_python_functions():
    @weft.checkpoint
    @weft.function
    def layer(x: weft.TensorType.of((4,))) -> weft.TensorType.of((4,)):
        return op.exp(op.sin(x))

    @weft.function
    def loss(x: weft.TensorType.of((4,))) -> weft.TensorType.of(()):
        return op.sum(layer(layer(x)))

    mod = Gradient()(loss.module)
    assert "annotation.barrier" in str(mod)
    x = np.linspace(0, 1, 4, dtype=np.float32)
    y = np.exp(np.sin(x))
    slope = np.exp(np.sin(y)) * np.cos(y) * y * np.cos(x)
    np.testing.assert_allclose(flat(evaluate(mod, [x]))[1], slope, rtol=1e-5)


def test_under_other_transformations():
    """Forward mode sees an ordinary call; a batch of checkpointed functions stays checkpointed."""
    x = var("x", (4,))
    inner = weft.checkpoint(Function((x,), op.exp(op.sin(x))))
    y = var("y", (4,))
    mod = IRModule.from_expr(Function((y,), op.sum(Call(inner, (Call(inner, (y,)),)))))
    point, direction = np.linspace(0, 1, 4, dtype=np.float32), np.ones(4, np.float32)
    slope = flat(evaluate(weft.grad(mod), [point]))[0]
    tangent = flat(evaluate(weft.jvp(mod), [point, direction]))[1]
    np.testing.assert_allclose(tangent, slope.sum(), rtol=1e-5)
    batch = Gradient()(weft.vmap(mod, axis_size=3))
    assert "annotation.barrier" in str(batch)
    points = np.stack([point, 2 * point, -point])
    got = flat(evaluate(batch, [points]))[1]
    for i in range(3):
        np.testing.assert_allclose(got[i], flat(evaluate(weft.grad(mod), [points[i]]))[0],
                                   rtol=1e-5)


def test_in_text_with_a_loop_inside():
    mod = parse_program("""
        def @power(%n: Tensor[(), int32], %x: Tensor[(4,), float32], %y: Tensor[(4,), float32])
            -> Tensor[(4,), float32] {
          if (greater(%n, 0)) { @power(subtract(%n, 1), %x, multiply(%y, %x)) } else { %y }
        }
        def @block(%x: Tensor[(4,), float32], checkpoint=True) -> Tensor[(4,), float32] {
          sin(@power(3, %x, %x))
        }
        def @main(%x: Tensor[(4,), float32]) { sum(@block(%x)) }""")
    x = np.linspace(0.1, 1, 4, dtype=np.float32)
    after = Gradient()(mod)
    np.testing.assert_allclose(flat(evaluate(after, [x]))[1], np.cos(x**4) * 4 * x**3, rtol=1e-5)


def test_segments_keep_memory_of_the_root():
    def layers(count):
        x = var("x", (ROWS, WIDTH))
        return [Function((x,), op.sin(op.nn.dense(x, op.ones(shape=(WIDTH, WIDTH)))))
                for _ in range(count)]

    def arena(function):
        x = var("x", (ROWS, WIDTH))
        return planned_arena(Gradient()(IRModule.from_expr(
            Function((x,), op.sum(Call(function, (x,)))))))

    assert arena(weft.checkpoint_sequential(layers(16))) \
        < 0.7 * arena(weft.checkpoint_sequential(layers(16), segments=1))


def test_what_cannot_be_checkpointed():
    with pytest.raises(OptionError, match="checkpoint takes a function"):
        weft.checkpoint(3)
    with pytest.raises(PassError, match="functions of one argument"):
        in_segments([block()])
    one = Function((x := var("x", (3,)),), op.sin(x))
    with pytest.raises(PassError, match="number of segments out of range"):
        in_segments([one], 2)
