"""Copies of boxes of tensors by the TMA unit (PTX ISA, ``cp.async.bulk.tensor``; sm_90).

A tensor map describes the tensor, the box and the swizzle; elements out of bounds are zero.
Coordinates are those of the box's first element, innermost axis first.
"""

from __future__ import annotations

from weft.codegen.cuda.device_functions.record import DeviceFunction, Kind, reg


def _load(rank: int) -> DeviceFunction:
    axes = [reg(f"i{n}", Kind.B32) for n in range(rank)]
    where = ", ".join(f"${axis.name}" for axis in axes)
    return DeviceFunction(
        f"tma_load_{rank}d",
        f"cp.async.bulk.tensor.{rank}d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
        f"[$dst], [$map, {{{where}}}], [$barrier];",
        (reg("dst", Kind.SHARED), reg("map", Kind.TENSOR_MAP), reg("barrier", Kind.SHARED), *axes),
        capability=(9, 0), ptx_version=(8, 0),
        doc="copy a box to shared memory; ``barrier`` counts its bytes. One thread calls it")


FUNCTIONS = (
    *(_load(rank) for rank in (1, 2, 3, 4, 5)),
    DeviceFunction("tma_prefetch_map", "prefetch.tensormap [$map];",
                   (reg("map", Kind.TENSOR_MAP),), capability=(9, 0), ptx_version=(8, 0),
                   doc="fetch the tensor map, which the first copy would wait for"),
)
