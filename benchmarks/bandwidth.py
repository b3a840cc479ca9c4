"""Bandwidth of copies and of reads on this machine, measured with weft loop programs."""

from __future__ import annotations

import functools
import time

from weft.codegen import CPU_BACKEND
from weft.ir.dtype import float32
from weft.runtime.arena import AlignedBlock
from weft.runtime.devices.cpu.threads import threading_of
from weft.target import CpuTarget
from weft.tir.buffer import Buffer
from weft.tir.expr import BufferLoad, PrimExpr, Ramp, Var, const
from weft.tir.func import PrimFunc
from weft.tir.stmt import BufferStore, For, ForKind, Stmt, seq
from weft.tir.transform.pipeline import lower_prim_func

LANES = 16
VECTORS = 4
LINES = 64  # that sums of reads go to
TARGET_SECONDS = 0.005
ROUNDS = 7


def copy_bandwidth(nbytes: int, threads: int) -> float:
    """GB/s, reads plus writes, of repeatedly copying ``nbytes / 2`` bytes.

    Every thread copies its own chunk repeatedly; the best of ``ROUNDS`` rounds counts.
    """
    return 2 * _rate(nbytes // 2, threads, reads=False)


def read_bandwidth(nbytes: int, threads: int) -> float:
    """GB/s of repeatedly reading ``nbytes``, each thread a chunk of its own."""
    return _rate(nbytes, threads, reads=True)


def _rate(nbytes: int, threads: int, *, reads: bool) -> float:
    step = 4 * LANES * VECTORS
    steps = max(1, nbytes // step // threads)
    size = steps * step * threads
    source, target = AlignedBlock(size), AlignedBlock(size)
    repeats = max(1, int(TARGET_SECONDS * 25e9 * threads / size))
    host = CpuTarget.host()
    made = _read_object if reads else _copy_object
    objects = [*CPU_BACKEND.support_objects(host), made(steps, repeats, threads)]
    library = CPU_BACKEND.load(objects, host)
    threading_of(library).apply(threads)
    call = library.kernel("copy", 2)
    for block in (source, target):
        block.array[:] = 1
    run = functools.partial(call, source.address, target.address)
    run()
    return 1e-9 * size * repeats / min(_seconds(run) for _ in range(ROUNDS))


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
    return _object(source, target, (thread, repeat, at), (steps, repeats, threads), seq(stores))


def _read_object(steps: int, repeats: int, threads: int) -> bytes:
    """Each step stores the sum of its vectors into one of a few lines of the thread."""
    count = const(steps * threads * LANES * VECTORS)
    source, target = (Buffer(name, (count,), float32) for name in ("source", "target"))
    thread, repeat, at = (Var(name) for name in ("thread", "repeat", "at"))
    first = (thread * steps + at) * VECTORS * LANES
    total: PrimExpr = BufferLoad(source, (Ramp(first, const(1), LANES),))
    for vector in range(1, VECTORS):
        total = total + BufferLoad(source, (Ramp(first + vector * LANES, const(1), LANES),))
    line = thread * (steps * VECTORS) + at % min(LINES, steps)
    place = Ramp(line * LANES, const(1), LANES)
    return _object(source, target, (thread, repeat, at), (steps, repeats, threads),
                   BufferStore(target, total, (place,)))


def _object(source: Buffer, target: Buffer, loops: tuple[Var, Var, Var],
            sizes: tuple[int, int, int], body: Stmt) -> bytes:
    thread, repeat, at = loops
    steps, repeats, threads = sizes
    body = For(at, const(0), const(steps), ForKind.SERIAL, body)
    body = For(repeat, const(0), const(repeats), ForKind.SERIAL, body)
    body = For(thread, const(0), const(threads), ForKind.PARALLEL, body)
    func = lower_prim_func(PrimFunc("copy", (source, target), body))
    return CPU_BACKEND.build_kernel(func, CpuTarget.host())


if __name__ == "__main__":
    for count in (1, 2):
        print(f"{count} threads: copies {copy_bandwidth(1 << 29, count):.1f}, reads "
              f"{read_bandwidth(1 << 29, count):.1f} GB/s")
