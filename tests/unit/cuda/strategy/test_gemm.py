"""GEMM on CUDA: decisions, values of register tiles, and the code of tensor-core kernels."""

from __future__ import annotations

import functools
from pathlib import Path

import pytest

from tests.unit.cuda.strategy.emulation import check_emulated
from tests.unit.cuda.strategy.products import (
    A100,
    H100,
    assembled,
    built,
    check_values,
    instructions,
    spills,
)
from tests.unit.strategy.kernels import primitive
from weft import op
from weft.ir.expr import Function, var
from weft.strategy.build_tensors import anchor_of
from weft.strategy.cuda.gemm.decide import decide_call
from weft.strategy.cuda.gemm.plan import DotTile, GemmPlan
from weft.strategy.cuda.gemm.simt import SimtTile
from weft.strategy.cuda.gemm.strategy import schedule_gemm
from weft.strategy.cuda.gemm.tensor_core import MmaTile
from weft.strategy.implementation import Implementation
from weft.target import CudaTarget, Target

SMALL = SimtTile(1, 1, 4, 4)


def forced(plan: GemmPlan) -> Implementation:
    return Implementation("forced", functools.partial(schedule_gemm, plan=plan))


def dense(m: int, n: int, k: int, dtype: str = "float16") -> Function:
    """A dense layer with bias and activation."""
    x, w, b = var("x", (m, k), dtype), var("w", (n, k), dtype), var("b", (n,), dtype)
    return primitive([x, w, b], op.nn.relu(op.add(op.nn.dense(x, w), b)))


def matmul(m: int, n: int, k: int, dtype: str = "float32", *, batch: tuple[int, ...] = (),
           transpose_a: bool = False, transpose_b: bool = False) -> Function:
    a = var("a", (*batch, *((k, m) if transpose_a else (m, k))), dtype)
    b = var("b", (*batch, *((n, k) if transpose_b else (k, n))), dtype)
    return primitive([a, b], op.nn.matmul(a, b, transpose_a=transpose_a, transpose_b=transpose_b))


@pytest.mark.parametrize(("m", "n", "k"), [(16, 32, 16), (17, 33, 9), (3, 5, 1), (1, 32, 24)])
def test_register_tiles_compute_matrices_of_any_size(m, n, k):
    check_values(dense(m, n, k, "float32"), forced(GemmPlan(SMALL)))


@pytest.mark.parametrize("transpose_a", [False, True])
@pytest.mark.parametrize("transpose_b", [False, True])
def test_operands_of_any_layout_and_batches(transpose_a, transpose_b):
    function = matmul(12, 20, 10, batch=(2,), transpose_a=transpose_a, transpose_b=transpose_b)
    check_values(function, forced(GemmPlan(SMALL)))


def test_shares_of_k_are_added_in_order():
    function = dense(5, 36, 60, "float32")
    check_emulated(function, forced(GemmPlan(SMALL, splits=3)))
    assert len(built(function, implementation=forced(GemmPlan(SMALL, splits=3))).launches) == 2


def test_several_results_and_residuals_are_computed_on_the_sums():
    x, w, r = (var(name, shape, "float32")
               for name, shape in (("x", (6, 8)), ("w", (10, 8)), ("r", (6, 10))))
    y = op.add(op.nn.dense(x, w), r)
    function = primitive([x, w, r], op.nn.relu(y))
    check_values(function, forced(GemmPlan(SMALL)))
    assert len(built(function, implementation=forced(GemmPlan(SMALL))).launches) == 1


@pytest.mark.parametrize("dtype", ["float64", "int32"])
def test_other_types_of_sums(dtype):
    check_values(matmul(8, 12, 8, dtype), forced(GemmPlan(SMALL)))


