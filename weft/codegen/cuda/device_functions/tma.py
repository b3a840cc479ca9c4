"""Copies of boxes of tensors by the TMA unit (PTX ISA, ``cp.async.bulk.tensor``; sm_90).

A tensor map describes the tensor, the box and the swizzle; elements out of bounds are zero.
Coordinates are those of the box's first element, innermost axis first.
"""

from __future__ import annotations

from weft.codegen.cuda.device_functions.record import DeviceFunction, Kind, reg
from weft.ir.dtype import handle
from weft.support.dataclass import dataclass
from weft.tir import Buffer, BufferLoad, Call, PrimExpr, StringImm, const

# The intrinsic whose value is the address of a tensor map, which the launcher passes by value.
TENSOR_MAP = "tensor_map"


@dataclass(frozen=True, slots=True)
class MapFields:
    """A tensor map without its address: sizes in elements, strides in bytes, innermost axis first.

    ``strides`` are those of all axes but the innermost.
    """

    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    swizzle: int = 0


def tensor_map(buffer: Buffer, fields: MapFields) -> PrimExpr:
    """The map of a parameter of the kernel, as an operand of the copies."""
    first = BufferLoad(buffer, tuple(const(0) for _ in buffer.shape))
    lists = (fields.shape, fields.strides, fields.box, (fields.swizzle,))
    text = ";".join([fields.dtype, *(",".join(map(str, each)) for each in lists)])
    return Call(handle, TENSOR_MAP, (Call(handle, "address_of", (first,)), StringImm(text)))


def map_fields(call: Call) -> tuple[Buffer, MapFields]:
    """The buffer and the fields of a call of ``tensor_map``."""
    address, text = call.args
    assert isinstance(address, Call)
    assert isinstance(text, StringImm)
    element = address.args[0]
    assert isinstance(element, BufferLoad)
    dtype, *lists = text.value.split(";")
    shape, strides, box, (swizzle,) = map(_numbers, lists)
    return element.buffer, MapFields(dtype, shape, strides, box, swizzle)


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(map(int, filter(None, text.split(","))))


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
