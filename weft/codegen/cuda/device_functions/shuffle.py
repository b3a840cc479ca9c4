"""Exchange of registers between the threads of a warp (PTX ISA, ``shfl.sync``, ``vote``)."""

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
FUNCTIONS = (
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
