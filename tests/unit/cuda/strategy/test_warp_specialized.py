"""GEMM by TMA and wgmma: values in the emulator in every layout, and the code of large layers."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.cuda.strategy.emulation import check_emulated
from tests.unit.cuda.strategy.products import H100, assembled, built, instructions, spills
from tests.unit.cuda.strategy.test_gemm import dense, forced, matmul
from weft.ir.expr import Function
from weft.strategy.build_tensors import anchor_of
from weft.strategy.cuda.gemm.decide import decide_call
from weft.strategy.cuda.gemm.plan import GemmPlan
from weft.strategy.cuda.gemm.warp_specialized import WgmmaTile
from weft.target import CudaTarget

TILE = WgmmaTile(64, 3)


def half(*sizes: int, **how: object) -> Function:
    return matmul(*sizes, dtype="float16", **how)


@pytest.mark.parametrize(("function", "plan"), [
    (dense(136, 104, 200), GemmPlan(TILE)),
    (half(128, 64, 128), GemmPlan(TILE)),
    (half(128, 64, 128, transpose_a=True), GemmPlan(TILE)),
    (half(128, 128, 64, transpose_a=True, transpose_b=True), GemmPlan(WgmmaTile(128, 2))),
    (half(64, 72, 80, batch=(3,)), GemmPlan(TILE)),
    (dense(128, 64, 320, "bfloat16"), GemmPlan(TILE, splits=2)),
], ids=["tails", "nn", "tn", "tt", "batch", "split-k"])
def test_values_without_bank_conflicts(function, plan):
    for counts in check_emulated(function, forced(plan), target=H100, rtol=1e-2, atol=2e-2):
        assert counts is not None
        assert sum(memory.conflicts for memory in counts.memory) == 0


def test_a_large_layer_is_warp_specialised_without_spills(tmp_path: Path):
    function = dense(4096, 4096, 4096, "bfloat16")
    call = anchor_of(function)
    assert call is not None
    decision = decide_call(call, H100)
    assert decision is not None
    assert decision.algorithm == "wgmma"
    kernel = built(function, H100)
    found = instructions(kernel)
    columns = decision.plan.tile.bn
    assert found[f"wgmma.mma_async.sync.aligned.m64n{columns}k16.f32.bf16.bf16"] == 4
    assert found["setmaxnreg.inc.sync.aligned.u32"] == 1
    assert len(kernel.tensor_maps) == 2
    report = assembled(kernel, tmp_path)
    assert spills(report) == 0
    assert "C75" not in report  # the assembler serialises wgmma with a note of this kind


def test_other_targets_and_operands_keep_mma():
    call = anchor_of(dense(4096, 4096, 4096))
    odd = anchor_of(dense(4096, 4096, 4099))
    assert call is not None
    assert odd is not None
    for decision in (decide_call(call, CudaTarget("sm_90")), decide_call(odd, H100)):
        assert decision is not None
        assert "wgmma" in str(decision)
        assert decision.algorithm == "mma"
