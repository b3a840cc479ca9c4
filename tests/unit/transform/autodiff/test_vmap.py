"""``weft.vmap``: axes, sizes, control flow, nesting with itself and with gradients."""

from __future__ import annotations

import numpy as np
import pytest

import weft
from tests.unit.transform.helpers import example_of, parse_program
from weft import op
from weft.ir.expr import Function, var
from weft.ir.module import IRModule
from weft.ir.structural import assert_structural_equal
from weft.support.errors import OptionError, PassError, TypeInferenceError
from weft.transform.analysis.reference import evaluate
from weft.transform.autodiff.batching.vectorize import Vectorize, vectorized
from weft.transform.autodiff.reverse.gradient import gradient

RNG = np.random.default_rng(7)


def normal(*shape):
    return RNG.normal(size=shape).astype(np.float32)


def looped(mod, inputs, in_axes):
    """The results of ``mod`` for each example, stacked."""
    size = next(np.shape(x)[a] for x, a in zip(inputs, in_axes, strict=True) if a is not None)
    results = [evaluate(mod, [x if a is None else np.take(x, i, a)
                              for x, a in zip(inputs, in_axes, strict=True)])
               for i in range(size)]
    if isinstance(results[0], tuple):
        return tuple(np.stack(parts) for parts in zip(*results, strict=True))
    return np.stack(results)


def check(mod, inputs, in_axes=None, **options):
    in_axes = (0,) * len(inputs) if in_axes is None else in_axes
    size = next(np.shape(x)[a] for x, a in zip(inputs, in_axes, strict=True) if a is not None)
    after = weft.vmap(mod, in_axes=in_axes, axis_size=size, **options)
    got, expected = evaluate(after, inputs), looped(mod, inputs, in_axes)
    for g, e in zip(got if isinstance(got, tuple) else (got,),
                    expected if isinstance(expected, tuple) else (expected,), strict=True):
        np.testing.assert_allclose(g, e, rtol=1e-5, atol=1e-6)
    return after


def test_docstring_example():
    before, after = example_of(Vectorize)
    assert_structural_equal(Vectorize(axis_size=8)(before), after)


DENSE = """
    def @main(%x: Tensor[(5,), float32], %w: Tensor[(4, 5), float32]) {
      nn.relu(nn.dense(%x, %w))
    }
"""


@pytest.mark.parametrize("in_axes", [(0, None), (None, 0), (0, 0), (1, 2), (-1, -2)])
def test_axes_of_inputs(in_axes):
    x, w = normal(5), normal(4, 5)
    stacked = [v if a is None else np.stack([v * k for k in (1, 2, 3)], a)
               for v, a in zip((x, w), in_axes, strict=True)]
    check(parse_program(DENSE), stacked, in_axes)


def test_axes_of_results():
    mod = parse_program("""
        def @main(%x: Tensor[(2, 3), float32], %y: Tensor[(3,), float32]) {
          (add(%x, %y), exp(%y))
        }""")
    after = weft.vmap(mod, (0, None), (-1, None), 4)
    x, y = normal(4, 2, 3), normal(3)
    both, shared = evaluate(after, [x, y])
    np.testing.assert_allclose(both, np.moveaxis(x + y, 0, -1))
    np.testing.assert_allclose(shared, np.exp(y), rtol=1e-6)


def test_symbolic_batch_runs_at_every_size():
    model = weft.compile(weft.vmap(parse_program(DENSE), {"x": 0}))
    w = normal(4, 5)
    for size in (1, 3, 8):
        x = normal(size, 5)
        np.testing.assert_allclose(model(x, w), np.maximum(x @ w.T, 0), rtol=1e-5, atol=1e-5)


def test_shared_weight_stays_one_gemm():
    after = vectorized(parse_program(DENSE), axis_size=8, in_axes=(0, None))[0]
    assert "broadcast_to" not in str(after)


