"""Properties of the host CPU, found without a compiler: features, caches, usable cores.

Feature names are those of LLVM, with the name that /proc/cpuinfo uses.
"""

from __future__ import annotations

import contextlib
import functools
import math
import os
import platform
import sys
from pathlib import Path

# Instruction sets that generated code may use, by LLVM name, with the name in /proc/cpuinfo.
X86_FEATURES: dict[str, str] = {
    "sse3": "pni", "ssse3": "ssse3", "sse4.1": "sse4_1", "sse4.2": "sse4_2", "cx16": "cx16",
    "popcnt": "popcnt", "lzcnt": "abm", "movbe": "movbe", "bmi": "bmi1", "bmi2": "bmi2",
    "adx": "adx", "aes": "aes", "pclmul": "pclmulqdq", "f16c": "f16c", "fma": "fma",
    "avx": "avx", "avx2": "avx2", "avxvnni": "avx_vnni", "avx512f": "avx512f",
    "avx512bw": "avx512bw", "avx512cd": "avx512cd", "avx512dq": "avx512dq",
    "avx512vl": "avx512vl", "avx512ifma": "avx512ifma", "avx512vbmi": "avx512vbmi",
    "avx512vbmi2": "avx512_vbmi2", "avx512vnni": "avx512_vnni",
    "avx512bitalg": "avx512_bitalg", "avx512vpopcntdq": "avx512_vpopcntdq",
    "avx512bf16": "avx512_bf16", "avx512fp16": "avx512_fp16",
    "avx512vp2intersect": "avx512_vp2intersect", "gfni": "gfni", "vaes": "vaes",
    "vpclmulqdq": "vpclmulqdq", "amx-tile": "amx_tile", "amx-bf16": "amx_bf16",
    "amx-int8": "amx_int8",
}
AARCH64_FEATURES: dict[str, str] = {
    "neon": "asimd", "fullfp16": "asimdhp", "dotprod": "asimddp", "sve": "sve", "sve2": "sve2",
    "bf16": "bf16", "i8mm": "i8mm", "lse": "atomics",
}
# Multiplication, atomics, floats of 32 and 64 bits, compressed code: what Linux requires.
# V is the vector extension, whose registers have 128 bits or more.
RISCV_FEATURES: dict[str, str] = {name: name for name in (
    "m", "a", "f", "d", "c", "v", "zba", "zbb", "zfhmin", "zvfhmin")}
ARM_FEATURES: dict[str, str] = {
    "neon": "neon", "vfp4": "vfpv4", "vfp4d16sp": "vfpv4", "fp64": "vfp", "hwdiv": "idivt",
    "hwdiv-arm": "idiva",
}
# WebAssembly has no kernel that lists features.
WASM_FEATURES: dict[str, str] = {name: name for name in (
    "atomics", "bulk-memory", "bulk-memory-opt", "nontrapping-fptoint", "relaxed-simd",
    "sign-ext", "simd128")}


# The lines of /proc/cpuinfo that name the CPU, on x86 and on Arm.
_OF_THE_MODEL = frozenset(["vendor_id", "cpu family", "model", "model name", "stepping",
                           "CPU implementer", "CPU architecture", "CPU variant", "CPU part",
                           "CPU revision"])


def machine() -> str:
    """The architecture in LLVM's spelling: ``x86_64``, ``aarch64``, …"""
    name = platform.machine().lower()
    return {"amd64": "x86_64", "arm64": "aarch64"}.get(name, name)


def system() -> str:
    """The operating system in Python's spelling: ``linux``, ``darwin``, ``win32``, …"""
    return sys.platform


def known_features(arch: str) -> dict[str, str]:
    """LLVM feature name to /proc/cpuinfo name for an architecture (empty where unknown)."""
    return {"x86_64": X86_FEATURES, "aarch64": AARCH64_FEATURES,
            "riscv64": RISCV_FEATURES, "arm": ARM_FEATURES,
            "wasm32": WASM_FEATURES}.get(arch, {})


