"""The features of CPUs that a target may name, and which features build on which."""

from __future__ import annotations

_V2 = ("cx16", "popcnt", "sse3", "sse4.1", "sse4.2", "ssse3")
_V3 = (*_V2, "avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe")
_V4 = (*_V3, "avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl")
_ICELAKE = (
    *_V4, "adx", "aes", "avx512bitalg", "avx512ifma", "avx512vbmi", "avx512vbmi2", "avx512vnni",
    "avx512vpopcntdq", "gfni", "pclmul", "vaes", "vpclmulqdq",
)  # fmt: skip

CPU_FEATURES: dict[str, tuple[str, ...]] = {
    "x86-64": (),
    "x86-64-v2": _V2,
    "x86-64-v3": _V3,
    "x86-64-v4": _V4,
    "nehalem": _V2,
    "haswell": (*_V3, "aes", "pclmul"),
    "broadwell": (*_V3, "adx", "aes", "pclmul"),
    "skylake": (*_V3, "adx", "aes", "pclmul"),
    "skylake-avx512": (*_V4, "adx", "aes", "pclmul"),
    "cascadelake": (*_V4, "adx", "aes", "avx512vnni", "pclmul"),
    "icelake-server": _ICELAKE,
    "sapphirerapids": (*_ICELAKE, "avx512bf16", "avx512fp16", "avxvnni"),
    "znver1": (*_V3, "adx", "aes", "pclmul"),
    "znver2": (*_V3, "adx", "aes", "pclmul"),
    "znver3": (*_V3, "adx", "aes", "pclmul", "vaes", "vpclmulqdq"),
    "znver4": (*_ICELAKE, "avx512bf16"),
    "znver5": (*_ICELAKE, "avx512bf16", "avx512vp2intersect", "avxvnni"),
}
# The features of "generic", the only CPU name for architectures other than x86-64.
_GENERIC = {"x86_64": (), "aarch64": ("neon",), "riscv64": ("a", "c", "d", "f", "m")}


def named_features(cpu: str, arch: str) -> tuple[str, ...] | None:
    """The features of a CPU beyond the baseline of ``arch``; ``None`` for an unknown name."""
    if cpu == "generic":
        return _GENERIC.get(arch, ())
    return CPU_FEATURES.get(cpu) if arch == "x86_64" else None


def named_cpus(arch: str) -> list[str]:
    """The CPU names that ``named_features`` knows for an architecture, sorted."""
    return sorted([*(CPU_FEATURES if arch == "x86_64" else ()), "generic"])

_ON_AVX512F = (
    "avx512bw", "avx512cd", "avx512dq", "avx512vl", "avx512ifma", "avx512vpopcntdq",
    "avx512vp2intersect",
)  # fmt: skip
_ON_AVX512BW = ("avx512vbmi", "avx512vbmi2", "avx512vnni", "avx512bitalg", "avx512bf16")

# A feature requires the features that it builds on.
IMPLIED: dict[str, tuple[str, ...]] = {
    "sse4.2": ("sse4.1",), "sse4.1": ("ssse3",), "ssse3": ("sse3",),
    "avx": ("sse4.2",), "avx2": ("avx",), "fma": ("avx",), "f16c": ("avx",),
    "avxvnni": ("avx2",), "avx512f": ("avx2", "fma", "f16c"),
    **dict.fromkeys(_ON_AVX512F, ("avx512f",)),
    **dict.fromkeys(_ON_AVX512BW, ("avx512bw",)),
    "avx512fp16": ("avx512bw", "avx512dq", "avx512vl"),
    "sve2": ("sve",), "d": ("f",),
}  # fmt: skip


def with_implied(features: frozenset[str]) -> frozenset[str]:
    """``features`` and all features that they build on, directly or not."""
    pending, closed = sorted(features), set[str]()
    while pending:
        name = pending.pop()
        if name not in closed:
            closed.add(name)
            pending.extend(IMPLIED.get(name, ()))
    return frozenset(closed)


def without(features: frozenset[str], name: str) -> frozenset[str]:
    """``features`` without ``name`` and without the features that build on it."""
    return frozenset(f for f in features if name not in with_implied(frozenset((f,))))
