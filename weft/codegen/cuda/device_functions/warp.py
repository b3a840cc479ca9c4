"""Functions of the threads of a warp or block: exchange of registers, barriers, fences, atomics.

Sections of the PTX ISA: ``shfl.sync``, ``vote``, ``bar``, ``fence``, ``atom``.
"""

from __future__ import annotations

from weft.codegen.cuda.device_functions.record import DeviceFunction, Kind, reg

_ALL = "0xffffffff"  # all threads of the warp take part


def _shuffle(mode: str, name: str, kind: Kind, bound: str, doc: str) -> DeviceFunction:
    return DeviceFunction(
        f"shfl_{name}_{kind}", f"shfl.sync.{mode}.b32 $d, $value, $lane, {bound}, {_ALL};",
        (reg("value", kind), reg("lane", Kind.B32)), reg("d", kind), converges=True, doc=doc)


_MODES = (
    ("bfly", "xor", "0x1f", "the value of the thread whose lane differs by the bits of ``lane``"),
    ("down", "down", "0x1f", "the value of the thread ``lane`` lanes above"),
    ("up", "up", "0x0", "the value of the thread ``lane`` lanes below"),
    ("idx", "idx", "0x1f", "the value of the thread in that lane"),
)
_SHUFFLE = (
    *(_shuffle(mode, name, kind, bound, doc) for kind in (Kind.F32, Kind.B32)
      for mode, name, bound, doc in _MODES),
    DeviceFunction(
        "vote_any",
        "{ .reg .pred p; setp.ne.b32 p, $flag, 0; .reg .pred q; "
        f"vote.sync.any.pred q, p, {_ALL}; selp.b32 $d, 1, 0, q; }}",
        (reg("flag", Kind.B32),), reg("d", Kind.B32), converges=True,
        doc="1 if ``flag`` is not 0 in any thread of the warp, else 0"),
    DeviceFunction("warp_sync", f"bar.warp.sync {_ALL};", converges=True,
                   doc="wait for all threads of the warp; what they wrote can be read then"),
)


# ``barrier`` itself, which all threads of a block reach, is an intrinsic of every GPU.
_BARRIER = (
    DeviceFunction(
        "barrier_sync", "bar.sync $number, $threads;",
        (reg("number", Kind.B32), reg("threads", Kind.B32)), converges=True,
        doc="wait at barrier ``number`` (1 to 15) until ``threads`` threads have reached it"),
    DeviceFunction(
        "barrier_arrive", "bar.arrive $number, $threads;",
        (reg("number", Kind.B32), reg("threads", Kind.B32)), converges=True,
        doc="count as having reached barrier ``number``, and go on"),
    DeviceFunction("fence_block", "fence.acq_rel.cta;",
                   doc="order accesses to memory as the threads of the block see them"),
    DeviceFunction("fence_device", "fence.acq_rel.gpu;",
                   doc="order accesses to memory as all threads of the device see them"),
    DeviceFunction(
        "fence_proxy_async", "fence.proxy.async.shared::cta;", capability=(9, 0),
        ptx_version=(8, 0),
        doc="make stores to shared memory visible to TMA and ``wgmma``, which read it by another "
            "path than loads"),
)


# Atomic updates of global and shared memory; the result is the old value.
_TYPES = {"f32": Kind.F32, "f64": Kind.F64, "s32": Kind.B32, "u32": Kind.B32, "s64": Kind.B64,
          "u64": Kind.B64, "b32": Kind.B32, "b64": Kind.B64}
_UPDATES = (
    ("add", ("f32", "f64", "s32", "u32", "u64")),  # u64 also serves signed integers
    ("min", ("s32", "u32", "s64", "u64")),
    ("max", ("s32", "u32", "s64", "u64")),
    ("and", ("b32", "b64")), ("or", ("b32", "b64")), ("exch", ("b32", "b64")),
)


def _update(name: str, dtype: str, space: Kind) -> DeviceFunction:
    kind = _TYPES[dtype]
    return DeviceFunction(
        f"atomic_{name}_{space}_{dtype}", f"atom.{space}.{name}.{dtype} $d, [$at], $value;",
        (reg("at", space), reg("value", kind)), reg("d", kind),
        doc=f"update an element by ``{name}``")


def _compare(bits: int, space: Kind) -> DeviceFunction:
    kind = Kind.B32 if bits == 32 else Kind.B64
    return DeviceFunction(
        f"atomic_cas_{space}_b{bits}", f"atom.{space}.cas.b{bits} $d, [$at], $expected, $value;",
        (reg("at", space), reg("expected", kind), reg("value", kind)), reg("d", kind),
        doc="store ``value`` where the element has the bits of ``expected``")


_ATOMICS = (
    *(_update(name, dtype, space) for space in (Kind.GLOBAL, Kind.SHARED)
      for name, dtypes in _UPDATES for dtype in dtypes),
    *(_compare(bits, space) for space in (Kind.GLOBAL, Kind.SHARED) for bits in (32, 64)),
)
FUNCTIONS = (*_SHUFFLE, *_BARRIER, *_ATOMICS)
