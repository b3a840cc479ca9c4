"""Barriers in shared memory that count arrivals and bytes (PTX ISA, ``mbarrier``; sm_90).

A barrier is 8 bytes. Its phases alternate between parity 0 and 1; it starts in phase 0.
"""

from __future__ import annotations

from weft.codegen.cuda.device_functions.record import DeviceFunction, Kind, Operand, reg

_BARRIER = reg("barrier", Kind.SHARED)


def _function(name: str, ptx: str, *operands: Operand, doc: str) -> DeviceFunction:
    return DeviceFunction(name, ptx, (_BARRIER, *operands), capability=(9, 0), ptx_version=(8, 0),
                          doc=doc)


FUNCTIONS = (
    _function("mbarrier_init", "mbarrier.init.shared.b64 [$barrier], $count;",
              reg("count", Kind.B32), doc="a barrier whose phases end after ``count`` arrivals"),
    _function("mbarrier_arrive", "mbarrier.arrive.shared::cta.b64 _, [$barrier];",
              doc="count one arrival"),
    _function("mbarrier_expect", "mbarrier.arrive.expect_tx.shared::cta.b64 _, [$barrier], $bytes;",
              reg("bytes", Kind.B32),
              doc="count one arrival; the phase also waits for ``bytes`` bytes of TMA copies"),
    _function("mbarrier_wait",
              "{ .reg .pred p;\n"
              "WAIT: mbarrier.try_wait.parity.shared::cta.b64 p, [$barrier], $parity;\n"
              "@!p bra WAIT; }",
              reg("parity", Kind.B32), doc="wait for the end of the phase of that parity"),
    DeviceFunction("mbarrier_fence", "fence.mbarrier_init.release.cluster;", capability=(9, 0),
                   ptx_version=(8, 0), doc="make initialised barriers visible to TMA"),
)
