"""Facts about the CPU at hand that need no compiler: feature names, caches, usable cores.

Feature names are LLVM's; the kernel spells some of them in another way.
"""

from __future__ import annotations

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


def machine() -> str:
    """The architecture in LLVM's spelling: ``x86_64``, ``aarch64``, …"""
    name = platform.machine().lower()
    return {"amd64": "x86_64", "arm64": "aarch64"}.get(name, name)


def system() -> str:
    """The operating system in Python's spelling: ``linux``, ``darwin``, ``win32``, …"""
    return sys.platform


def known_features(arch: str) -> dict[str, str]:
    """LLVM feature name to /proc/cpuinfo name for an architecture (empty where unknown)."""
    return {"x86_64": X86_FEATURES, "aarch64": AARCH64_FEATURES}.get(arch, {})


@functools.lru_cache(maxsize=1)
def host_features() -> frozenset[str]:
    """The known features that this machine has; empty where /proc/cpuinfo cannot be read."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="ascii", errors="replace")
    except OSError:
        return frozenset()
    flags: set[str] = set()
    for line in text.splitlines():
        key, _, value = line.partition(":")
        if key.strip().lower() in ("flags", "features"):
            flags.update(value.split())
            break
    return frozenset(name for name, flag in known_features(machine()).items() if flag in flags)


def cache_bytes(level: int, default: int) -> int:
    """Bytes of the data (or unified) cache of one level as seen by CPU 0."""
    root = Path("/sys/devices/system/cpu/cpu0/cache")
    try:
        for index in sorted(root.glob("index*")):
            kind = (index / "type").read_text().strip()
            if kind != "Instruction" and int((index / "level").read_text()) == level:
                return _size((index / "size").read_text().strip())
    except (OSError, ValueError):
        pass  # containers may hide /sys; the caller's default serves
    return default


def _size(text: str) -> int:
    scale = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}.get(text[-1:], 1)
    return int(text.rstrip("KMG")) * scale


def usable_cpus() -> int:
    """How many CPUs this process may keep busy: its affinity, within its container's share."""
    if hasattr(os, "sched_getaffinity"):
        count = len(os.sched_getaffinity(0))
    else:
        count = os.cpu_count() or 1
    share = _container_share(Path("/sys/fs/cgroup"))
    return max(1, count if share is None else min(count, math.ceil(share)))


def _container_share(root: Path) -> float | None:
    """CPUs that the control group grants over time; ``None`` where it sets no limit.

    Threads beyond it would be stopped while others wait for them.
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
