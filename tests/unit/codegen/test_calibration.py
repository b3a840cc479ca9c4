"""Measuring a machine: what the kernels do, what is corrected, and what is kept."""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.codegen.calibration.calibrate import _consistent, best_distance, calibrate
from weft.codegen.calibration.kernels import module_text
from weft.codegen.calibration.meter import Meter
from weft.codegen.llvm.build import build_text
from weft.compiler import first_calibration
from weft.compiler.request import CompileRequest
from weft.compiler.warm_start import request_key
from weft.support.config import config
from weft.support.errors import TargetError
from weft.target import CpuTarget
from weft.target import host_machine as host_machine_module
from weft.target.host_machine import (
    needs_calibration,
    store_machine,
    stored_machine,
    stored_path,
    stored_report,
)
from weft.target.machine import VECTOR_BITS, Level, Machine
from weft.target.machine_tables import machine_of

LINUX = "unknown-linux-gnu"
TARGETS = ["cpu", "llvm -mcpu=x86-64", f"llvm -mtriple=aarch64-{LINUX} -mcpu=neoverse-v1",
           f"llvm -mtriple=riscv64-{LINUX} -mcpu=generic"]


@pytest.fixture(scope="module")
def measured():
    return calibrate()


def test_it_takes_few_seconds(measured) -> None:
    assert measured.seconds < 10, "two on an idle machine; other programs may take most of it"


def test_values_are_those_of_a_cpu(measured) -> None:
    machine, host = measured.machine, CpuTarget.host()
    assert 0.3e9 < machine.frequency < 8e9
    assert machine.widest_bits == host.vector_bits
    assert 0 < machine.fma_rate(host.vector_bits) <= 8
    assert 1 <= machine.fma_latency <= 12
    assert machine.coarse() == machine
    assert Machine.parse(str(machine)) == machine


def test_levels_are_ordered(measured) -> None:
    levels = list(measured.measured.levels.values())
    loads = [level.load_bytes_per_cycle for level in levels]
    assert loads == sorted(loads, reverse=True)
    latencies = [level.latency_cycles for level in levels]
    assert latencies == sorted(latencies)
    assert all(lv.load_bytes_per_cycle_all <= lv.load_bytes_per_cycle for lv in levels)


def test_every_value_has_a_source(measured) -> None:
    names = {f"core.fma_{bits}" for bits in VECTOR_BITS} | {"core.frequency", "core.fma_latency"}
    for level in measured.machine.levels:
        names |= {f"{level}.{value}" for value in ("bytes", "load", "load_all", "store", "latency")}
    assert names <= set(measured.sources)


def test_another_architecture_cannot_be_measured() -> None:
    arch = "aarch64" if CpuTarget.host().arch == "x86_64" else "x86_64"
    with pytest.raises(TargetError, match="calibration runs code of the target"):
        calibrate(CpuTarget.of(f"llvm -mtriple={arch}-{LINUX} -mcpu=generic"))


@pytest.mark.parametrize("text", TARGETS, ids=["host", "sse", "arm", "riscv"])
def test_the_kernels_compile_for_every_architecture(text: str) -> None:
    target = CpuTarget.of(text)
    widths = [bits for bits in VECTOR_BITS if bits <= target.vector_bits]
    code = build_text("calibration", module_text(target, widths), target)
    assert code.object.startswith(b"\x7fELF")


positive = st.floats(0.01, 1e3)
levels = st.builds(Level, st.just(1 << 15), st.integers(1, 64), positive, positive, positive,
                   positive)


@given(levels, levels, levels)
def test_contradictions_are_corrected(l1: Level, l2: Level, memory: Level) -> None:
    found = list(_consistent({"l1": l1, "l2": l2, "memory": memory}).values())
    assert found[0].load_bytes_per_cycle == l1.load_bytes_per_cycle
    for near, far in itertools.pairwise(found):
        assert near.load_bytes_per_cycle >= far.load_bytes_per_cycle
        assert near.latency_cycles <= far.latency_cycles
    assert all(x.load_bytes_per_cycle_all <= x.load_bytes_per_cycle for x in found)


@pytest.mark.parametrize(("rates", "distance"), [
    ([10.0, 10.2, 10.4, 10.1], 0),  # less than five percent
    ([10.0, 11.9, 12.0, 12.1], 256),  # the shortest of those that are as good
    ([10.0, 10.5, 12.0, 11.0], 512),
])  # fmt: skip
def test_prefetching_must_pay(rates: list[float], distance: int) -> None:
    assert best_distance((0, 256, 512, 1024), rates) == distance


def test_a_measured_machine_is_that_of_the_host(tmp_path) -> None:
    machine = machine_of("icelake-server")
    with config(cache_dir=tmp_path):
        assert stored_machine() == ""
        store_machine(machine, {"threads": 2})
        assert stored_machine() == str(machine) == CpuTarget.host().machine
        assert CpuTarget.of(str(CpuTarget.host())) == CpuTarget.host()
        assert stored_report() == {"threads": 2}
        assert list(tmp_path.rglob("*")) == [stored_path().parent, stored_path()]


