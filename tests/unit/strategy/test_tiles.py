"""The cost model of register tiles, and channel blocks."""

from __future__ import annotations

import pytest

from tests.unit.strategy.kernels import SMALL_CPU, WIDE_CPU
from weft.strategy.cpu.common.blocking import channel_block, registers
from weft.strategy.cpu.common.register_tile import RegisterTile, choose_tile, fits_registers
from weft.strategy.cpu.machine_model import machine_model

MODEL = machine_model(WIDE_CPU)


@pytest.mark.parametrize("target", [SMALL_CPU, WIDE_CPU], ids=["avx2", "avx512"])
@pytest.mark.parametrize("rows", [1, 7, 14, 27, 56, 112])
@pytest.mark.parametrize("columns", [1, 2, 3, 4, 16])
def test_tiles_fit_the_register_file(target, rows, columns):
    tile = choose_tile(rows, columns, target)
    assert fits_registers(tile, target)
    assert 1 <= tile.mr <= rows
    assert 1 <= tile.nr_vectors <= columns


def test_wide_tiles_reach_the_arithmetic_limit():
    tile = choose_tile(56, 4, WIDE_CPU)
    assert tile.step_cycles(MODEL) == pytest.approx(tile.accumulators / 2, rel=0.15)


def test_mr_divides_the_rows_if_that_costs_nothing():
    assert 56 % choose_tile(56, 2, WIDE_CPU).mr == 0
    assert choose_tile(7, 4, WIDE_CPU).mr == 7


def test_a_narrow_tile_is_charged_for_latency():
    assert RegisterTile(1, 1).step_cycles(MODEL) >= 4
    assert RegisterTile(8, 1).step_cycles(MODEL) < 8 * RegisterTile(1, 1).step_cycles(MODEL)


@pytest.mark.parametrize(
    ("channels", "block"), [(16, 16), (64, 16), (2048, 16), (24, 24), (3, 3), (1000, 40), (8, 8)]
)
def test_channel_blocks(channels, block):
    assert channel_block(channels, 16) == block


def test_blocks_always_divide():
    for channels in range(1, 400):
        assert channels % channel_block(channels, 16) == 0


def test_registers_round_up():
    assert registers(24, 16) == 2
