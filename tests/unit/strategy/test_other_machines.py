"""The same decision functions follow the facts of other CPUs."""

from __future__ import annotations

import dataclasses
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.transform.helpers import parse_program
from weft.cli.machines import decisions, sample_layers, target_of_machine
from weft.ir.dtype import float32
from weft.ir.passes import PassContext
from weft.strategy.cpu.attention.cost import AttentionShape, plan_tiles
from weft.strategy.cpu.common.register_tile import fits_registers
from weft.strategy.cpu.convolution.decide import decide_convolution
from weft.strategy.cpu.gemm.blocking import block_gemm
from weft.strategy.cpu.gemm.cost import GemmShape
from weft.strategy.cpu.machine_model import machine_model, parallel_threshold
from weft.strategy.decision import decision_of
from weft.target import CpuTarget
from weft.target.machine import LEVELS, Machine, coarse
from weft.target.machine_tables import MEASURED, machine_names, machine_of, machine_table
from weft.transform.fusion.fuse_ops import FuseOps

LAYERS = dict(sample_layers())
CONVOLUTION = "convolution 3x3, {} channels, {}x{}"
SIZES = {64: 56, 128: 28, 256: 14, 512: 7}
MACHINES = machine_names()


def algorithm(channels: int, target: CpuTarget) -> str:
    size = SIZES[channels]
    decision = decide_convolution(LAYERS[CONVOLUTION.format(channels, size, size)], target)
    assert decision is not None
    return decision.algorithm


def with_l3(machine: str, **values: float) -> CpuTarget:
    """The target of a machine whose L3 has other values."""
    target, used = target_of_machine(machine), machine_of(machine)
    changed = dataclasses.replace(used, l3=dataclasses.replace(used.l3, **values))
    return dataclasses.replace(target, machine=str(changed))


def test_no_winograd_where_its_weights_come_from_a_slow_shared_cache() -> None:
    """Emerald Rapids: the weights of 256 and 512 channels fill more than its private 2 MiB."""
    emerald = target_of_machine("emeraldrapids")
    assert [algorithm(c, emerald) for c in (64, 128)] == ["winograd_f4", "winograd_f2"]
    assert not any(algorithm(c, emerald).startswith("winograd") for c in (256, 512))
    zen = target_of_machine("zen5")
    assert [algorithm(c, zen) for c in (64, 128, 256)] == [
        "winograd_f4", "winograd_f4", "winograd_f2"]


def test_a_faster_l3_or_a_larger_private_cache_allows_winograd_again() -> None:
    fast = with_l3("emeraldrapids", load_bytes_per_cycle=28.0, latency_cycles=56.0)
    assert algorithm(256, fast).startswith("winograd")
    large = dataclasses.replace(target_of_machine("emeraldrapids"), l2_bytes=32 << 20)
    assert algorithm(256, large).startswith("winograd")


def test_a_slower_l3_never_adds_winograd_convolutions() -> None:
    counts = []
    for latency in (40.0, 80.0, 160.0, 320.0, 640.0):
        target = with_l3("zen5", latency_cycles=latency, load_bytes_per_cycle=1600 / latency)
        counts.append(sum(algorithm(c, target).startswith("winograd") for c in SIZES))
    assert counts == sorted(counts, reverse=True)
    assert counts[0] > counts[-1]


@pytest.mark.parametrize("machine", MACHINES)
def test_register_tiles_fit_the_registers(machine: str) -> None:
    """16 registers on AVX2 and SSE, 32 on AVX-512 and NEON, and most of them in use."""
    target = target_of_machine(machine)
    registers = 16 if target.arch == "x86_64" and target.vector_bits < 512 else 32
    assert target.vector_registers == registers
    tile = block_gemm(GemmShape(1024, 1024, 1024, float32), target).tile
    assert fits_registers(tile, target)
    assert tile.accumulators >= registers // 2


def test_k_blocks_grow_with_a_private_l2() -> None:
    shape = GemmShape(512, 512, 65536, float32)
    depths = [block_gemm(shape, target_of_machine(name)).kc for name in (
        "haswell", "skylake-x", "emeraldrapids")]
    assert None not in depths
    assert depths == sorted(depths)
    assert depths[-1] >= 1.5 * depths[1]


