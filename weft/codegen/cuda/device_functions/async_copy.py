"""Asynchronous copies from global to shared memory (PTX ISA, ``cp.async``)."""

from __future__ import annotations

from weft.codegen.cuda.device_functions.record import DeviceFunction, Kind, reg


def _copy(nbytes: int) -> DeviceFunction:
    # ``cg`` bypasses L1, which helps data that the block reads once; it exists for 16 bytes only.
    cache = "cg" if nbytes == 16 else "ca"
    return DeviceFunction(
        f"cp_async_{nbytes}", f"cp.async.{cache}.shared.global [$dst], [$src], {nbytes}, $bytes;",
        (reg("dst", Kind.SHARED), reg("src", Kind.GLOBAL), reg("bytes", Kind.B32)),
        doc=f"copy ``bytes`` of {nbytes} bytes and write zeros for the rest; both addresses are "
            f"multiples of {nbytes}")


FUNCTIONS = (
    *(_copy(nbytes) for nbytes in (4, 8, 16)),
    DeviceFunction("cp_async_commit", "cp.async.commit_group;",
                   doc="the copies of this thread since the last commit are a group"),
    DeviceFunction("cp_async_wait", "cp.async.wait_group $pending;",
                   (reg("pending", Kind.IMMEDIATE),),
                   doc="wait until at most ``pending`` groups of this thread are incomplete"),
)
