"""The least time of kernels: arithmetic and traffic at what a machine reaches."""

from __future__ import annotations

import math

import numpy as np
import pytest

import weft
from weft.runtime.devices.cpu.rates import measure_bandwidths
from weft.runtime.roofline import Roofline, limits_of

MACHINE = Roofline(100.0, ((1e3, 400.0), (1e5, 200.0), (math.inf, 10.0)))


def test_a_level_serves_what_it_holds() -> None:
    assert [MACHINE.gbytes(n) for n in (1e3, 1001, 1e5, 1e9)] == [400.0, 200.0, 200.0, 10.0]


def test_arithmetic_or_traffic_limits_a_kernel() -> None:
    weights = np.ones((512, 512), np.float32)
    x = weft.ir.var("x", (2, 512))
    mod = weft.compile(weft.ir.IRModule.from_expr(
        weft.ir.Function((x,), weft.op.nn.dense(x, weft.ir.const(weights)))))
    (limit,) = limits_of(mod.manifest, mod.manifest.steps, MACHINE)
    # The weights come from memory, the rows from the level that holds 8 KiB.
    assert limit.arithmetic == pytest.approx(2 * 2 * 512 * 512 / 100e9)
    assert limit.traffic == pytest.approx(weights.nbytes / 10e9 + 2 * 2 * 512 * 4 / 200e9)
    assert limit.seconds == limit.traffic


def test_a_profile_has_limits() -> None:
    mod = weft.compile(weft.parse("def @main(%x: Tensor[(64, 64), float32]) { tanh(%x) }"))
    profile = mod.profile(np.ones((64, 64), np.float32), repeat=2)
    assert 0 < profile.limit_seconds == profile.limits[0].seconds
    assert "of limit" in profile.table()
    assert "limit" in profile.table().splitlines()[-1]
    assert len(measure_bandwidths(mod.library, 2)) == 4


def test_a_program_with_a_loop_has_none() -> None:
    loop = weft.parse("""
    def @main(%n: Tensor[(), int32], %x: Tensor[(8), float32]) {
      let %loop = fn (%i: Tensor[(), int32], %y: Tensor[(8), float32]) -> Tensor[(8), float32] {
        if (less(%i, %n)) { %loop(add(%i, 1), tanh(%y)) } else { %y }
      };
      %loop(0, %x)
    }""")
    mod = weft.compile(loop)
    profile = mod.profile(np.array(3, np.int32), np.ones(8, np.float32), repeat=1)
    assert profile.limits == ()
    assert math.isnan(profile.limit_seconds)
    assert profile.table()