def test_threads_pay_later_where_a_fork_and_join_costs_more() -> None:
    slow = dataclasses.replace(machine_of("zen5"), fork_join_seconds=1.6e-6)
    target = dataclasses.replace(target_of_machine("zen5"), machine=str(slow))
    assert parallel_threshold(target) == 10 * parallel_threshold(target_of_machine("zen5"))
    assert parallel_threshold(target_of_machine("emeraldrapids")) > parallel_threshold(
        target_of_machine("zen5"))


def test_attention_blocks_shrink_with_l1() -> None:
    shape = AttentionShape(12, 1024, 1024, 64, 64)
    blocks = [plan_tiles(shape, dataclasses.replace(target_of_machine("zen5"), l1_bytes=size)).block
              for size in (16 << 10, 32 << 10, 48 << 10, 128 << 10)]
    assert blocks == sorted(blocks)
    assert blocks[0] < blocks[-1]


def test_a_machine_without_l3_has_memory_beyond_l2() -> None:
    target = target_of_machine("cortex-a72")
    model = machine_model(target)
    assert target.l3_bytes == 0
    assert model.beyond_l2_stream_bandwidth <= machine_of("cortex-a72").memory.load_bytes_per_cycle
    assert model.transfer_cycles(1 << 20) == (1 << 20) / model.memory_bandwidth
    assert all(decision_of(call, target) for call in LAYERS.values())


@pytest.mark.parametrize("machine", MACHINES)
def test_every_machine_decides_about_every_layer(machine: str) -> None:
    target = target_of_machine(machine)
    assert len(list(decisions(target))) == len(LAYERS) + 1
    assert CpuTarget.of(str(target)) == target


@pytest.mark.parametrize("machine", MACHINES)
def test_tables_are_complete_and_sane(machine: str) -> None:
    table = machine_table(machine)
    used = machine_of(machine)
    assert used.coarse() == used
    assert Machine.parse(str(used)) == used
    assert all(table.sources.values())
    assert table.kinds.keys() == table.sources.keys()
    assert all(kind != MEASURED or "weft calibrate" in table.sources[name]
               for name, kind in table.kinds.items()), "measured by weft, or no measurement"
    for name in LEVELS:
        if name in used.levels:
            for value in ("bytes", "shared_by", "load", "load_all", "store", "latency"):
                assert f"{name}.{value}" in table.sources
    levels = list(used.levels.values())
    for near, far in itertools.pairwise(levels):
        assert near.load_bytes_per_cycle > far.load_bytes_per_cycle
        assert near.latency_cycles < far.latency_cycles
        assert far.load_bytes_per_cycle_all <= far.load_bytes_per_cycle


def test_rates_of_zen5_are_those_that_the_factors_were_fitted_with() -> None:
    model = machine_model(target_of_machine("zen5"))
    assert (model.l1_bandwidth, model.l2_stream_bandwidth, model.l2_bandwidth) == (128, 40, 24)
    assert (model.beyond_l2_stream_bandwidth, model.beyond_l2_load_store_bandwidth) == (20, 16)
    assert (model.beyond_l2_line_bandwidth, model.memory_bandwidth) == (8, 10)
    assert model.parallel_threshold == 20_000


@given(st.floats(1e-3, 1e12))
def test_coarse_values_are_near_and_fixed(value: float) -> None:
    rounded = coarse(value)
    assert abs(rounded - value) <= value / 8
    assert coarse(rounded) == rounded


@given(st.floats(-0.05, 0.05))
def test_noise_seldom_moves_a_value_in_the_middle_of_its_step(noise: float) -> None:
    assert coarse(48 * (1 + noise)) == 48


def test_rows_that_reductions_share_fit_a_private_cache() -> None:
    """Reductions along a row that L2 keeps are one kernel; along a longer one they are several."""
    module = parse_program("""def @main(%x: Tensor[(4, 40000), float32]) {
      %m = max(%x, axis=[1], keepdims=True);
      %e = exp(subtract(%x, %m));
      divide(%e, sum(%e, axis=[1], keepdims=True))
    }""")
    counts = {}
    for name in ("haswell", "zen5"):
        context = PassContext(target=target_of_machine(name))
        counts[name] = str(FuseOps()(module, context)).count("primitive=True")
    assert counts["zen5"] == 1
    assert counts["haswell"] > 1