@pytest.mark.parametrize(("dtype", "product"), [
    ("float16", "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"),
    ("bfloat16", "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32"),
])
def test_a_large_dense_layer_runs_on_tensor_cores_without_spills(dtype, product, tmp_path: Path):
    for target in (A100, CudaTarget("sm_90")) if dtype == "float16" else (A100,):
        kernel = built(dense(4096, 4096, 4096, dtype), target)
        found = instructions(kernel)
        assert found[product] >= 32
        assert found["cp.async.cg.shared.global"] > 0
        assert found["ldmatrix.sync.aligned.m8n8.x4.shared.b16"] > 0
        assert not [name for name in found if name.startswith("ld.global.nc.b16")]
        assert spills(assembled(kernel, tmp_path)) == 0


def test_float32_uses_tensor_cores_only_where_the_user_allows_it():
    function = dense(1024, 1024, 1024, "float32")
    anchor = anchor_of(function)
    assert anchor is not None
    exact = decide_call(anchor, H100)
    rounded = decide_call(anchor, Target.of("cuda -arch=sm_90a -allow_tf32=1"))
    assert exact is not None
    assert rounded is not None
    assert (exact.algorithm, rounded.algorithm) == ("simt", "mma")
    assert "allow_tf32" in str(exact)


def test_register_tiles_use_wide_accesses_and_no_spills(tmp_path: Path):
    tile = SimtTile(4, 2, 8, 8)
    kernel = built(matmul(512, 512, 512), A100, forced(GemmPlan(tile)))
    found = instructions(kernel)
    assert found["ld.global.nc.v4.b32"] == 4  # two tiles, the first one and the loop's
    assert found["ld.shared.v4.b32"] == 8 * 4
    assert found["fma.rn.f32"] == 8 * 64
    assert spills(assembled(kernel, tmp_path)) == 0


def test_bytes_are_multiplied_by_tensor_cores(tmp_path: Path):
    x, w = var("x", (256, 256), "int8"), var("w", (256, 256), "int8")
    function = primitive([x, w], op.nn.dense(x, w, out_dtype="int32"))
    kernel = built(function, A100, forced(GemmPlan(MmaTile(2, 2, 64, 64))))
    assert instructions(kernel)["mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32"] == 64
    assembled(kernel, tmp_path)


def test_one_row_is_a_warp_per_column():
    anchor = anchor_of(dense(1, 4096, 4096))
    assert anchor is not None
    decision = decide_call(anchor, CudaTarget("sm_90a"))
    assert decision is not None
    assert decision.algorithm == "gemv"
    found = instructions(built(dense(1, 4096, 4096), H100))
    assert found["ld.global.nc.v4.b32"] >= 2
    assert found["shfl.sync.bfly.b32"] == 5


def test_sums_that_are_rearranged_go_through_memory():
    """What follows the product needs whole rows of it."""
    x, w = var("x", (6, 16), "float32"), var("w", (12, 16), "float32")
    function = primitive([x, w], op.nn.softmax(op.nn.dense(x, w)))
    check_emulated(function, forced(GemmPlan(SMALL)))
    kernel = built(function, implementation=forced(GemmPlan(SMALL)))
    assert len(kernel.launches) > 1


def test_narrow_elements_are_converted_on_their_way_to_shared_memory():
    check_emulated(matmul(33, 40, 20, "float16"), forced(GemmPlan(SMALL)), rtol=5e-3)
    found = instructions(built(matmul(64, 64, 64, "float16"), A100, forced(GemmPlan(SMALL))))
    assert found["ld.global.nc.v2.b32"] > 0


def test_bytes_are_multiplied_by_a_tensorized_instruction():
    """A schedule of te primitives alone."""
    x, w = var("x", (64, 128), "int8"), var("w", (128, 128), "int8")
    function = primitive([x, w], op.nn.relu(op.nn.dense(x, w, out_dtype="int32")))
    plan = forced(GemmPlan(DotTile()))
    check_emulated(function, plan, rtol=0)
    assert instructions(built(function, implementation=plan))["dp4a.s32.s32"] == 4 * 4
