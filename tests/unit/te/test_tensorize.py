"""Loops that an instruction replaces: what matches, what is refused, and that values stay."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from weft import te
from weft.codegen.llvm.vector.dot_product import DOT_PRODUCTS
from weft.support.errors import LoweringError, RegistryError, ScheduleError
from weft.tir.eval import evaluate
from weft.tir.expr import Call
from weft.tir.instruction import Instruction
from weft.tir.intrinsics import INTRINSICS
from weft.tir.transform.pipeline import lower_prim_func
from weft.tir.visitor import all_exprs

_numbers = itertools.count()


def define(inputs, output, **options) -> Instruction:
    return te.instruction(f"test_{next(_numbers)}", inputs, output, lambda *_: "", **options)


def dot(lanes: int = 4, group: int = 2) -> Instruction:
    a, b = te.placeholder((group,), name="a"), te.placeholder((lanes, group), name="b")
    k = te.reduce_axis(group, "k")
    c = te.compute((lanes,), lambda i: te.sum(a[k] * b[i, k], axis=k), name="c")
    return define([a, b], c)


DOT = dot()


def product(rows: int, columns: int, groups: int, swap: bool = False):
    """``c[m, n]``, the sum over ``g`` and ``k`` of ``x[m, 2 g + k] * y[g, n, k]``."""
    x = te.placeholder((rows, 2 * groups), name="x")
    y = te.placeholder((groups, columns, 2), name="y")
    g, k = te.reduce_axis(groups, "g"), te.reduce_axis(2, "k")

    def element(m, n):
        left, right = x[m, g * 2 + k], y[g, n, k]
        return te.sum(right * left if swap else left * right, axis=[g, k])

    return x, y, te.compute((rows, columns), element, name="z")


def calls(func, name: str) -> int:
    return sum(isinstance(e, Call) and e.name == name for e in all_exprs(func.body))


def tensorized(x, y, z, instruction=DOT, *, local: bool = False) -> te.Schedule:
    sch = te.create_schedule(z)
    acc = sch.cache_write(z, "local") if local else z
    if local:
        m, n = sch[z].axis
        outer, inner = sch[z].split(n, 8)
        sch[z].vectorize(inner)
        sch[acc].compute_at(sch[z], outer)
    m, n = sch[acc].axis
    g, k = sch[acc].reduce_axis
    outer, inner = sch[acc].split(n, 4)
    sch[acc].reorder(g, m, outer, inner, k)
    if local:
        sch[acc].unroll(m)
        sch[acc].unroll(outer)
    sch[acc].tensorize(inner, instruction)
    return sch


def values_of(sch, args, seed=0):
    rng = np.random.default_rng(seed)
    ins = [rng.integers(-4, 5, t.static_shape).astype(t.dtype.numpy) for t in args[:-1]]
    results = []
    func = te.lower(sch, args)
    for form in (func, lower_prim_func(func, verify=True)):
        out = np.zeros(args[-1].static_shape, args[-1].dtype.numpy)
        evaluate(form, *ins, out)
        results.append(out)
    return ins, results, form


@pytest.mark.parametrize("swap", [False, True])
@pytest.mark.parametrize("local", [False, True])
@pytest.mark.parametrize("columns", [4, 12, 13])
def test_values_stay(columns, local, swap):
    args = product(3, columns, 2, swap)
    (x, y), results, form = values_of(tensorized(*args, local=local), args)
    want = np.einsum("mgk,gnk->mn", x.reshape(3, 2, 2), y)
    for got in results:
        np.testing.assert_array_equal(got, want)
    assert calls(form, DOT.name) > 0


def test_the_call_moves_whole_vectors():
    args = product(2, 8, 3)
    text = str(lower_prim_func(te.lower(tensorized(*args), args)))
    assert f"{DOT.name}(z[ramp(" in text
    assert "x[ramp(m * 6 + g * 2, 1, 2)]" in text


def test_a_tile_computes_whole_instructions_where_the_tensor_is_longer():
    x, y, z = product(3, 8, 2)
    out = te.compute((3, 5), lambda m, n: z[m, n] + 1.0, name="out")
    sch = te.create_schedule(out)
    m, n = sch[z].axis
    g, k = sch[z].reduce_axis
    sch[z].compute_at(sch[out], out.op.axis[0])
    outer, inner = sch[z].split(n, 4)
    sch[z].reorder(m, g, outer, inner, k)
    sch[z].tensorize(inner, DOT)
    func = lower_prim_func(te.lower(sch, [x, y, out]))
    assert calls(func, DOT.name) == 1
    assert "not_tensorized" not in str(func)


def test_an_instruction_without_a_sum():
    a = te.placeholder((4,), name="a")
    double = define([a], te.compute((4,), lambda i: a[i] * 2.0, name="c"))
    x = te.placeholder((3, 10), name="x")
    y = te.compute((3, 10), lambda i, j: x[i, j] * 2.0, name="y")
    sch = te.create_schedule(y)
    _, inner = sch[y].split(y.op.axis[1], 4)
    sch[y].tensorize(inner, double)
    (v,), results, form = values_of(sch, [x, y])
    for got in results:
        np.testing.assert_array_equal(got, v * 2)
    assert calls(form, double.name) > 0
    assert not double.accumulates


def refusal(change, *, reorder=("g", "m", "outer", "inner", "k"), instruction=DOT, factor=4):
    z = change[-1]
    sch = te.create_schedule(z)
    m, n = sch[z].axis
    g, k = sch[z].reduce_axis
    outer, inner = sch[z].split(n, factor)
    loops = {"m": m, "outer": outer, "inner": inner, "g": g, "k": k}
    sch[z].reorder(*[loops[name] for name in reorder])
    with pytest.raises(ScheduleError) as error:
        sch[z].tensorize(inner, instruction)
    return str(error.value)


def variant(left=None, right=None, combine=te.sum, dtype="float32"):
    x, y = te.placeholder((3, 4), dtype, "x"), te.placeholder((2, 8, 2), dtype, "y")
    g, k = te.reduce_axis(2, "g"), te.reduce_axis(2, "k")
    one = left or (lambda m, g, k: x[m, g * 2 + k])
    two = right or (lambda g, n, k: y[g, n, k])
    z = te.compute((3, 8), lambda m, n: combine(one(m, g, k) * two(g, n, k), axis=[g, k]),
                   name="z")
    return x, y, z


def test_refusals_say_why():
    x, y, _ = variant()
    text = refusal(variant(), factor=8)
    assert "its loops run 8 x 2, those of the instruction 4 x 2" in text
    assert "z: tensorize of axis n.inner with test_" in text
    assert "c[i] = c[i] + a[k] * b[i, k]" in text
    assert "it computes max(" in refusal(variant(combine=te.max))
    assert "is float64, operand" in refusal(variant(dtype="float64"))
    wide = te.placeholder((2, 8, 3), name="wide")
    assert "moves by 3 along n.inner" in refusal(
        variant(right=lambda g, n, k: wide[g, n, k])).replace("elements a step, operand", "")
    swapped = te.placeholder((2, 2, 8), name="swapped")
    assert "operand b by 2 along" in refusal(variant(right=lambda g, n, k: swapped[g, k, n]))
    assert "is not affine" in refusal(variant(right=lambda g, n, k: y[g, n * n % 8, k]))
    assert "where the instruction reads" in refusal(
        variant(left=lambda m, g, k: x[m, g * 2 + k] + 1.0))


def test_the_start_of_a_sum_must_lie_outside():
    text = refusal(variant(), reorder=("m", "outer", "inner", "g", "k"))
    assert "which contains the whole reduction" in text
    assert "split g and reorder its outer loop outside n.inner" in text


def test_loops_of_an_instruction_are_left_alone():
    args = product(3, 8, 2)
    sch = tensorized(*args)
    stage = sch[args[2]]
    inner = stage.leaf_iter_vars[-2]
    for change in (lambda: stage.vectorize(inner), lambda: stage.split(inner, 2),
                   lambda: stage.reorder(inner, stage.leaf_iter_vars[0]),
                   lambda: stage.tensorize(inner, DOT)):
        with pytest.raises(ScheduleError, match=r"instruction|tensorize"):
            change()


def test_loops_with_a_kind_are_refused():
    z = product(3, 8, 2)[-1]
    sch = te.create_schedule(z)
    m, n = sch[z].axis
    g, k = sch[z].reduce_axis
    outer, inner = sch[z].split(n, 4)
    sch[z].reorder(g, m, outer, inner, k)
    sch[z].unroll(k)
    with pytest.raises(ScheduleError, match="tensorize of axis k, which is already unrolled"):
        sch[z].tensorize(inner, DOT)


def test_definitions_are_checked():
    a = te.placeholder((4,), name="a")
    b = te.compute((4,), lambda i: a[i] + 1.0, name="b")
    with pytest.raises(LoweringError, match="reads tensors that are not inputs"):
        define([], b)
    n = te.var("n")
    s = te.placeholder((n,), name="s")
    with pytest.raises(LoweringError, match="must be integers"):
        define([s], te.compute((n,), lambda i: s[i] + 1.0))
    with pytest.raises(RegistryError, match="registered twice"):
        te.instruction(DOT.name, [a], b, lambda *_: "")


@pytest.mark.parametrize("instruction", DOT_PRODUCTS, ids=lambda i: i.name)
def test_meanings_of_the_shipped_instructions(instruction):
    """Against NumPy on values at the ends of the types."""
    a, b = instruction.operands
    rng = np.random.default_rng(0)

    def draw(buffer):
        if not buffer.dtype.is_int:
            return rng.standard_normal(buffer.static_shape).astype(buffer.dtype.numpy)
        ends = np.iinfo(buffer.dtype.numpy)
        return rng.choice([ends.min, ends.max, 0, 1], buffer.static_shape).astype(
            buffer.dtype.numpy)

    x, y = draw(a), draw(b)
    kind = instruction.result.dtype.numpy
    start = np.arange(instruction.result.static_shape[0]).astype(kind)
    evaluate_call = INTRINSICS.get(instruction.name).evaluate
    assert evaluate_call is not None
    got = evaluate_call(start, x.ravel(), y.ravel())
    with np.errstate(over="ignore"):
        want = start + (x.astype(kind) * y.astype(kind)).sum(1, dtype=kind)
    np.testing.assert_allclose(got.astype(np.float64), want.astype(np.float64), rtol=1e-5)
