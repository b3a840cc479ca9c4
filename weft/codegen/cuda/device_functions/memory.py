"""Asynchronous copies to shared memory: by threads (``cp.async``), by the TMA unit, and barriers.

Sections of the PTX ISA: ``cp.async``, ``mbarrier``, ``cp.async.bulk.tensor``.
"""

from __future__ import annotations

from weft.codegen.cuda.device_functions.record import DeviceFunction, Kind, Operand, reg
from weft.ir.dtype import handle
from weft.support.dataclass import dataclass
from weft.tir import Buffer, BufferLoad, Call, PrimExpr, StringImm, const


def _copy(nbytes: int) -> DeviceFunction:
    # ``cg`` bypasses L1, which helps data that the block reads once; it exists for 16 bytes only.
    cache = "cg" if nbytes == 16 else "ca"
    return DeviceFunction(
        f"cp_async_{nbytes}", f"cp.async.{cache}.shared.global [$dst], [$src], {nbytes}, $bytes;",
        (reg("dst", Kind.SHARED), reg("src", Kind.GLOBAL), reg("bytes", Kind.B32)),
        doc=f"copy ``bytes`` of {nbytes} bytes and write zeros for the rest; both addresses are "
            f"multiples of {nbytes}")


_ASYNC_COPY = (
    *(_copy(nbytes) for nbytes in (4, 8, 16)),
    DeviceFunction("cp_async_commit", "cp.async.commit_group;",
                   doc="the copies of this thread since the last commit are a group"),
    DeviceFunction("cp_async_wait", "cp.async.wait_group $pending;",
                   (reg("pending", Kind.IMMEDIATE),),
                   doc="wait until at most ``pending`` groups of this thread are incomplete"),
)


# An mbarrier is 8 bytes of shared memory that count arrivals and bytes (sm_90). Its phases
# alternate between parity 0 and 1; it starts in phase 0.
_BARRIER = reg("barrier", Kind.SHARED)


def _on_barrier(name: str, ptx: str, *operands: Operand, doc: str) -> DeviceFunction:
    return DeviceFunction(name, ptx, (_BARRIER, *operands), capability=(9, 0), ptx_version=(8, 0),
                          doc=doc)


_MBARRIER = (
    _on_barrier("mbarrier_init", "mbarrier.init.shared.b64 [$barrier], $count;",
                reg("count", Kind.B32), doc="a barrier whose phases end after ``count`` arrivals"),
    _on_barrier("mbarrier_arrive", "mbarrier.arrive.shared::cta.b64 _, [$barrier];",
                doc="count one arrival"),
    _on_barrier("mbarrier_expect",
                "mbarrier.arrive.expect_tx.shared::cta.b64 _, [$barrier], $bytes;",
                reg("bytes", Kind.B32),
                doc="count one arrival; the phase also waits for ``bytes`` bytes of TMA copies"),
    _on_barrier("mbarrier_wait",
                "{ .reg .pred p;\n"
                "WAIT: mbarrier.try_wait.parity.shared::cta.b64 p, [$barrier], $parity;\n"
                "@!p bra WAIT; }",
                reg("parity", Kind.B32), doc="wait for the end of the phase of that parity"),
    DeviceFunction("mbarrier_fence", "fence.mbarrier_init.release.cluster;", capability=(9, 0),
                   ptx_version=(8, 0), doc="make initialised barriers visible to TMA"),
)


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


def _tma_load(rank: int) -> DeviceFunction:
    """A copy of a box: its coordinates are those of the first element, innermost axis first.

    Elements out of bounds are zero.
    """
    axes = [reg(f"i{n}", Kind.B32) for n in range(rank)]
    where = ", ".join(f"${axis.name}" for axis in axes)
    return DeviceFunction(
        f"tma_load_{rank}d",
        f"cp.async.bulk.tensor.{rank}d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
        f"[$dst], [$map, {{{where}}}], [$barrier];",
        (reg("dst", Kind.SHARED), reg("map", Kind.TENSOR_MAP), reg("barrier", Kind.SHARED), *axes),
        capability=(9, 0), ptx_version=(8, 0),
        doc="copy a box to shared memory; ``barrier`` counts its bytes. One thread calls it")


_TMA = (
    *(_tma_load(rank) for rank in (1, 2, 3, 4, 5)),
    DeviceFunction("tma_prefetch_map", "prefetch.tensormap [$map];",
                   (reg("map", Kind.TENSOR_MAP),), capability=(9, 0), ptx_version=(8, 0),
                   doc="fetch the tensor map, which the first copy would wait for"),
)
FUNCTIONS = (*_ASYNC_COPY, *_MBARRIER, *_TMA)
