"""The decision for a matmul: which algorithm, why not the others, and that all stages read it."""

from __future__ import annotations

import math

import numpy as np
import pytest

import weft
from tests.unit.strategy.kernels import SMALL_CPU, WIDE_CPU, primitive
from weft import op
from weft.ir.expr import Call, Expr, Function, const, var
from weft.ir.module import IRModule
from weft.ir.typing.infer import infer_type
from weft.op.nn.dense import DenseAttrs, WeightPanels
from weft.strategy.cpu.dot_product.cost import DotProductPlan
from weft.strategy.cpu.gemm.blocking import GemmLoops, GemmPlan
from weft.strategy.cpu.gemm.decide import MatmulAlgorithm, MatmulDecision, decide_matmul
from weft.strategy.decision import decision_of
from weft.strategy.selection import implementations
from weft.target import CpuTarget
from weft.topi.layout import Layout


def typed(params: list, body: Expr) -> Call:
    """The call of a program of one call, with its types."""
    mod = infer_type(IRModule.from_expr(Function(tuple(params), body)))
    function = mod["main"]
    assert isinstance(function, Function)
    assert isinstance(function.body, Call)
    return function.body


def matmul(m: int, n: int, k: int, dtype: str = "float32", *, transpose_b: bool = False,
           **attrs: object) -> Call:
    a, b = var("a", (m, k), dtype), var("b", (n, k) if transpose_b else (k, n), dtype)
    return typed([a, b], op.nn.matmul(a, b, transpose_b=transpose_b, **attrs))


def dense(m: int, n: int, k: int, dtype: str = "float32", **attrs: object) -> Call:
    """A dense layer with a constant weight."""
    x = var("x", (m, k), dtype)
    weight = const(np.ones((n, k), np.dtype(dtype)))
    return typed([x], op.nn.dense(x, weight, **attrs))


def reasons(decision: MatmulDecision) -> dict[str, str]:
    return {each.algorithm: each.reason for each in decision.rejected}


def test_a_constant_weight_is_packed_at_compile_time():
    decision = decide_matmul(dense(64, 100, 256), WIDE_CPU)
    assert decision.algorithm is MatmulAlgorithm.PREPACKED_GEMM
    assert isinstance(decision.plan, GemmPlan)
    assert decision.plan.panels == WeightPanels(decision.plan.blocking.nr)
    assert "packed when the program is compiled" in reasons(decision)[MatmulAlgorithm.GENERIC]


def test_bytes_take_the_dot_product_instruction():
    decision = decide_matmul(dense(64, 100, 256, "int8", out_dtype="int32"), WIDE_CPU)
    assert decision.algorithm is MatmulAlgorithm.PREPACKED_DOT_PRODUCT
    assert isinstance(decision.plan, DotProductPlan)
    assert decision.plan.panels is not None
    assert decision.plan.panels.k_group == 4


@pytest.mark.parametrize(("dtype", "target", "words"), [
    ("float32", WIDE_CPU, "no instruction multiplies float32 by float32"),
    ("bfloat16", SMALL_CPU, "the CPU lacks avx512bf16"),
])
def test_why_no_dot_product(dtype, target, words):
    decision = decide_matmul(matmul(64, 64, 64, dtype, out_dtype="float32"), target)
    assert words in reasons(decision)[MatmulAlgorithm.DOT_PRODUCT]


def test_why_no_prepacked_dot_product():
    """vpmaddwd takes signed 16-bit numbers: packing at compile time would have to widen bytes."""
    decision = decide_matmul(dense(64, 64, 64, "uint8", out_dtype="int32"), SMALL_CPU)
    assert "weight of uint8" in reasons(decision)[MatmulAlgorithm.PREPACKED_DOT_PRODUCT]


@pytest.mark.parametrize(("call", "algorithm", "words"), [
    (matmul(64, 2, 64), MatmulAlgorithm.GEMM, "2 columns fill no register tile"),
    (matmul(2, 64, 64, transpose_b=True), MatmulAlgorithm.GEMM, "packing the transposed B"),
    (matmul(64, 64, 64), MatmulAlgorithm.PREPACKED_GEMM, "run-time argument"),
    (matmul(64, 64, 64, "uint8"), MatmulAlgorithm.GEMM, "accumulate uint8 in uint8"),
    (matmul(64, 0, 64), MatmulAlgorithm.GEMM, "a size is 0"),
])
def test_why_not(call, algorithm, words):
    assert words in reasons(decide_matmul(call, WIDE_CPU))[algorithm]