@pytest.mark.parametrize("content", [
    "", "{", "[]", '{"machine": 3}', '{"machine": "zen9"}', '{"machine": "clock=1"}',
])  # fmt: skip
def test_a_damaged_file_counts_as_none(tmp_path, content: str) -> None:
    with config(cache_dir=tmp_path):
        stored_path().parent.mkdir(parents=True)
        stored_path().write_text(content, encoding="utf-8")
        assert stored_machine() == ""
        assert stored_report() == {}
        assert CpuTarget.host().machine


def test_an_unknown_cpu_is_measured_once(tmp_path, monkeypatch) -> None:
    calls = []
    monkeypatch.setattr(host_machine_module, "knows_cpu", lambda *_: False)
    monkeypatch.setattr(first_calibration, "calibrate_and_store", calls.append)
    first_calibration._once.cache_clear()
    with config(cache_dir=tmp_path, calibrate=True):
        assert needs_calibration("x", "x86_64")
        with config(calibrate=False):
            first_calibration.calibrate_if_unknown()
        assert not calls
        first_calibration.calibrate_if_unknown()
        first_calibration.calibrate_if_unknown()
    first_calibration._once.cache_clear()
    assert len(calls) == 1


def test_calibration_is_kept(tmp_path, monkeypatch, measured) -> None:
    monkeypatch.setattr("weft.codegen.calibration.calibrate", lambda _: measured)
    with config(cache_dir=tmp_path):
        first_calibration.calibrate_and_store(CpuTarget.host())
        assert stored_machine() == str(measured.machine)
        assert json.loads(stored_path().read_text())["report"]["sources"] == measured.sources


def test_a_folder_that_cannot_be_written_keeps_the_table(tmp_path, monkeypatch, measured) -> None:
    monkeypatch.setattr("weft.codegen.calibration.calibrate", lambda _: measured)
    blocked = tmp_path / "file"
    blocked.write_text("")
    with config(cache_dir=blocked):
        assert first_calibration.calibrate_and_store(CpuTarget.host()) is measured
        assert CpuTarget.host().machine


def test_models_that_start_warm_are_compiled_again_for_a_measured_machine(tmp_path) -> None:
    request = CompileRequest()
    with config(cache_dir=tmp_path):
        before = request_key(tmp_path / "model.onnx", request)
        store_machine(machine_of("icelake-server"), {})
        assert request_key(tmp_path / "model.onnx", request) != before


KNOWN = machine_of("zen5")


def _measured(scale: float) -> Machine:
    """A machine whose rates and latencies are ``scale`` times the known ones."""
    level = dataclasses.replace(
        KNOWN.l2, load_bytes_per_cycle=KNOWN.l2.load_bytes_per_cycle * scale,
        latency_cycles=KNOWN.l2.latency_cycles * scale)
    return dataclasses.replace(KNOWN, frequency=KNOWN.frequency * scale, l2=level)


@pytest.mark.parametrize("scale", [0.87, 0.95, 1.06, 1.14])
def test_a_measurement_that_confirms_what_is_known_changes_nothing(scale: float) -> None:
    assert _measured(scale).settled(KNOWN) == KNOWN


@pytest.mark.parametrize("scale", [0.5, 1.3])
def test_a_measurement_that_contradicts_what_is_known_replaces_it(scale: float) -> None:
    settled = _measured(scale).settled(KNOWN)
    assert settled == _measured(scale).coarse()
    assert settled.l1 == KNOWN.l1
    assert _measured(scale * 1.03).settled(settled) == settled


def test_a_busy_machine_is_measured_in_bounded_time_and_said_to_be_busy(
        measured, monkeypatch) -> None:
    """Every other round takes longer, as if another program had run within it."""
    draw = np.random.default_rng(0)
    once = Meter._once

    def disturbed(run: Callable[[], object]) -> float:
        return once(run) * (1 if draw.random() < 0.4 else 1 + 2 * draw.random())

    monkeypatch.setattr(Meter, "_once", staticmethod(disturbed))
    busy = calibrate()
    assert busy.seconds < 20
    assert busy.is_noisy
    # The best rounds count, so that the machine is nearly the one that an idle machine gives.
    assert busy.measured.fma_latency == pytest.approx(measured.measured.fma_latency, rel=0.3)


def test_an_interrupted_first_round_does_not_make_all_rounds_short(monkeypatch) -> None:
    """Another program runs for 4 ms within the first round; a call alone takes 1 us."""
    seconds = itertools.chain([4e-3], itertools.repeat(0.0))
    monkeypatch.setattr(Meter, "_once", staticmethod(lambda run: run() + next(seconds)))
    meter = Meter.__new__(Meter)
    meter.spreads = []
    assert meter._best(lambda count: 1e-6 + 1e-8 * count) == pytest.approx(1e-8, rel=0.01)


def test_noise_is_the_spread_of_rounds() -> None:
    meter = Meter.__new__(Meter)
    meter.spreads = [0.0, 0.1, 0.9]
    assert meter.noise == 0.1
