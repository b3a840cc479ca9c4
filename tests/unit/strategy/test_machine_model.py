"""The machine model of CPUs: units, rooflines, levels of the memory hierarchy."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit.strategy.kernels import SMALL_CPU, WIDE_CPU, primitive
from weft import op
from weft.ir.expr import Expr, var
from weft.strategy.cpu.convolution.cost import CACHE_LINE_BYTES
from weft.strategy.cpu.estimate import roofline_seconds
from weft.strategy.cpu.machine_model import imbalance, machine_model
from weft.target import CpuTarget
from weft.target.machine import Level
from weft.target.machine_tables import machine_names, machine_of

MODEL = machine_model(WIDE_CPU)


def test_seconds_are_cycles_at_the_nominal_clock():
    assert MODEL.seconds(MODEL.frequency) == 1.0


def test_the_model_has_the_caches_and_vectors_of_its_target():
    small = machine_model(SMALL_CPU)
    assert (small.vector_bytes, MODEL.vector_bytes) == (32, 64)
    assert small.l2_bytes == SMALL_CPU.l2_bytes
    assert machine_model(WIDE_CPU) is MODEL


def test_bandwidth_falls_with_each_level():
    sizes = [MODEL.l1_bytes, MODEL.l2_bytes, MODEL.l3_bytes, 4 * MODEL.l3_bytes]
    per_byte = [MODEL.transfer_cycles(size) / size for size in sizes]
    assert per_byte == sorted(per_byte)
    assert per_byte[0] == pytest.approx(1 / MODEL.l1_bandwidth)
    assert per_byte[-1] == pytest.approx(1 / MODEL.memory_bandwidth)
    assert MODEL.transfer_cycles(64, working_set=sizes[-1]) == 64 / MODEL.memory_bandwidth


def test_the_roofline_is_bound_by_arithmetic_or_by_transfers():
    flops_per_cycle = 2 * MODEL.fma_per_cycle * 16
    assert MODEL.roofline_cycles(1e6, 4, 64) == pytest.approx(1e6 / flops_per_cycle)
    assert MODEL.roofline_cycles(1, 4, 1 << 30) == (1 << 30) / MODEL.memory_bandwidth
    scalar = MODEL.roofline_cycles(1e6, 4, 64, vectorized=False)
    assert scalar == pytest.approx(1e6 * MODEL.fma_latency / 2)


def test_imbalance_is_the_mean_over_thread_counts():
    assert imbalance(8) == imbalance(16) == 1.0
    assert imbalance(1) == (1 + 2 + 4 + 8) / 4


def test_expensive_elementwise_operators_cost_more_than_their_transfers():
    def seconds(expr: Expr) -> float:
        call = primitive([x], expr).body
        return roofline_seconds(call, WIDE_CPU)

    x = var("x", (16, 16), "float32")
    vectors = 16
    assert seconds(op.exp(x)) == pytest.approx(MODEL.seconds(vectors * MODEL.exp_vector_cycles))
    assert seconds(op.nn.relu(x)) < seconds(op.exp(x))


def test_the_ways_of_l2_are_those_of_the_machine() -> None:
    for name in machine_names():
        level = machine_of(name).l2
        sets, rest = divmod(level.bytes, level.ways * CACHE_LINE_BYTES)
        assert rest == 0, name
        assert sets & (sets - 1) == 0 or name == "apple", name  # hardware takes bits of addresses
        assert Level.parse(str(level)) == level
        unknown = replace(level, ways=0)  # of a machine that an older version measured
        assert Level.parse(str(unknown)) == unknown
    models = [machine_model(CpuTarget.parse(f"llvm -mcpu={cpu}")) for cpu in ("znver4", "znver5")]
    assert [model.l2_ways for model in models] == [8, 16]
