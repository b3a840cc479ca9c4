"""Named barriers and memory fences (PTX ISA, ``bar``, ``fence``).

``barrier`` itself, which all threads of a block reach, is an intrinsic of every GPU.
"""

from __future__ import annotations

from weft.codegen.cuda.device_functions.record import DeviceFunction, Kind, reg

FUNCTIONS = (
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