def test_losing_candidates_have_estimates():
    decision = decide_matmul(matmul(64, 64, 64), WIDE_CPU)
    (generic,) = (r for r in decision.rejected if r.algorithm == MatmulAlgorithm.GENERIC)
    assert decision.algorithm is MatmulAlgorithm.GEMM
    assert generic.seconds is not None
    assert 0 < decision.seconds < generic.seconds < math.inf
    assert "times as long" in generic.reason


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8"])
@pytest.mark.parametrize("n", [100, 128, 1, 7])
def test_the_packed_call_shares_the_decision_that_packed_it(dtype, n):
    """The layout pass and the strategy read one object."""
    out = {"float32": "float32", "bfloat16": "float32", "int8": "int32"}[dtype]
    call = dense(12, n, 40, dtype, out_dtype=out)
    decision = decide_matmul(call, WIDE_CPU)
    panels = decision.plan.panels if decision.plan is not None else None
    if panels is None:
        assert (dtype, n) == ("float32", 1)
        return
    x = var("x", (12, 40), dtype)
    shape = tuple(-(-size // factor) for size, factor in ((n, panels.nr), (40, panels.k_group)))
    inner = (panels.nr,) if panels.k_group == 1 else (panels.nr, panels.k_group)
    w = var("w", (*shape, *inner), dtype)
    packed = typed([x, w], op.nn.dense(x, w, units=n, weight_layout=panels.layout, out_dtype=out))
    assert decide_matmul(packed, WIDE_CPU) is decision
    assert decision_of(packed, WIDE_CPU) is decision
    chosen = min(implementations(packed, WIDE_CPU), key=lambda one: one.seconds or 0.0)
    assert chosen.seconds == decision.seconds


def test_the_layout_pass_packs_as_decided():
    call = dense(64, 100, 256)
    plan = decide_matmul(call, CpuTarget.host()).plan
    assert plan is not None
    assert plan.panels is not None
    x = var("x", (64, 256))
    model = weft.compile(Function((x,), op.nn.dense(x, const(np.ones((100, 256), np.float32)))))
    assert f'weight_layout="{plan.panels.layout}"' in model.as_text("optimized")


def test_a_weight_packed_for_another_m_is_read_in_its_panels():
    """The number of rows may be known at run time only: then panels are those of a typical one."""
    for rows in (1, 5, 300):
        x, w = var("x", (rows, 64)), var("w", (3, 64, 48))
        call = typed([x, w], op.nn.dense(x, w, weight_layout="NK48n"))
        plan = decide_matmul(call, WIDE_CPU).plan
        assert isinstance(plan, GemmPlan)
        assert plan.panels == WeightPanels(48)
        assert plan.blocking.nr % 48 == 0


def test_packing_a_large_b_for_one_row_does_not_pay():
    """Measured on a Zen 5 core: packing B for vpdpbusd took 14 times as long as the sums."""
    a, b = var("a", (1, 2048), "uint8"), var("b", (2048, 2048), "int8")
    call = typed([a, b], op.nn.matmul(a, b, transpose_b=True, out_dtype="int32"))
    assert decide_matmul(call, WIDE_CPU).algorithm is MatmulAlgorithm.GENERIC
    rows = var("a", (256, 2048), "uint8")
    call = typed([rows, b], op.nn.matmul(rows, b, transpose_b=True, out_dtype="int32"))
    assert decide_matmul(call, WIDE_CPU).algorithm is MatmulAlgorithm.DOT_PRODUCT


@pytest.mark.parametrize(("m", "n", "k", "loops"), [
    (2, 20, 12_000, GemmLoops.SPLIT_K), (512, 1024, 65_536, GemmLoops.K_BLOCKS),
    (128, 1000, 512, GemmLoops.B_PANELS), (256, 128, 64, GemmLoops.TILES),
])
def test_the_loops_of_a_gemm(m, n, k, loops):
    plan = decide_matmul(matmul(m, n, k), WIDE_CPU).plan
    assert isinstance(plan, GemmPlan)
    assert plan.loops is loops


def test_the_plan_is_printed():
    text = str(decide_matmul(matmul(512, 1024, 65_536), WIDE_CPU))
    first = text.splitlines()[0]
    assert first.startswith("gemm (mr ")
    assert "kc " in first
    assert "packs B, a task per K-blocked B panel), estimated" in first
    bytes_ = str(decide_matmul(dense(64, 100, 256, "int8", out_dtype="int32"), WIDE_CPU))
    assert bytes_.startswith("prepacked_dot_product (vpdpbusd_512")
    assert "weight NK16n4k" in bytes_


def test_other_ranks_run_by_the_generic_algorithm():
    a, b = var("a", (5,)), var("b", (5, 4))
    decision = decide_matmul(typed([a, b], op.nn.matmul(a, b)), WIDE_CPU)
    assert decision.algorithm is MatmulAlgorithm.GENERIC
    assert decision.seconds > 0


@pytest.mark.parametrize(("layout", "panels"), [
    ("NK16n", WeightPanels(16)), ("NK64n4k", WeightPanels(64, 4)), ("NK", None), ("KN", None),
    ("NK4k", None),
])
def test_panels_of_a_layout(layout, panels):
    assert DenseAttrs(weight_layout=layout).panels == panels
    assert WeightPanels.of(Layout.parse(layout)) == panels
    assert panels is None or panels.layout == layout


def test_a_kernel_is_scheduled_as_decided():
    x, w = var("x", (9, 20)), var("w", (33, 20))
    function = primitive([x, w], op.nn.dense(x, w))
    assert isinstance(function.body, Call)
    decision = decide_matmul(function.body, WIDE_CPU)
    assert weft.strategy.lower_function(function, WIDE_CPU).implementation == (
        f"nn.dense.cpu.{decision.algorithm}")


@pytest.mark.parametrize(("m", "prefetches"), [(1, False), (6, False), (40, True), (500, True)])
def test_several_tiles_of_rows_prefetch_the_next_panel_of_a_weight(m, prefetches):
    plan = decide_matmul(dense(m, 256, 320), WIDE_CPU).plan
    assert isinstance(plan, GemmPlan)
    assert plan.prefetches is prefetches
    assert plan.prefetches == (plan.blocking.mr < m)
    assert ("prefetches the next panel" in str(plan)) is prefetches


def test_a_block_of_k_prefetches_the_next_one() -> None:
    target = CpuTarget.parse(f"{SMALL_CPU} -l2=262144")
    x = var("x", (64, 3072))
    weight = np.random.default_rng(0).uniform(-1, 1, (48, 3072)).astype(np.float32)
    mod = weft.compile(Function((x,), op.nn.dense(x, const(weight))), target=target)
    plan = decide_matmul(dense(64, 48, 3072), target).plan
    assert isinstance(plan, GemmPlan)
    assert plan.loops is GemmLoops.K_BLOCKS
    text = mod.as_text("tir")
    assert text.count("prefetch_l2(p1[") == 1
    assert f"+ {plan.blocking.kc * plan.blocking.nr}])" in text
