"""Facts about the machine."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from weft.runtime.devices.cpu import host
from weft.runtime.devices.cpu.cpuid import is_usable, x86_features


def test_this_machine_has_known_features() -> None:
    assert host.host_features() <= set(host.known_features(host.machine()))
    if host.machine() == "x86_64":
        assert "sse3" in host.host_features()
    assert host.known_features("pdp11") == {}


@pytest.mark.parametrize(("text", "features"), [
    ("processor\t: 0\nflags\t\t: fpu sse3\nflags\t: other\n", {"fpu", "sse3"}),
    ("Features\t: fp asimd\n", {"fp", "asimd"}),
    ("isa\t\t: rv64imafdc_zicsr\n", {"i", "m", "a", "f", "d", "c", "zicsr"}),
    ("isa\t\t: rv64gc\n", {"i", "m", "a", "f", "d", "c"}),
    ("model name : a processor\n", set()),
])
def test_features_in_proc_cpuinfo(text: str, features: set[str]) -> None:
    assert host.listed_features(text) == features


@pytest.mark.skipif(host.machine() != "x86_64", reason="CPUID is an instruction of x86-64")
def test_the_cpu_itself_has_the_last_word(monkeypatch: pytest.MonkeyPatch) -> None:
    """Under an emulator /proc/cpuinfo is that of the host, whose instructions would be illegal."""
    found = host.host_features.__wrapped__
    stated, before = x86_features(), found()
    assert stated is not None
    assert before <= stated <= set(host.X86_FEATURES)
    everything = " ".join(host.X86_FEATURES.values())
    monkeypatch.setattr(host, "_cpuinfo", lambda: f"flags : {everything}")
    assert found() == stated
    monkeypatch.setattr(host, "_cpuinfo", lambda: "flags : pni ssse3")  # the kernel hides others
    assert found() == {"sse3", "ssse3"}
    monkeypatch.setattr(host, "_cpuinfo", str)
    assert found() == stated


@pytest.mark.parametrize(("name", "saved", "usable"), [
    ("sse4.2", 0, True), ("avx2", 0x6, True), ("fma", 0x2, False), ("avx512f", 0x6, False),
    ("avx512f", 0xE6, True), ("amx-tile", 0xE6, False), ("amx-tile", 0x600E6, True)])
def test_registers_that_the_system_does_not_save(name: str, saved: int, *, usable: bool) -> None:
    assert is_usable(name, saved) is usable


@pytest.mark.parametrize(
    ("files", "share"),
    [
        ({"cpu.max": "max 100000\n"}, None),
        ({"cpu.max": "150000 100000\n"}, 1.5),
        ({"cpu.max": "garbage"}, None),
        ({"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, None),
        ({"cpu/cpu.cfs_quota_us": "400000\n", "cpu/cpu.cfs_period_us": "100000\n"}, 4.0),
        ({"cpu/cpu.cfs_quota_us": "400000\n", "cpu/cpu.cfs_period_us": "0\n"}, None),
        ({}, None),
    ],
)
def testcpu_quota_of_a_container(
    files: dict[str, str], share: float | None, tmp_path: Path
) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    assert host.cpu_quota(tmp_path) == share


@pytest.mark.parametrize(("share", "count"), [(None, 8), (2.5, 3), (0.1, 1), (64.0, 8)])
def test_usable_cpus(share: float | None, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
    monkeypatch.setattr(host, "cpu_quota", lambda _: share)
    assert host.usable_cpus() == count


def test_cache_sizes() -> None:
    assert host.cache_bytes(9, 12345) == 12345  # no machine has nine levels
    assert host.cache_bytes(1, 32768) >= 4096
