"""Copy bandwidth of this machine at any size, measured with a weft loop program."""

from __future__ import annotations

import functools
import time

from weft.codegen import CPU_BACKEND
from weft.ir.dtype import float32
from weft.runtime.arena import AlignedBlock
from weft.runtime.devices.cpu.threads import threading_of
from weft.target import CpuTarget
from weft.tir.buffer import Buffer
from weft.tir.expr import BufferLoad, Ramp, Var, const
from weft.tir.func import PrimFunc
from weft.tir.stmt import BufferStore, For, ForKind, seq
from weft.tir.transform.pipeline import lower_prim_func

LANES = 16
VECTORS = 4
TARGET_SECONDS = 0.005
ROUNDS = 7


def copy_bandwidth(nbytes: int, threads: int) -> float:
    """GB/s, reads plus writes, of repeatedly copying ``nbytes / 2`` bytes.

    Every thread copies its own chunk repeatedly; the best of ``ROUNDS`` rounds counts.
    """
    step = 4 * LANES * VECTORS
    steps = max(1, nbytes // 2 // step // threads)
    size = steps * step * threads
    source, target = AlignedBlock(size), AlignedBlock(size)
    repeats = max(1, int(TARGET_SECONDS * 50e9 * threads / (2 * size)))
    host = CpuTarget.host()
    objects = [*CPU_BACKEND.support_objects(host), _copy_object(steps, repeats, threads)]
    library = CPU_BACKEND.load(objects, host)
    threading_of(library).apply(threads)
    call = library.kernel("copy", 2)
    for block in (source, target):
        block.array[:] = 1
    run = functools.partial(call, source.address, target.address)
    run()
    return 2e-9 * size * repeats / min(_seconds(run) for _ in range(ROUNDS))


def _seconds(run: functools.partial[None]) -> float:
    started = time.perf_counter()
    run()
    return time.perf_counter() - started


def _copy_object(steps: int, repeats: int, threads: int) -> bytes:
    count = const(steps * threads * LANES * VECTORS)
    source, target = (Buffer(name, (count,), float32) for name in ("source", "target"))
    thread, repeat, at = (Var(name) for name in ("thread", "repeat", "at"))
    stores = []
    for vector in range(VECTORS):
        first = ((thread * steps + at) * VECTORS + vector) * LANES
        index = Ramp(first, const(1), LANES)
        stores.append(BufferStore(target, BufferLoad(source, (index,)), (index,)))
    body = For(at, const(0), const(steps), ForKind.SERIAL, seq(stores))
    body = For(repeat, const(0), const(repeats), ForKind.SERIAL, body)
    body = For(thread, const(0), const(threads), ForKind.PARALLEL, body)
    func = lower_prim_func(PrimFunc("copy", (source, target), body))
    return CPU_BACKEND.build_kernel(func, CpuTarget.host())
