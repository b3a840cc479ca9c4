"""Random expression trees and scheduled tensor expressions: machine code beside the evaluator."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.codegen.conftest import Compiler, assert_same_bits
from tests.unit.codegen.programs import elementwise, numbers, output_like
from weft import te
from weft.codegen.llvm.build import emit_optimized_llvm
from weft.ir.dtype import DType
from weft.te.schedule import Schedule
from weft.tir import expr as x
from weft.tir.expr import PrimExpr
from weft.tir.intrinsics import intrinsic
from weft.tir.transform.pipeline import lower_prim_func

INT_NODES = (x.Add, x.Sub, x.Mul, x.Min, x.Max)
LITERAL_NODES = (x.FloorDiv, x.FloorMod, x.Div)
COMPARISONS = (x.EQ, x.NE, x.LT, x.LE, x.GT, x.GE)
DTYPES = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
Tree = tuple


def trees(depth: int) -> st.SearchStrategy[Tree]:
    leaf = st.tuples(st.just("input"), st.integers(0, 1), st.sampled_from(DTYPES))
    leaf |= st.tuples(st.just("number"), st.integers(-5, 9), st.sampled_from(DTYPES))
    if depth == 0:
        return leaf
    below = trees(depth - 1)
    return (
        leaf
        | st.tuples(st.just("binary"), st.sampled_from(INT_NODES), below, below)
        | st.tuples(st.just("divide"), st.sampled_from(LITERAL_NODES), below, st.integers(1, 9))
        | st.tuples(st.just("select"), st.sampled_from(COMPARISONS), below, below, below, below)
        | st.tuples(st.just("cast"), st.sampled_from(DTYPES), below)
        | st.tuples(st.just("invert"), below)
    )


def spread(number: int, dtype: DType) -> PrimExpr:
    """A number wrapped to ``dtype``, in every lane."""
    kind = dtype.element.numpy
    wrapped = int(np.int64(number).astype(kind))
    literal = x.IntImm(wrapped, dtype.element)
    return literal if dtype.lanes == 1 else x.Broadcast(literal, dtype.lanes)


def build(tree: Tree, inputs: tuple[PrimExpr, ...]) -> PrimExpr:
    lanes = inputs[0].dtype.lanes
    match tree:
        case ("input", index, dtype):
            return inputs[index].astype(DType.of(dtype).vector(lanes))
        case ("number", value, dtype):
            return spread(value, DType.of(dtype).vector(lanes))
        case ("binary", node, a, b):
            left = build(a, inputs)
            return node(left, build(b, inputs).astype(left.dtype))
        case ("divide", node, a, divisor):
            left = build(a, inputs)
            return node(left, spread(divisor, left.dtype))
        case ("select", node, a, b, t, f):
            left, true = build(a, inputs), build(t, inputs)
            condition = node(left, build(b, inputs).astype(left.dtype))
            return x.select(condition, true, build(f, inputs).astype(true.dtype))
        case ("cast", dtype, a):
            return build(a, inputs).astype(DType.of(dtype).vector(lanes))
        case ("invert", a):
            return intrinsic("bitwise_not", build(a, inputs))
    raise AssertionError(tree)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(tree=trees(4), sources=st.tuples(st.sampled_from(DTYPES), st.sampled_from(DTYPES)),
       lanes=st.sampled_from([1, 3, 8, 16]))  # fmt: skip
def test_random_integer_expressions(
    compiler: Compiler, tree: Tree, sources: tuple[str, str], lanes: int
) -> None:
    result = "int64"
    func = elementwise(
        lambda *inputs: build(tree, inputs).astype(DType.of(result).vector(lanes)),
        list(sources), result, 2, lanes,
    )  # fmt: skip
    inputs = [numbers(dtype, 2 * lanes, seed) for seed, dtype in enumerate(sources)]
    compiler.check(func, inputs, [output_like(result, 2 * lanes)])


def check_schedule(
    compiler: Compiler, schedule: Schedule, tensors: list[te.Tensor], count: int
) -> None:
    """``count`` inputs, then outputs; the lowered function compiled and evaluated."""
    func = lower_prim_func(te.lower(schedule, tensors, "f"))
    rng = np.random.default_rng(0)
    arrays = [
        rng.integers(-4, 5, t.static_shape).astype(t.dtype.numpy) for t in tensors
    ]  # fmt: skip
    for found, expected in compiler.both(func, arrays[:count], arrays[count:]):
        assert_same_bits(found, expected, str(func))


@pytest.mark.parametrize("lanes", [3, 7, 12, 24, 40, 100, 1500])
def test_vectors_of_any_width(compiler: Compiler, lanes: int) -> None:
    a = te.placeholder((4, lanes), name="a")
    out = te.compute((4, lanes), lambda i, j: a[i, j] * 2.0 + a[i, 0], name="out")
    schedule = te.create_schedule([out])
    schedule[out].vectorize(out.op.axis[1])
    check_schedule(compiler, schedule, [a, out], 1)


@pytest.mark.parametrize("lanes", [8, 12, 24, 40])
def test_register_tiles_of_any_width(compiler: Compiler, lanes: int) -> None:
    """Every element of the tile is a register of a power of two lanes."""
    a, b = te.placeholder((6, 9), name="a"), te.placeholder((9, lanes), name="b")
    k = te.reduce_axis((0, 9), name="k")
    out = te.compute((6, lanes), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="out")
    schedule = te.create_schedule([out])
    tile = schedule.cache_write(out, "local")
    outer, inner = schedule[out].split(out.op.axis[0], factor=3)
    schedule[out].parallel(outer)
    schedule[out].unroll(inner)
    schedule[out].vectorize(out.op.axis[1])
    schedule[tile].compute_at(schedule[out], outer)
    i, j = tile.op.axis
    (kk,) = tile.op.reduce_axis
    schedule[tile].reorder(kk, i, j)
    schedule[tile].unroll(i)
    schedule[tile].vectorize(j)
    check_schedule(compiler, schedule, [a, b, out], 2)
    text = emit_optimized_llvm(lower_prim_func(te.lower(schedule, [a, b, out], "f")),
                               compiler.target)  # fmt: skip
    assert f"<{lanes} x float>" not in text or lanes == 8
    assert "alloca [" not in text


def test_padding_in_vectors_with_a_tail(compiler: Compiler) -> None:
    """Masked loads around the border, a split that does not divide, and a fused activation."""
    a = te.placeholder((7, 29), name="a")
    pad = te.compute(
        (9, 31),
        lambda i, j: te.if_then_else(
            te.all_of(i > 0, i < 8, j > 0, j < 30), a[i - 1, j - 1], te.const(0.0, "float32")
        ),
        name="pad",
    )
    out = te.compute((7, 29), lambda i, j: te.maximum(pad[i, j] + pad[i + 2, j + 2], 0.0))
    schedule = te.create_schedule([out])
    _, inner = schedule[out].split(out.op.axis[1], factor=8)
    schedule[out].vectorize(inner)
    schedule[out].parallel(out.op.axis[0])
    schedule[pad].vectorize(pad.op.axis[1])
    check_schedule(compiler, schedule, [a, out], 1)