def test_nested():
    mod = parse_program("""
        def @main(%x: Tensor[(4,), float32], %y: Tensor[(4,), float32]) {
          sum(multiply(%x, %y))
        }""")
    outer = weft.vmap(weft.vmap(mod, (0, None), axis_size=3), (None, 0), axis_size=2)
    x, y = normal(3, 4), normal(2, 4)
    np.testing.assert_allclose(evaluate(outer, [x, y]), y @ x.T, rtol=1e-5)


def test_condition_of_each_example_selects():
    mod = parse_program("""
        def @main(%x: Tensor[(4,), float32]) {
          if (greater(sum(%x), 0f)) { (exp(%x), 1f) } else { (%x, sum(%x)) }
        }""")
    check(mod, [normal(6, 4)])


def test_shared_condition_stays_a_branch():
    mod = parse_program("""
        def @main(%c: Tensor[(), bool], %x: Tensor[(4,), float32]) {
          if (%c) { exp(%x) } else { zeros(shape=(4,)) }
        }""")
    after = check(mod, [np.asarray(False), normal(3, 4)], (None, 0))
    assert "if (" in str(after)


LOOP = """
    def @main(%n: Tensor[(), int32], %x: Tensor[(4,), float32]) {
      let %loop = fn (%i: Tensor[(), int32], %a: Tensor[(4,), float32])
          -> Tensor[(4,), float32] {
        if (less(%i, %n)) { %loop(add(%i, 1), multiply(%a, %x)) } else { tanh(%a) }
      };
      %loop(0, ones(shape=(4,)))
    }
"""


@pytest.mark.parametrize("in_axes", [(None, 0), (0, None), (0, 0)])
def test_loops(in_axes):
    counts = np.array([3, 0, 5], np.int32)
    inputs = [counts if in_axes[0] == 0 else counts[0],
              normal(3, 4) if in_axes[1] == 0 else normal(4)]
    check(parse_program(LOOP), inputs, in_axes)


def test_loop_with_several_exits():
    mod = parse_program("""
        def @main(%n: Tensor[(), int32]) { @collatz(%n, 0) }
        def @collatz(%n: Tensor[(), int32], %steps: Tensor[(), int32]) -> Tensor[(), int32] {
          if (less_equal(%n, 1)) { %steps } else {
            if (greater(%steps, 20)) { -1 } else {
              if (equal(mod(%n, 2), 0)) { @collatz(floor_divide(%n, 2), add(%steps, 1)) }
              else { @collatz(add(multiply(%n, 3), 1), add(%steps, 1)) }
            }
          }
        }""")
    after = check(mod, [np.array([1, 6, 27, 8], np.int32)])
    compiled = weft.compile(after)
    assert compiled(np.array([1, 6, 27, 8], np.int32)).tolist() == [0, 8, -1, 3]


def test_constant_shape_operands():
    x = var("x", (2, 3))
    mod = IRModule.from_expr(Function((x,), op.dyn.reshape(x, np.array([3, 2]))))
    check(mod, [normal(4, 2, 3)])


def each_result(mod, *arrays):
    """The results for each example by itself, stacked."""
    return np.stack([evaluate(mod, [a[i] for a in arrays]) for i in range(len(arrays[0]))])


