"""Timing the kernels of a model, and compiling with the records."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest

import weft
from tests.unit.strategy.kernels import primitive
from weft import op, te
from weft.cli.main import main
from weft.ir.expr import var
from weft.strategy.records import Record, append_records, read_records
from weft.strategy.selection import candidates
from weft.support.errors import InternalError, OptionError, TargetError
from weft.target import CpuTarget
from weft.tir.func import PrimFunc
from weft.tune import KernelTask, measure_kernel
from weft.tune import measure as measure_module

PROGRAM = """def @main(%x: Tensor[(9, 20), float32], %w: Tensor[(33, 20), float32]) {
  nn.relu(nn.dense(%x, %w))
}"""


@pytest.fixture
def cache(tmp_path, own_cache):
    return tmp_path


def implementation_of(model, **knobs):
    text = weft.compile(model, **knobs)
    rng = np.random.default_rng(0)
    arrays = [rng.uniform(-1, 1, p.shape).astype(p.dtype) for p in text.inputs]
    profile = text.profile(*arrays, repeat=1)
    return profile.kernels[0].implementation, text(*arrays)


def test_tuning_records_select_implementations(cache):
    model, path = weft.parse(PROGRAM), cache / "r.jsonl"
    report = weft.autotune(model, path, seconds=1e-3, threads=1)
    assert [k.text for k in report.tuned] == ["nn.dense + nn.relu"]
    assert set(report.tuned[0].seconds) >= {"nn.dense.cpu.gemm", "nn.dense.cpu.generic"}
    assert "nn.dense.cpu.gemm" in report.table()

    kernel = next(iter(read_records(path).seconds))[0]
    slowest = Record(kernel, "", str(CpuTarget.host()), "nn.dense.cpu.generic", 1e-12, 1)
    before, expected = implementation_of(model)
    append_records(path, [slowest])
    chosen, found = implementation_of(model, records=path)
    assert (before, chosen) == ("nn.dense.cpu.gemm", "nn.dense.cpu.generic")
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    # The cache keeps the two apart.
    assert implementation_of(model)[0] == "nn.dense.cpu.gemm"
    assert implementation_of(model, records=path)[0] == "nn.dense.cpu.generic"


def test_a_second_run_times_only_missing_implementations(cache):
    model, path = weft.parse(PROGRAM), cache / "r.jsonl"
    weft.autotune(model, path, seconds=1e-3, threads=1)
    lines = path.read_text()
    again = weft.autotune(model, path, seconds=1e-3, threads=1)
    assert path.read_text() == lines
    assert set(again.tuned[0].seconds) >= {"nn.dense.cpu.gemm", "nn.dense.cpu.generic"}
    weft.autotune(model, path, seconds=1e-3, threads=1, again=True)
    assert path.read_text().startswith(lines)
    assert len(path.read_text()) > len(lines)


def test_the_command_line_tunes(cache, capsys):
    (cache / "m.ir").write_text(PROGRAM)
    with pytest.raises(SystemExit) as end:
        main(["tune", str(cache / "m.ir"), "--records", str(cache / "r.jsonl"), "--seconds",
              "0.001", "--threads", "1"])
    out = capsys.readouterr().out
    assert end.value.code == 0
    assert "nn.dense + nn.relu" in out
    assert "1 of 1 kernels had several candidates" in out
    assert all(json.loads(line)["threads"] == 1
               for line in (cache / "r.jsonl").read_text().splitlines())


def test_measured_kernels_are_lowered_with_the_tir_passes_of_the_user(cache):
    seen = []

    def observed(func: PrimFunc) -> PrimFunc:
        seen.append(func.name)
        return func

    weft.autotune(weft.parse(PROGRAM), cache / "r", seconds=1e-4, threads=1,
                    tir_passes=[observed])
    assert seen


def test_other_machines_cannot_be_timed(tmp_path):
    with pytest.raises(TargetError, match="cannot tune for another machine"):
        weft.autotune(weft.parse(PROGRAM), tmp_path / "r", target="llvm -mcpu=haswell")


@pytest.mark.parametrize("seconds", [0, -1, float("nan")])
def test_seconds_are_positive(tmp_path, seconds):
    with pytest.raises(OptionError, match="seconds"):
        weft.autotune(weft.parse(PROGRAM), tmp_path / "r", seconds=seconds)


def test_implementations_with_different_results_are_an_error():
    x, w = var("x", (9, 20), "float32"), var("w", (33, 20), "float32")
    function, target = primitive([x, w], op.nn.dense(x, w)), CpuTarget.host()
    packed = candidates(function.body, target)[0]

    def doubled(a, b, attrs):
        once = packed.compute(a, b, attrs)
        return te.compute(once.shape, lambda *i: once[i] * 2.0, name="twice")

    wrong = dataclasses.replace(packed, name="wrong", compute=doubled)
    task = KernelTask("k", "nn.dense", function, (packed, wrong))
    with pytest.raises(InternalError, match="different results") as caught:
        measure_kernel(task, target, 1, 1e-3, {})
    assert "wrong" in str(caught.value)


def test_slow_candidates_are_pruned():
    calls = {"fast": 0, "slow": 0}

    class Fake:
        outputs = ()

        def __init__(self, name, took):
            self.name, self.took = name, took

        def seconds(self, count=1):
            calls[self.name] += count
            return self.took

    fakes = {"fast": Fake("fast", 1.0), "slow": Fake("slow", 9.0)}
    times = measure_module._time_interleaved(fakes, 1)
    assert times == {"fast": 1.0, "slow": 9.0}
    assert calls["slow"] == 2


def test_other_tiles_are_offered_and_agree():
    x, w = var("x", (37, 50), "float32"), var("w", (50, 71), "float32")
    function, target = primitive([x, w], op.nn.matmul(x, w)), CpuTarget.host()
    found = candidates(function.body, target)
    assert len({c.name for c in found}) == len(found) > 4
    task = KernelTask("k", "nn.matmul", function, tuple(found))
    outcome, records = measure_kernel(task, target, 1, 1e-4, {})
    assert {r.implementation for r in records} == {c.name for c in found}
    assert outcome.gain >= 1
