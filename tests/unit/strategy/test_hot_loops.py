"""The hot loop of a GEMM on CPUs that are not at hand: multiply-adds, their operands, no spills."""

from __future__ import annotations

import pytest

from benchmarks.hot_loops import ARM, X86, HotLoop, gemm_assembly
from tests.unit.strategy.test_matmul_decision import dense
from weft.strategy.cpu.gemm.blocking import GemmPlan
from weft.strategy.cpu.gemm.decide import decide_matmul
from weft.target import CpuTarget

SHAPE = (40, 96, 64)
# The counter and the branch, and the address of each operand.
MAX_OTHERS = 8


@pytest.mark.parametrize("target", [
    f"{X86} -mcpu=haswell", f"{X86} -mcpu=sapphirerapids", f"{X86} -mcpu=znver5",
    f"{X86} -mcpu=x86-64-v3", f"{ARM} -mcpu=generic",
])
def test_an_iteration_is_one_step_of_the_register_tile(target: str) -> None:
    plan = decide_matmul(dense(*SHAPE), CpuTarget.parse(target)).plan
    assert isinstance(plan, GemmPlan)
    tile = plan.blocking.tile
    loop = HotLoop.of(gemm_assembly(target, *SHAPE))
    assert loop.fmas == tile.accumulators
    assert tile.nr_vectors < loop.loads <= tile.nr_vectors + tile.mr
    assert loop.stores == 0
    assert 1 <= loop.hints <= tile.nr_vectors
    assert loop.others <= MAX_OTHERS


X86_LOOP = """
.LBB0_1:
	movq	(%rsp), %rax
	jne	.LBB0_9
.LBB0_2:
	# a comment
	prefetcht1	64(%rax)
	vmovups	(%rax), %zmm1
	vbroadcastss	4(%rbx), %zmm2
	vfmadd231ps	%zmm1, %zmm2, %zmm3
	vfmadd231ps	(%rcx){1to16}, %zmm2, %zmm4
	vmovups	%zmm3, 64(%rsp)
	incq	%rdx
	jne	.LBB0_2
	jne	.LBB0_1
"""
ARM_LOOP = """
.LBB0_2:
	ldp	q0, q1, [x1]
	ldr	s2, [x2]
	fmla	v3.4s, v0.4s, v2.s[0]
	str	q3, [sp, #16]
	prfm	pldl2keep, [x1]
	b.ne	.LBB0_2
"""


@pytest.mark.parametrize(("text", "counts"), [(X86_LOOP, (2, 3, 1, 1)), (ARM_LOOP, (1, 3, 1, 1))])
def test_what_is_counted(text: str, counts: tuple[int, ...]) -> None:
    loop = HotLoop.of(text)
    assert (loop.fmas, loop.loads, loop.hints, loop.stores) == counts