@pytest.mark.parametrize(("text", "names"), [
    ("""def @main(%n: Tensor[(), int32]) -> Tensor[(), int32] {
          if (less_equal(%n, 1)) { 1 } else { multiply(%n, @main(subtract(%n, 1))) }
        }""", ["@main_inner"]),
    ("""def @main(%n: Tensor[(), int32]) -> Tensor[(), int32] { add(@even(%n), %n) }
        def @even(%n: Tensor[(), int32]) -> Tensor[(), int32] {
          if (less_equal(%n, 0)) { 1 } else { @odd(subtract(%n, 1)) }
        }
        def @odd(%n: Tensor[(), int32]) -> Tensor[(), int32] {
          if (less_equal(%n, 0)) { 0 } else { @even(subtract(%n, 1)) }
        }""", ["@even"]),
    ("""def @main(%n: Tensor[(), int32]) -> Tensor[(), int32] {
          let %f = if (less(%n, 3)) { fn (%k: int32) -> int32 { multiply(%k, %n) } }
                   else { fn (%k: int32) -> int32 { subtract(%k, %n) } };
          %f(%f(%n))
        }""", ["@main_one"]),
    ("""def @main(%n: Tensor[(), int32]) -> Tensor[(), int32] {
          let %r = ref(%n); let %_ = ref_write(%r, multiply(ref_read(%r), 2)); ref_read(%r)
        }""", ["@main_one"]),
    ("""type Number { Whole(Tensor[(), int32]) }
        def @main(%n: Tensor[(), int32]) -> Tensor[(), int32] {
          match (Whole(add(%n, 1))) { Whole(%k) => { %k } }
        }""", ["@main_one"]),
], ids=["recursion", "mutual recursion", "choice of closures", "references", "data"])
@pytest.mark.parametrize("size", [4, 40])
def test_what_examples_cannot_compute_together_runs_one_by_one(text, names, size):
    """As copies for few examples, else in a loop."""
    mod = parse_program(text)
    after, repeated = vectorized(mod, axis_size=size)
    assert sorted(set(repeated)) == sorted(names)
    n = (np.arange(size, dtype=np.int32) * 3) % 5
    np.testing.assert_array_equal(evaluate(after, [n]), each_result(mod, n))


def test_a_batch_of_calls_whose_results_nobody_reads():
    """Neither they nor the functions for one example that they call are left."""
    mod = parse_program("""
        def @main(%n: Tensor[(), int32]) -> Tensor[(), int32] { (@fact(%n), %n).1 }
        def @fact(%n: Tensor[(), int32]) -> Tensor[(), int32] {
          if (less_equal(%n, 1)) { 1 } else { multiply(%n, @fact(subtract(%n, 1))) }
        }""")
    after = weft.vmap(mod, axis_size=3)
    assert list(after.functions) == ["main"]


def test_a_rule_of_a_function_stays_with_its_batch():
    mod = parse_program("""
        def @main(%x: Tensor[(3,), float64], %w: Tensor[(3,), float64]) { sum(@f(%x, %w)) }
        def @f(%x: Tensor[(3,), float64], %w: Tensor[(3,), float64], custom_vjp="rule")
            -> Tensor[(3,), float64] { multiply(%x, %w) }
        def @rule(%x: Tensor[(3,), float64], %w: Tensor[(3,), float64],
                  %dy: Tensor[(3,), float64]) {
          (multiply(%dy, multiply(%w, 10f64)), multiply(%dy, %x))
        }""")
    batch = weft.grad(weft.vmap(mod, (0, None), axis_size=2), cotangent="ones")
    x, w = np.arange(6.0).reshape(2, 3), np.array([1.0, 2.0, 3.0])
    dx, dw = evaluate(batch, [x, w])
    np.testing.assert_allclose(dx, [10 * w, 10 * w])
    np.testing.assert_allclose(dw, x.sum(0))


def test_functions_as_values_and_data_types():
    mod = parse_program("""
        type List[A] { Cons(A, List[A]), Nil() }
        def @fold[A, B](%f: fn(B, A) -> B, %z: B, %xs: List[A]) -> B {
          match (%xs) {
            Cons(%x, %rest) => { @fold(%f, %f(%z, %x), %rest) },
            Nil => { %z }
          }
        }
        def @main(%x: Tensor[(4,), float32], %y: Tensor[(4,), float32]) {
          let %f = fn (%a: Tensor[(4,), float32], %b: Tensor[(4,), float32]) {
            add(multiply(%a, %y), %b)
          };
          @fold(%f, ones(shape=(4,)), Cons(%x, Cons(exp(%x), Nil())))
        }""")
    check(mod, [normal(3, 4), normal(4)], (0, None))


def test_gradient_of_each_example():
    x, w = var("x", (5,)), var("w", (4, 5))
    loss = op.sum(op.tanh(op.nn.dense(x, w)))
    per_example = IRModule.from_expr(gradient(Function((x, w), loss)))
    check_nested(per_example, [normal(3, 5), normal(4, 5)], (0, None))