@functools.lru_cache(maxsize=1)
def _cpuinfo() -> str:
    """The text of /proc/cpuinfo; empty if it cannot be read."""
    try:
        return Path("/proc/cpuinfo").read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""


def model_name() -> str:
    """What /proc/cpuinfo says about the make of its first processor; empty if nothing."""
    first = _cpuinfo().partition("\n\n")[0]
    lines = (line.partition(":") for line in first.splitlines())
    return "; ".join(f"{key.strip()} {value.strip()}" for key, _, value in lines
                     if key.strip() in _OF_THE_MODEL)


@functools.lru_cache(maxsize=1)
def host_features() -> frozenset[str]:
    """The known features of the host CPU that the kernel lists and the CPU itself states.

    The kernel may hide features, and /proc/cpuinfo may be that of another machine (``cpuid``). If
    one of both cannot be read, the other one decides.
    """
    flags, stated = listed_features(_cpuinfo()), _stated_features()
    listed = frozenset(name for name, flag in known_features(machine()).items() if flag in flags)
    return (stated or frozenset()) if not flags else listed if stated is None else listed & stated


def _stated_features() -> frozenset[str] | None:
    if machine() != "x86_64" or system() != "linux":
        return None
    from weft.runtime.devices.cpu.cpuid import x86_features

    return x86_features()


def listed_features(cpuinfo: str) -> frozenset[str]:
    """What the first processor in the text of /proc/cpuinfo has, in the names of that file."""
    for line in cpuinfo.splitlines():
        key, _, value = line.partition(":")
        match key.strip().lower():
            case "flags" | "features":
                return frozenset(value.split())
            case "isa":  # of RISC-V: letters, then longer names, as in rv64imafdc_zicsr
                letters, *others = value.strip().split("_")
                return frozenset((*letters.removeprefix("rv64").replace("g", "imafd"), *others))
    return frozenset()


def cache_bytes(level: int, default: int) -> int:
    """The size in bytes of CPU 0's data or unified cache of ``level``; ``default`` if unknown."""
    return _caches().get(level, default)


@functools.cache
def _caches() -> dict[int, int]:
    """The sizes of CPU 0's data and unified caches, by level."""
    root, found = "/sys/devices/system/cpu/cpu0/cache", {}
    with contextlib.suppress(OSError, ValueError):  # containers may hide /sys
        for index in sorted(name for name in os.listdir(root) if name.startswith("index")):  # noqa: PTH208
            kind, level, size = (_line(f"{root}/{index}/{name}")
                                 for name in ("type", "level", "size"))
            if kind != "Instruction":
                found.setdefault(int(level), _size(size))
    return found


def _line(path: str) -> str:
    with open(path, encoding="ascii") as file:  # noqa: PTH123 - a third of the time of Path
        return file.read().strip()


def _size(text: str) -> int:
    scale = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}.get(text[-1:], 1)
    return int(text.rstrip("KMG")) * scale


def usable_cpus() -> int:
    """The number of CPUs that this process may use: its affinity, limited by the CPU quota."""
    if hasattr(os, "sched_getaffinity"):
        count = len(os.sched_getaffinity(0))
    else:
        count = os.cpu_count() or 1
    cpus = cpu_quota(Path("/sys/fs/cgroup"))
    return max(1, count if cpus is None else min(count, math.ceil(cpus)))


def cpu_quota(root: Path) -> float | None:
    """The CPU quota of the control group, in CPUs; ``None`` if it is unlimited.

    The kernel would throttle threads beyond the quota while other threads wait for them.
    """
    try:
        if (root / "cpu.max").exists():
            quota, period = (root / "cpu.max").read_text().split()
        else:
            quota = (root / "cpu" / "cpu.cfs_quota_us").read_text()
            period = (root / "cpu" / "cpu.cfs_period_us").read_text()
        return int(quota) / int(period) if int(quota) > 0 else None
    except (OSError, ValueError, ZeroDivisionError):
        return None  # no control groups, or "max"
