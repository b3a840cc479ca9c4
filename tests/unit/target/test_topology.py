"""CPUs, caches and quotas as systems of other kinds describe them."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.target.systems import CacheFile, FakeSystem
from weft.runtime.devices.cpu.host import usable_cpus
from weft.target.machine_tables import machine_of
from weft.target.topology import FAIR_SHARES, Topology, cache_sizes, read_topology

KIB, MIB = 1 << 10, 1 << 20


def sizes(topology: Topology, machine: str, *, is_known: bool = True) -> tuple[int, int, int]:
    return cache_sizes(topology, machine_of(machine), is_known=is_known)


@pytest.mark.parametrize(("machine", "layout", "expected"), [
    # Zen 2: an L3 of 16 MiB for each four cores of 64.
    ("zen2", (64, 2, "32K", "512K", "16384K", 4), (32 * KIB, 512 * KIB, 16 * MIB)),
    ("zen5", (64, 2, "48K", "1024K", "32768K", 8), (48 * KIB, MIB, 32 * MIB)),
    ("icelake-server", (32, 2, "48K", "1280K", "49152K", 32), (48 * KIB, 1280 * KIB, 48 * MIB)),
    ("neoverse-v1", (64, 1, "64K", "1024K", "32768K", 64), (64 * KIB, MIB, 32 * MIB)),
    ("neoverse-n1", (4, 1, "64K", "1024K", "32768K", 4), (64 * KIB, MIB, 8 * MIB)),
], ids=["zen2", "zen5", "icelake", "v1", "n1 of four"])
def test_servers(tmp_path: Path, machine: str, layout: tuple, expected: tuple) -> None:
    cores, threads, l1, l2, l3, l3_cores = layout
    FakeSystem(tmp_path, cores * threads).uniform(cores, threads, l1, l2, l3, l3_cores)
    topology = read_topology(tmp_path)
    assert len(topology.cores) == cores
    assert topology.threads_per_core == threads
    assert len(topology.cpus) == cores * threads
    assert sizes(topology, machine) == expected


def test_a_small_virtual_machine_does_not_count_on_the_l3_of_a_socket(tmp_path: Path) -> None:
    system = FakeSystem(tmp_path, 2)
    system.uniform(1, 2, "48K", "2048K", "327680K", 1)
    system.write("proc/cpuinfo", "flags : fpu hypervisor avx2")
    topology = read_topology(tmp_path)
    assert topology.is_virtual
    assert len(topology.cores) == 1
    share = machine_of("emeraldrapids").l3.bytes_per_core
    assert sizes(topology, "emeraldrapids") == (48 * KIB, 2 * MIB, FAIR_SHARES * share)


def test_a_whole_socket_is_counted_whole(tmp_path: Path) -> None:
    FakeSystem(tmp_path, 64).uniform(64, 1, "48K", "2048K", "327680K", 64)
    assert sizes(read_topology(tmp_path), "emeraldrapids")[2] == 320 * MIB


def hybrid(root: Path) -> None:
    """Two performance cores with two threads each, four efficiency cores that share an L2."""
    system = FakeSystem(root, 8)
    system.write("sys/devices/cpu_atom/cpus", "4-7")
    for cpu in range(4):
        core = f"{cpu // 2 * 2}-{cpu // 2 * 2 + 1}"
        system.cpu(cpu, core, [CacheFile(1, "48K", core, "Data"), CacheFile(2, "1280K", core),
                               CacheFile(3, "12288K", "0-7")])
    for cpu in range(4, 8):
        system.cpu(cpu, str(cpu), [CacheFile(1, "32K", str(cpu), "Data"),
                                   CacheFile(2, "2048K", "4-7"), CacheFile(3, "12288K", "0-7")])


def test_a_hybrid_processor_counts_by_its_smallest_usable_core(tmp_path: Path) -> None:
    hybrid(tmp_path)
    every = read_topology(tmp_path)
    assert every.kinds == 2
    assert len(every.cores) == 6
    assert sizes(every, "skylake", is_known=False)[:2] == (32 * KIB, 512 * KIB)
    performance = read_topology(tmp_path, usable=range(4))
    assert performance.kinds == 1
    assert sizes(performance, "alderlake")[:2] == (48 * KIB, 1280 * KIB)


def test_arm_kinds_differ_in_part_and_capacity(tmp_path: Path) -> None:
    system = FakeSystem(tmp_path, 4)
    for cpu in range(4):
        big = cpu >= 2
        system.cpu(cpu, str(cpu), [CacheFile(1, "64K" if big else "32K", str(cpu), "Data")],
                   {"cpu_capacity": "1024" if big else "512"})
    assert read_topology(tmp_path).kinds == 2
    assert read_topology(tmp_path).per_core(1) == 32 * KIB
    assert read_topology(tmp_path, usable=[2, 3]).per_core(1) == 64 * KIB


def test_raspberry_pi_has_no_l3(tmp_path: Path) -> None:
    FakeSystem(tmp_path, 4).uniform(4, 1, "32K", "1024K", l2_cores=4)
    assert sizes(read_topology(tmp_path), "cortex-a72") == (32 * KIB, 256 * KIB, 0)
    # Of an unknown CPU what the system says counts: the levels that it lists are all.
    assert sizes(read_topology(tmp_path), "aarch64", is_known=False)[2] == 0


def test_hidden_caches_are_those_of_the_table(tmp_path: Path) -> None:
    FakeSystem(tmp_path, 8)
    topology = read_topology(tmp_path)
    assert topology.caches == ()
    assert sizes(topology, "zen4") == (32 * KIB, MIB, 32 * MIB)
    assert sizes(topology, "cortex-a72") == (32 * KIB, 256 * KIB, 0)


def test_absurd_private_caches_are_those_of_a_known_cpu(tmp_path: Path) -> None:
    """Emulators report an L2 of 4 MiB and an L3 of 16 MiB for every CPU."""
    FakeSystem(tmp_path, 2).uniform(2, 1, "32K", "4096K", "16384K", 2)
    topology = read_topology(tmp_path)
    assert sizes(topology, "skylake-x")[1] == MIB
    assert sizes(topology, "skylake", is_known=False)[1] == 4 * MIB


def test_nothing_to_read(tmp_path: Path) -> None:
    topology = read_topology(tmp_path)
    assert topology.cpus
    assert topology.caches == ()
    assert topology.quota is None
    assert not topology.is_virtual


@pytest.mark.parametrize(("files", "quota"), [
    ({"cpu.max": "150000 100000"}, 1.5), ({"cpu.max": "max 100000"}, None),
    ({"cpu/cpu.cfs_quota_us": "150000", "cpu/cpu.cfs_period_us": "100000"}, 1.5),
    ({"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, None),
])  # fmt: skip
def test_quota_of_a_container(tmp_path: Path, files: dict[str, str], quota: float | None) -> None:
    system = FakeSystem(tmp_path, 64)
    system.uniform(64, 1, "32K", "512K", "16384K", 4)
    for name, text in files.items():
        system.write(f"sys/fs/cgroup/{name}", text)
    assert read_topology(tmp_path).quota == quota


def test_a_cpu_set_selects_its_caches(tmp_path: Path) -> None:
    hybrid(tmp_path)
    assert read_topology(tmp_path, usable=[5]).per_core(2) == 512 * KIB
    assert read_topology(tmp_path, usable=[99]).cpus == frozenset(range(8)), "an impossible mask"


def test_this_system_can_be_read() -> None:
    topology = read_topology()
    assert topology.cpus <= topology.online
    assert usable_cpus() <= len(topology.cpus)


@given(st.text(alphabet="0123456789-,K \n", max_size=12), st.sampled_from(
    ["online", "cpu0/cache/index0/size", "cpu0/cache/index0/level", "cpu0/cpu_capacity",
     "cpu0/cache/index0/shared_cpu_list", "cpu0/topology/thread_siblings_list"]))
def test_garbage_in_a_file_gives_sane_sizes(tmp_path_factory, text: str, name: str) -> None:
    root = tmp_path_factory.mktemp("system")
    system = FakeSystem(root, 4)
    system.uniform(4, 1, "32K", "512K", "16384K", 4)
    system.write(f"sys/devices/system/cpu/{name}", text)
    l1, l2, l3 = sizes(read_topology(root), "zen2")
    assert 16 * KIB <= l1 <= 64 * KIB
    assert 256 * KIB <= l2 <= MIB
    assert 0 <= l3 <= 64 * MIB
