"""The machine model of GPUs: occupancy against NVIDIA's calculator, and limits of its formulas."""

from __future__ import annotations

import math

import pytest

from weft.strategy.cuda.machine_model import A100, B200, H100, L40S, MODELS, machine_model, model_of
from weft.support.errors import TargetError
from weft.target import Target
from weft.target.cuda_target import ARCHS


@pytest.mark.parametrize(
    ("model", "threads", "registers", "shared", "blocks", "limit"),
    [
        # From the occupancy calculator of Nsight Compute.
        (A100, 256, 32, 0, 8, "threads"),
        (A100, 256, 64, 0, 4, "registers"),
        (A100, 128, 255, 0, 2, "registers"),
        (A100, 32, 16, 0, 32, "blocks"),
        (A100, 256, 32, 48 * 1024, 3, "shared memory"),
        (H100, 384, 168, 160 * 1024, 1, "registers"),
        (L40S, 1024, 32, 0, 1, "threads"),
        (H100, 128, 32, 228 * 1024, 0, "shared memory"),  # more than a block may have
    ],
)
def test_occupancy(model, threads, registers, shared, blocks, limit):
    found = model.occupancy(threads, registers, shared)
    assert (found.blocks, found.limit) == (blocks, limit)
    assert found.warps == blocks * (threads // 32)


@pytest.mark.parametrize("model", MODELS, ids=lambda m: m.name)
def test_peak_rates_follow_from_sms_and_clock(model):
    # 128 FP32 FMAs per SM and cycle, 64 on A100.
    lanes = 64 if model is A100 else 128
    assert model.fp32_flops == pytest.approx(model.sms * lanes * 2 * model.clock, rel=0.05)
    assert model.tensor_flops["f16"] == pytest.approx(2 * model.tensor_flops["tf32"], rel=0.02)
    assert model.shared_per_block + 1024 == model.shared_per_sm


def test_every_architecture_has_a_model():
    for arch in ARCHS:
        model = machine_model(Target.of(f"cuda -arch={arch}"))
        assert model.shared_per_sm == ARCHS[arch].shared_per_sm
    with pytest.raises(TargetError, match="no machine model"):
        model_of("sm_10")


def test_a_copy_takes_as_long_as_its_bytes_at_the_bandwidth_that_copies_reach():
    seconds = H100.memory_seconds(2 * (1 << 30), threads=1e9)
    assert seconds == pytest.approx(2 * (1 << 30) / (0.92 * 3.35e12))
    # One warp cannot keep enough bytes in flight.
    assert H100.memory_seconds(1 << 20, threads=32) > 100 * H100.memory_seconds(1 << 20, 1e9)
    beyond_l2 = H100.memory_seconds(1 << 20, 1e9)
    assert H100.memory_seconds(1 << 20, 1e9, working_set=1 << 20) < beyond_l2


def test_waves_are_whole_rounds_of_resident_blocks():
    assert B200.waves(148 * 8, 256) == 1
    assert B200.waves(148 * 8 + 1, 256) == 2
    assert math.isinf(B200.waves(1, 1024, 255))
