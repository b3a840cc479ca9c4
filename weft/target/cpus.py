"""The CPUs that a target may name: their features, and the features that each feature requires."""

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
    "emeraldrapids": (*_ICELAKE, "avx512bf16", "avx512fp16", "avxvnni"),
    "alderlake": (*_V3, "adx", "aes", "avxvnni", "gfni", "pclmul", "vaes", "vpclmulqdq"),
    "znver1": (*_V3, "adx", "aes", "pclmul"),
    "znver2": (*_V3, "adx", "aes", "pclmul"),
    "znver3": (*_V3, "adx", "aes", "pclmul", "vaes", "vpclmulqdq"),
    "znver4": (*_ICELAKE, "avx512bf16"),
    "znver5": (*_ICELAKE, "avx512bf16", "avx512vp2intersect", "avxvnni"),
}
_ARM_SERVER = ("dotprod", "fullfp16", "lse", "neon")
AARCH64_CPU_FEATURES: dict[str, tuple[str, ...]] = {
    "apple-m1": _ARM_SERVER,
    "cortex-a72": ("neon",),
    "neoverse-n1": _ARM_SERVER,
    "neoverse-v1": (*_ARM_SERVER, "bf16", "i8mm", "sve"),
    "neoverse-v2": (*_ARM_SERVER, "bf16", "i8mm", "sve", "sve2"),
}
# What LLVM calls thumb2, dsp and mclass follows from triples and names of CPUs.
_ARMV7 = ("fp64", "hwdiv", "hwdiv-arm", "neon", "vfp4", "vfp4d16sp")
ARM_CPU_FEATURES: dict[str, tuple[str, ...]] = {
    "cortex-a7": _ARMV7,
    "cortex-a15": _ARMV7,
    "cortex-a9": ("fp64", "neon"),
    "cortex-m3": ("hwdiv",),
    "cortex-m4": ("hwdiv", "vfp4d16sp"),
    "cortex-m7": ("fp64", "hwdiv", "vfp4d16sp"),
    "cortex-m33": ("hwdiv", "vfp4d16sp"),
}
_RV64GC = ("a", "c", "d", "f", "m")
RISCV_CPU_FEATURES: dict[str, tuple[str, ...]] = {
    "sifive-u74": (*_RV64GC, "zba", "zbb"),
    "sifive-p670": (*_RV64GC, "v", "zba", "zbb"),
    "spacemit-x60": (*_RV64GC, "v", "zba", "zbb", "zfhmin", "zvfhmin"),
}
# The versions of the standard: the first one, and the third without garbage collection, threads.
_WASM_TWO = ("bulk-memory", "bulk-memory-opt", "nontrapping-fptoint", "sign-ext")
WASM_CPU_FEATURES: dict[str, tuple[str, ...]] = {
    "mvp": (),
    "lime1": _WASM_TWO,
    "simd": (*_WASM_TWO, "simd128"),
}
_CPUS = {"x86_64": CPU_FEATURES, "aarch64": AARCH64_CPU_FEATURES, "arm": ARM_CPU_FEATURES,
         "riscv64": RISCV_CPU_FEATURES, "wasm32": WASM_CPU_FEATURES}
# The features of "generic", which every architecture has.
_GENERIC = {"x86_64": (), "aarch64": ("neon",), "riscv64": _RV64GC, "arm": (),
            "wasm32": _WASM_TWO}
# The shipped machine (``weft.target.machine_tables``) of a CPU.
MACHINES_OF_CPUS: dict[tuple[str, str], str] = {
    ("x86_64", "znver1"): "zen1", ("x86_64", "znver2"): "zen2", ("x86_64", "znver3"): "zen3",
    ("x86_64", "znver4"): "zen4", ("x86_64", "znver5"): "zen5",
    ("x86_64", "haswell"): "haswell", ("x86_64", "broadwell"): "haswell",
    ("x86_64", "x86-64-v3"): "haswell", ("x86_64", "skylake"): "skylake",
    ("x86_64", "skylake-avx512"): "skylake-x", ("x86_64", "cascadelake"): "skylake-x",
    ("x86_64", "x86-64-v4"): "skylake-x", ("x86_64", "icelake-server"): "icelake-server",
    ("x86_64", "sapphirerapids"): "sapphirerapids", ("x86_64", "emeraldrapids"): "emeraldrapids",
    ("x86_64", "alderlake"): "alderlake", ("x86_64", "raptorlake"): "alderlake",
    ("aarch64", "apple-m1"): "apple", ("aarch64", "cortex-a72"): "cortex-a72",
    ("aarch64", "neoverse-n1"): "neoverse-n1", ("aarch64", "neoverse-v1"): "neoverse-v1",
    ("aarch64", "neoverse-v2"): "neoverse-v2",
}


def named_features(cpu: str, arch: str) -> tuple[str, ...] | None:
    """The features of a CPU beyond the baseline of ``arch``; ``None`` for an unknown name."""
    if cpu == "generic":
        return _GENERIC.get(arch, ())
    return _CPUS.get(arch, {}).get(cpu)


def named_cpus(arch: str) -> list[str]:
    """The CPU names that ``named_features`` knows for an architecture, sorted."""
    return sorted([*_CPUS.get(arch, ()), "generic"])


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
    "sve2": ("sve",), "d": ("f",), "v": ("d",), "zfhmin": ("f",), "zvfhmin": ("v", "zfhmin"),
    "vfp4": ("vfp4d16sp",), "relaxed-simd": ("simd128",),
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