def check_nested(mod, inputs, in_axes):
    after = weft.vmap(mod, in_axes, axis_size=3)
    value, grads = evaluate(after, inputs)
    for i in range(3):
        one = evaluate(mod, [v if a is None else v[i]
                             for v, a in zip(inputs, in_axes, strict=True)])
        np.testing.assert_allclose(value[i], one[0], rtol=1e-5)
        for g, e in zip(grads, one[1], strict=True):
            np.testing.assert_allclose(g[i], e, rtol=1e-5, atol=1e-6)


def test_gradient_of_convolution_for_each_example():
    """The weight's gradient per example is a grouped product, not one per example."""
    x, w = var("x", (1, 3, 6, 6)), var("w", (4, 3, 3, 3))
    loss = op.sum(op.nn.relu(op.nn.conv2d(x, w, padding=(1, 1), channels=4, kernel_size=(3, 3))))
    mod = IRModule.from_expr(gradient(Function((x, w), loss)))
    check_nested(mod, [normal(3, 1, 3, 6, 6), normal(4, 3, 3, 3)], (0, None))
    assert vectorized(mod, axis_size=3, in_axes=(0, None))[1] == []


def test_gradient_through_vmap():
    mod = parse_program("""
        def @main(%x: Tensor[(4,), float32], %w: Tensor[(4,), float32]) {
          sum(multiply(sin(%x), %w))
        }""")
    batched = weft.vmap(mod, (0, None), axis_size=3)
    x, w = normal(3, 4), normal(4)
    _, (dx, dw) = evaluate(IRModule.from_expr(gradient(batched["main"])), [x, w])
    np.testing.assert_allclose(dx, np.cos(x) * w, rtol=1e-5)
    np.testing.assert_allclose(dw, np.sin(x).sum(0), rtol=1e-5)


def test_operator_without_rule_runs_example_by_example():
    x = var("x", (2, 3))
    mod = IRModule.from_expr(Function((x,), op.nn.space_to_batch_nd(
        op.reshape(x, newshape=(2, 3, 1)), block_shape=(3,), paddings=((0, 0),))))
    after, repeated = vectorized(mod, axis_size=4)
    assert repeated == ["nn.space_to_batch_nd"]
    inputs = normal(4, 2, 3)
    np.testing.assert_array_equal(evaluate(after, [inputs]), looped(mod, [inputs], (0,)))
    many = normal(40, 2, 3)
    for size in (40, "n"):
        looping = weft.vmap(mod, axis_size=size)
        assert str(looping).count("nn.space_to_batch_nd") == 1
        np.testing.assert_array_equal(evaluate(looping, [many]), looped(mod, [many], (0,)))
    compiled = weft.compile(weft.vmap(mod))
    np.testing.assert_array_equal(compiled(inputs), looped(mod, [inputs], (0,)))


@pytest.mark.parametrize(("options", "message"), [
    ({"in_axes": (0, 0, 0)}, "in_axes does not fit"),
    ({"in_axes": (2, None)}, "in_axes of %x is out of range"),
    ({"out_axes": 3}, "out_axes is out of range"),
    ({"out_axes": None}, "out_axes is None for a result that differs"),
    ({"out_axes": (0, 0)}, "out_axes does not fit"),
])
def test_axes_that_do_not_fit(options, message):
    with pytest.raises(PassError, match=message):
        weft.vmap(parse_program(DENSE), **{"in_axes": (0, None), "axis_size": 3, **options})


def test_options_that_do_not_fit():
    with pytest.raises(OptionError, match="unknown parameters: z"):
        weft.vmap(parse_program(DENSE), {"z": 0})
    with pytest.raises(OptionError, match="not an axis"):
        weft.vmap(parse_program(DENSE), "first")
    with pytest.raises(TypeInferenceError, match="not a dimension: -1"):
        weft.vmap(parse_program(DENSE), axis_size=-1)


def test_sizes_of_a_call_must_agree():
    mod = parse_program("""
        def @main(%x: Tensor[(2,), float32], %y: Tensor[(2,), float32]) { add(%x, %y) }""")
    model = weft.compile(weft.vmap(mod))
    with pytest.raises(weft.WeftError, match="batch"):
        model(normal(3, 2), normal(4, 2))
