"""Matrix multiplication with symbolic sizes: one kernel is right for every size."""

from __future__ import annotations

import functools
from collections.abc import Callable

import ml_dtypes
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.unit.codegen.conftest import Compiler
from tests.unit.strategy.kernels import WIDE_CPU, primitive
from weft import op
from weft.ir.dtype import DType
from weft.ir.expr import Call, Expr, Function, Var, const, var
from weft.ir.shape import Dim, SymDim
from weft.ir.typing.infer import infer_expr
from weft.op.nn.dense import WeightPanels
from weft.runtime.sizes import evaluate
from weft.strategy import LoweredKernel, lower_function
from weft.strategy.cpu.dot_product.instruction import select_dot_instruction
from weft.strategy.cpu.gemm.blocking import GemmLoops, GemmPlan
from weft.strategy.cpu.gemm.decide import MatmulAlgorithm, decide_matmul
from weft.strategy.selection import implementations
from weft.strategy.variants import variants_that_pay
from weft.target import CpuTarget
from weft.topi.layout import Layout, transform_array

N, K = 100, 70
Runs = Callable[..., np.ndarray]
SIZES = st.integers(0, 40)


def shape(text: str) -> tuple[Dim, ...]:
    """``"m 64"``: a symbol and a number."""
    return tuple(int(d) if d.isdigit() else SymDim.symbol(d) for d in text.split())


@functools.cache
def kernel(operator: str, a: str, b: str, dtype: str = "float32", fused: bool = False,
           **attrs: object) -> Runs:
    """The kernel of one matmul, as a function of ``(sizes, a, b, result)``."""
    left, right = var("a", shape(a), dtype), var("b", shape(b), dtype)
    call: Expr = getattr(op.nn, operator)(left, right, **attrs)
    params: list[Var] = [left, right]
    if fused:
        bias = var("bias", (N,), dtype)
        params.append(bias)
        call = op.nn.relu(op.add(call, bias))
    return compiled(lower_function(primitive(params, call), CpuTarget.host()))


def compiled(lowered: LoweredKernel) -> Runs:
    made = Compiler().compile(lowered.func)

    def run(sizes: dict[str, int], *arrays: np.ndarray) -> np.ndarray:
        made(*arrays, *(evaluate(size, sizes) for size in lowered.sizes))
        return arrays[-1]

    return run


def numbers(*size: int, dtype: str = "float32") -> np.ndarray:
    return np.random.default_rng(len(size)).uniform(-1, 1, size).astype(dtype)


def packed(weight: np.ndarray, layout: str) -> np.ndarray:
    padding = -weight.shape[0] % Layout.parse(layout).factor_of("N")
    padded = np.pad(weight, ((0, padding), (0, 0)))
    return np.ascontiguousarray(transform_array(padded, Layout.parse("NK"), Layout.parse(layout)))


WEIGHT = numbers(N, K)


@pytest.mark.parametrize("layout", ["NK48n", "NK16n", "NK100n"])
@settings(max_examples=25, deadline=None)
@given(m=SIZES)
@example(m=0)
@example(m=1)
def test_a_packed_weight_serves_every_m(layout: str, m: int) -> None:
    b = packed(WEIGHT, layout)
    run = kernel("dense", f"m {K}", " ".join(map(str, b.shape)), weight_layout=layout, units=N)
    a, found = numbers(m, K), np.full((m, N), np.nan, np.float32)
    np.testing.assert_allclose(run({"m": m}, a, b, found), a @ WEIGHT.T, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("m", "sizes"), [
    ("m{1..3}", range(1, 4)), ("m{0..32}", range(33)), ("m{8..%8}", range(8, 41, 8)),
    ("m{9..}", range(9, 31))])
def test_a_range_of_m_reads_the_same_weight(m: str, sizes: range) -> None:
    b = packed(WEIGHT, "NK48n")
    run = kernel("dense", f"{m} {K}", " ".join(map(str, b.shape)), weight_layout="NK48n", units=N)
    for size in sizes:
        a, found = numbers(size, K), np.full((size, N), np.nan, np.float32)
        np.testing.assert_allclose(run({"m": size}, a, b, found), a @ WEIGHT.T, rtol=1e-4,
                                   atol=1e-4)


@settings(max_examples=25, deadline=None)
@given(batch=st.integers(0, 5), seq=st.integers(0, 11))
def test_batch_and_length_together_are_m(batch: int, seq: int) -> None:
    b = packed(WEIGHT, "NK32n")
    run = kernel("dense", f"batch seq {K}", " ".join(map(str, b.shape)), weight_layout="NK32n",
                 units=N, fused=True)
    a, bias = numbers(batch, seq, K), numbers(N)
    found = np.full((batch, seq, N), np.nan, np.float32)
    expected = np.maximum(a @ WEIGHT.T + bias, 0)
    run({"batch": batch, "seq": seq}, a, b, bias, found)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("transpose_a", [False, True])
