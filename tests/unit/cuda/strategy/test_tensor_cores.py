"""Products on tensor cores in the emulator: every layout and type, tails, and no bank conflicts."""

from __future__ import annotations

import pytest

from tests.unit.cuda.strategy.emulation import check_emulated
from tests.unit.cuda.strategy.test_gemm import dense, forced, matmul
from tests.unit.strategy.kernels import primitive
from weft import op
from weft.ir.expr import Function, var
from weft.strategy.cuda.gemm.gemv import GemvTile
from weft.strategy.cuda.gemm.plan import GemmPlan
from weft.strategy.cuda.gemm.tensor_core import MmaTile
from weft.target import CudaTarget

TILE = MmaTile(2, 2, 32, 32, stages=3)


def conflicts(function: Function, plan: GemmPlan, rtol: float) -> int:
    """Extra cycles of shared memory of a kernel whose values agree with the reference."""
    counts = check_emulated(function, forced(plan), rtol=rtol)
    return sum(memory.conflicts for one in counts if one is not None for memory in one.memory)


@pytest.mark.parametrize("transpose_a", [False, True])
@pytest.mark.parametrize("transpose_b", [False, True])
def test_operands_of_any_layout(transpose_a, transpose_b):
    function = matmul(64, 72, 96, "float16", transpose_a=transpose_a, transpose_b=transpose_b)
    assert conflicts(function, GemmPlan(TILE), 5e-3) == 0


@pytest.mark.sample(0.5)
@pytest.mark.parametrize(("function", "plan", "rtol"), [
    (dense(70, 90, 104), GemmPlan(TILE), 5e-3),
    (dense(33, 45, 37), GemmPlan(TILE), 5e-3),
    (dense(40, 48, 64, "bfloat16"), GemmPlan(MmaTile(1, 2, 32, 32)), 3e-2),
    (dense(64, 64, 256), GemmPlan(TILE, splits=2), 5e-3),
    (dense(16, 16, 64), GemmPlan(MmaTile(1, 1, 16, 16)), 5e-3),
    (dense(40, 48, 64, "float32"), GemmPlan(TILE), 2e-2),
    (dense(3, 62, 264), GemmPlan(GemvTile(3, 2, 8)), 5e-3),
], ids=["tails", "odd", "bfloat16", "split-k", "one warp", "tf32", "gemv"])
def test_tails_types_and_shares(function, plan, rtol):
    assert conflicts(function, plan, rtol) == 0


@pytest.mark.parametrize("transpose_b", [False, True])
def test_bytes(transpose_b):
    x, w = var("x", (40, 64), "int8"), var("w", (48, 64) if transpose_b else (64, 48), "int8")
    call = op.nn.matmul(x, w, transpose_b=transpose_b, out_dtype="int32")
    check_emulated(primitive([x, w], call), forced(GemmPlan(TILE)), rtol=0)


@pytest.mark.parametrize(("function", "plan"), [
    (dense(40, 48, 64, "bfloat16"), GemmPlan(TILE)),
    (dense(3, 62, 264), GemmPlan(GemvTile(3, 2, 8))),
], ids=["mma", "gemv"])
def test_libnvvm_agrees(function, plan):
    pytest.importorskip("nvidia", reason="libnvvm is not installed")
    check_emulated(function, forced(plan), target=CudaTarget("sm_80", codegen="nvvm"), rtol=3e-2)
