"""The blocking of a GEMM: register tiles, mc, kc, and when B is packed."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import weft
from tests.unit.strategy.kernels import SMALL_CPU, WIDE_CPU
from weft.ir.dtype import DType, float32, float64
from weft.strategy.cpu.common.register_tile import fits_registers
from weft.strategy.cpu.gemm.blocking import block_gemm, worth_packing_b
from weft.strategy.cpu.gemm.cost import GemmShape
from weft.target import Target

SIZES = st.integers(1, 5000)


@given(SIZES, SIZES, SIZES, st.sampled_from([SMALL_CPU, WIDE_CPU]),
       st.sampled_from([float32, float64]))
def test_plans_fit_the_machine(rows, columns, depth, target, dtype):
    plan = block_gemm(GemmShape(rows, columns, depth, dtype), target)
    assert fits_registers(plan.tile, target)
    assert 1 <= plan.tile.mr <= rows
    assert plan.nr < columns + plan.lanes or plan.tile.nr_vectors == 1
    assert plan.mr <= plan.mc < rows + plan.mr
    assert plan.mc % plan.mr == 0
    if plan.kc is not None:
        assert plan.kc * plan.nr * dtype.itemsize <= target.l2_bytes // 2


@pytest.mark.parametrize("size", [256, 384, 768, 1000, 1024, 1536, 2048])
@pytest.mark.parametrize("target", [SMALL_CPU, WIDE_CPU], ids=["avx2", "avx512"])
def test_large_gemms_are_bound_by_arithmetic(size, target):
    """Enough accumulators to hide the latency of an FMA, and no more loads than the ports take."""
    tile = block_gemm(GemmShape(size, size, size, float32), target).tile
    assert tile.accumulators >= 8
    assert tile.mr + tile.nr_vectors <= tile.accumulators


def test_few_rows_a_page_apart():
    """Rows that are a page apart share a set of L1."""
    cpu = dataclasses.replace(WIDE_CPU, l1_bytes=8 * 4096)  # eight ways
    page = block_gemm(GemmShape(448, 512, 1024, float32), cpu).tile
    other = block_gemm(GemmShape(448, 512, 1040, float32), cpu).tile
    assert page.mr <= 8 < other.mr or page.accumulators < other.accumulators


def test_k_is_blocked_if_a_panel_exceeds_l2():
    def kc(rows: int, depth: int) -> int | None:
        return block_gemm(GemmShape(rows, 1024, depth, float32), WIDE_CPU).kc

    assert kc(512, 1024) is None
    assert kc(512, 65536) is not None
    assert kc(4, 65536) is None  # a panel that is used once need not stay in L2


def test_a_b_in_l2_is_read_in_place():
    def packed(rows: int, columns: int, dtype: DType = float32) -> bool:
        size = GemmShape(rows, columns, 512, dtype)
        return worth_packing_b(size, block_gemm(size, WIDE_CPU), WIDE_CPU)

    assert not packed(256, 128)
    assert packed(512, 2048)
    assert not packed(8, 2048)
    assert packed(256, 100)  # packing pads the last vector


@pytest.mark.parametrize(("target", "packed"), [
    (SMALL_CPU, False), (WIDE_CPU, False),
    (Target.of("llvm -mtriple=aarch64-unknown-linux-gnu -mcpu=generic"), True),
])
def test_partial_vectors_of_few_rows_are_packed_without_masked_loads(target, packed):
    size = GemmShape(3, 101, 64, float32)
    assert worth_packing_b(size, block_gemm(size, target), target) == packed


def test_nr_is_a_multiple_of_the_panels_of_a_packed_weight():
    size = GemmShape(128, 768, 768, float32)
    assert block_gemm(size, WIDE_CPU, panel=32).nr % 32 == 0
    assert block_gemm(size, WIDE_CPU, panel=24).lanes == 24
    narrow = dataclasses.replace(size, n=10)
    assert block_gemm(narrow, WIDE_CPU).lanes == 16


@pytest.mark.parametrize(("inputs", "units"), [(2, 4), (64, 64), (65, 3)])
def test_a_vector_times_a_constant_weight(inputs: int, units: int) -> None:
    rng = np.random.default_rng(0)
    x, w = (rng.uniform(-1, 1, s).astype(np.float32) for s in ((inputs,), (units, inputs)))
    data = weft.ir.var("x", (inputs,))
    model = weft.compile(weft.Function((data,), weft.op.nn.dense(data, weft.ir.const(w))))
    np.testing.assert_allclose(model(x), w @ x, rtol=1e-4, atol=1e-5)