@pytest.mark.parametrize("transpose_b", [False, True])
@settings(max_examples=25, deadline=None)
@given(m=SIZES, n=st.integers(0, 150), k=SIZES)
def test_all_sizes_of_two_matrices(
    transpose_a: bool, transpose_b: bool, m: int, n: int, k: int
) -> None:
    run = kernel("matmul", "k m" if transpose_a else "m k", "n k" if transpose_b else "k n",
                 transpose_a=transpose_a, transpose_b=transpose_b)
    a, b, found = numbers(m, k), numbers(k, n), np.full((m, n), np.nan, np.float32)
    left = np.ascontiguousarray(a.T) if transpose_a else a
    right = np.ascontiguousarray(b.T) if transpose_b else b
    run({"m": m, "n": n, "k": k}, left, right, found)
    np.testing.assert_allclose(found, a @ b, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("b_shape", ["batch k 64", "1 k 64", "batch 64 k"])
@settings(max_examples=25, deadline=None)
@given(batch=st.integers(0, 4), m=SIZES, k=SIZES)
def test_stacks_with_a_symbolic_batch(b_shape: str, batch: int, m: int, k: int) -> None:
    transpose_b = b_shape.endswith("k")
    run = kernel("batch_matmul", "batch m k", b_shape, transpose_b=transpose_b)
    a = numbers(batch, m, k)
    b = numbers(*(1 if b_shape[0] == "1" else batch,), k, 64)
    right = np.ascontiguousarray(b.swapaxes(1, 2)) if transpose_b else b
    found = run({"batch": batch, "m": m, "k": k}, a, right,
                np.full((batch, m, 64), np.nan, np.float32))
    np.testing.assert_allclose(found, a @ b, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("transpose_b", [False, True])
@settings(max_examples=15, deadline=None)
@given(batch=st.integers(0, 3), m=SIZES, k=SIZES)
def test_narrow_floats_are_summed_in_float32(
    transpose_b: bool, batch: int, m: int, k: int
) -> None:
    run = kernel("batch_matmul", "batch m k", "batch 64 k" if transpose_b else "batch k 64",
                 "float16", transpose_b=transpose_b)
    a, b = numbers(batch, m, k, dtype="float16"), numbers(batch, k, 64, dtype="float16")
    right = np.ascontiguousarray(b.swapaxes(1, 2)) if transpose_b else b
    found = run({"batch": batch, "m": m, "k": k}, a, right,
                np.full((batch, m, 64), np.nan, np.float16))
    np.testing.assert_allclose(found, a.astype(np.float32) @ b.astype(np.float32), rtol=2e-3,
                               atol=2e-3)


@settings(max_examples=15, deadline=None)
@given(m=SIZES)
def test_narrow_floats_over_a_packed_weight(m: int) -> None:
    weight = WEIGHT.astype(np.float16)
    b = packed(weight, "NK48n")
    run = kernel("dense", f"m {K}", " ".join(map(str, b.shape)), "float16",
                 weight_layout="NK48n", units=N)
    a, found = numbers(m, K, dtype="float16"), np.full((m, N), np.nan, np.float16)
    np.testing.assert_allclose(
        run({"m": m}, a, b, found), a.astype(np.float32) @ weight.T.astype(np.float32),
        rtol=2e-3, atol=5e-3)


DOT_PAIRS = [("uint8", "int8", "int32"), ("int8", "int8", "int32"),
             ("bfloat16", "bfloat16", "float32")]


def draw(dtype: str, *size: int) -> np.ndarray:
    rng = np.random.default_rng(1)
    if dtype == "bfloat16":
        return rng.standard_normal(size).astype(ml_dtypes.bfloat16)
    ends = np.iinfo(dtype)
    return rng.integers(ends.min, ends.max, size, endpoint=True).astype(dtype)


def wide(x: np.ndarray) -> np.ndarray:
    return x.astype(np.float64 if x.dtype == ml_dtypes.bfloat16 else np.int64)


@functools.cache
def by_dot_product(pair: tuple[str, str, str], a: str, b: str, **attrs: object) -> Runs:
    left, right = var("a", shape(a), pair[0]), var("b", shape(b), pair[1])
    name = "dense" if "weight_layout" in attrs else "matmul"
    function = primitive([left, right],
                         getattr(op.nn, name)(left, right, out_dtype=pair[2], **attrs))
    assert isinstance(function.body, Call)
    instruction = select_dot_instruction(DType.of(pair[0]), DType.of(pair[1]), CpuTarget.host())
    if instruction is None:
        pytest.skip("the CPU lacks the instruction")
    (found,) = (each for each in implementations(function.body, CpuTarget.host())
                if each.name.endswith(f".{instruction.instruction.name}"))
    return compiled(lower_function(function, CpuTarget.host(), implementation=found))


@pytest.mark.parametrize("pair", DOT_PAIRS, ids=str)
@settings(max_examples=25, deadline=None)
@given(m=SIZES)
def test_dot_products_over_a_packed_weight(pair: tuple[str, str, str], m: int) -> None:
    group = 4 if pair[1] == "int8" else 2
    layout = f"NK32n{group}k"
    weight = draw(pair[1], N, K)
    padded = np.pad(weight, ((0, -N % 32), (0, -K % group)))
    b = np.ascontiguousarray(
        transform_array(padded, Layout.parse("NK"), Layout.parse(layout)))
    run = by_dot_product(pair, f"m {K}", " ".join(map(str, b.shape)), weight_layout=layout,
                         units=N)
    a, found = draw(pair[0], m, K), np.zeros((m, N), pair[2])
    want = wide(a) @ wide(weight).T
    np.testing.assert_allclose(run({"m": m}, a, b, found), want, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("pair", DOT_PAIRS, ids=str)
@settings(max_examples=25, deadline=None)
@given(m=SIZES, n=SIZES, k=st.integers(0, 150))
def test_dot_products_of_two_matrices(
    pair: tuple[str, str, str], m: int, n: int, k: int
) -> None:
    run = by_dot_product(pair, "m k", "k n")
    a, b, found = draw(pair[0], m, k), draw(pair[1], k, n), np.zeros((m, n), pair[2])
    want = wide(a) @ wide(b)
    np.testing.assert_allclose(run({"m": m, "n": n, "k": k}, a, b, found), want, rtol=1e-3,
                               atol=1e-3)


def dense_call(m: str, n: int = 768, k: int = 768) -> Call:
    """A dense layer with a constant weight, typed."""
    x = var("x", (*shape(m), k), "float32")
    call = infer_expr(op.nn.dense(x, const(np.zeros((n, k), np.float32))))
    assert isinstance(call, Call)
    return call


def test_the_decision_names_the_size_that_it_assumes() -> None:
    decision = decide_matmul(dense_call("m"), WIDE_CPU)
    assert decision.algorithm is MatmulAlgorithm.PREPACKED_GEMM
    assert "assumes M = 64" in decision.chosen.summary
    assert "assumes M = 16" in decide_matmul(dense_call("m{1..16}"), WIDE_CPU).chosen.summary


@pytest.mark.parametrize("m", ["1", "m{1..16}", "37", "m{8..%8}", "batch seq"])
def test_one_packed_weight_serves_variants(m: str) -> None:
    general = decide_matmul(dense_call("m"), WIDE_CPU).plan
    assert isinstance(general, GemmPlan)
    assert isinstance(general.panels, WeightPanels)
    panels = general.panels
    x = var("x", (*shape(m), 768), "float32")
    w = var("w", (-(-768 // panels.nr), 768, panels.nr), "float32")
    call = infer_expr(op.nn.dense(x, w, weight_layout=panels.layout, units=768))
    assert isinstance(call, Call)
    plan = decide_matmul(call, WIDE_CPU).plan
    assert isinstance(plan, GemmPlan)
    assert plan.panels == panels


def test_no_task_has_a_part_of_k_or_many_rows_of_one_m() -> None:
    """Split-K would make the result depend on M, blocks of rows would leave tasks without work."""
    for k, n in ((64, 64), (8192, 16), (8192, 4096)):
        plan = decide_matmul(dense_call("m", n, k), WIDE_CPU).plan
        assert isinstance(plan, GemmPlan)
        assert plan.loops in (GemmLoops.TILES, GemmLoops.B_PANELS)
        assert plan.blocking.mc is None
        assert plan.blocking.kc is None


def ranges(function: Function) -> dict[str, str]:
    """The size that each variant bounds, by the range."""
    return {str(condition.sizes): str(condition.size)
            for condition, in variants_that_pay(function, WIDE_CPU)}


def matmul_function(a: str, b: str, **attrs: object) -> Function:
    left, right = var("a", shape(a), "float32"), var("b", shape(b), "float32")
    return primitive([left, right], op.nn.matmul(left, right, **attrs))


def test_few_rows_deserve_a_kernel_where_b_is_packed_at_run_time() -> None:
    assert ranges(matmul_function("m 512", "512 1000")) == {"1..8": "m"}
    assert ranges(matmul_function("m{2..} 512", "512 1000")) == {"2..8": "m{2..}"}
    assert "1..1" in ranges(matmul_function("m 256", "1024 256", transpose_b=True))


def test_a_packed_weight_needs_no_variants() -> None:
    x, w = var("x", shape("m 768"), "float32"), var("w", (16, 768, 48), "float32")
    assert not ranges(primitive([x, w], op.nn.dense(x, w, weight_layout="NK48n", units=768)))


@pytest.mark.parametrize(("rows", "expected"), [
    ("m", {"1..1": "m"}), ("batch 1", {"1..1": "batch"}), ("batch seq", {"1..1": "batch*seq"})])
def test_one_row_of_signed_bytes_sums_the_columns_in_registers(
    rows: str, expected: dict[str, str]
) -> None:
    x, w = var("x", shape(f"{rows} 768"), "int8"), var("w", (48, 192, 64, 4), "int8")
    assert ranges(primitive([x, w], op.nn.dense(
        x, w, weight_layout="NK64n4k", units=3072, out_dtype="int32"))) == expected
