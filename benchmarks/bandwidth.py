"""Bandwidth of this machine at any size, measured with weft loop programs."""

from __future__ import annotations

import functools
import time
from collections.abc import Sequence

from weft.codegen import CPU_BACKEND
from weft.ir.dtype import float32
from weft.runtime.arena import AlignedBlock
from weft.runtime.threads import threading_of
from weft.target import CpuTarget
from weft.tir.buffer import Buffer
from weft.tir.expr import BufferLoad, PrimExpr, Ramp, Var, const
from weft.tir.func import PrimFunc
from weft.tir.stmt import Allocate, BufferStore, For, ForKind, Stmt, seq
from weft.tir.transform.pipeline import lower_prim_func

LANES = 16
VECTORS = 8
STEP = 4 * LANES * VECTORS  # bytes of one iteration
TARGET_SECONDS = 0.005
ROUNDS = 7


def copy_bandwidth(nbytes: int, threads: int) -> float:
    """GB/s, reads plus writes, of repeatedly copying ``nbytes / 2`` bytes.

    Every thread copies its own chunk repeatedly; the best of ``ROUNDS`` rounds counts.
    """
    steps = max(1, nbytes // 2 // STEP // threads)
    size = steps * STEP * threads
    return _rate("copy", steps, threads, (size, size), 2 * size)


def read_bandwidth(nbytes: int, threads: int) -> float:
    """GB/s of repeatedly adding up ``nbytes`` bytes of float32; otherwise as ``copy_bandwidth``."""
    steps = max(1, nbytes // STEP // threads)
    size = steps * STEP * threads
    return _rate("read", steps, threads, (size, STEP * threads), size)


def _rate(name: str, steps: int, threads: int, sizes: Sequence[int], moved: int) -> float:
    repeats = max(1, int(TARGET_SECONDS * 50e9 * threads / moved))
    blocks = [AlignedBlock(size) for size in sizes]
    for block in blocks:
        block.array[:] = 1
    host = CpuTarget.host()
    body = (_copy if name == "copy" else _read)(steps, repeats, threads)
    code = CPU_BACKEND.build_kernel(lower_prim_func(body), host)
    library = CPU_BACKEND.load([*CPU_BACKEND.support_objects(host), code], host)
    threading_of(library).apply(threads)
    call = library.kernel(body.name, len(blocks))
    run = functools.partial(call, *(block.address for block in blocks))
    run()
    return 1e-9 * moved * repeats / min(_seconds(run) for _ in range(ROUNDS))


def _seconds(run: functools.partial[None]) -> float:
    started = time.perf_counter()
    run()
    return time.perf_counter() - started


def _copy(steps: int, repeats: int, threads: int) -> PrimFunc:
    count = const(steps * threads * LANES * VECTORS)
    source, target = (Buffer(name, (count,), float32) for name in ("source", "target"))
    thread, repeat, at = (Var(name) for name in ("thread", "repeat", "at"))
    stores = [BufferStore(target, BufferLoad(source, (index,)), (index,))
              for index in map(functools.partial(_index, thread * steps + at), range(VECTORS))]
    body = For(at, const(0), const(steps), ForKind.SERIAL, seq(stores))
    return PrimFunc("copy", (source, target), _on_threads(body, thread, repeat, repeats, threads))


def _read(steps: int, repeats: int, threads: int) -> PrimFunc:
    """Sums in registers, one per vector of an iteration, are stored once per repeat."""
    source = Buffer("source", (const(steps * threads * LANES * VECTORS),), float32)
    target = Buffer("target", (const(threads * LANES * VECTORS),), float32)
    sums = Buffer("sums", (const(LANES * VECTORS),), float32, "local")
    thread, repeat, at = (Var(name) for name in ("thread", "repeat", "at"))
    adds, zeros, stores = [], [], []
    for vector in range(VECTORS):
        here, there = _index(const(0), vector), _index(thread * steps + at, vector)
        one = BufferLoad(sums, (here,))
        zeros.append(BufferStore(sums, BufferLoad(target, (_index(thread, vector),)), (here,)))
        adds.append(BufferStore(sums, one + BufferLoad(source, (there,)), (here,)))
        stores.append(BufferStore(target, one, (_index(thread, vector),)))
    loop = For(at, const(0), const(steps), ForKind.SERIAL, seq(adds))
    body = Allocate(sums, seq([*zeros, loop, *stores]))
    return PrimFunc("read", (source, target), _on_threads(body, thread, repeat, repeats, threads))


def _index(iteration: PrimExpr, vector: int) -> PrimExpr:
    return Ramp((iteration * VECTORS + vector) * LANES, const(1), LANES)


def _on_threads(body: Stmt, thread: Var, repeat: Var, repeats: int, threads: int) -> Stmt:
    body = For(repeat, const(0), const(repeats), ForKind.SERIAL, body)
    return For(thread, const(0), const(threads), ForKind.PARALLEL, body)
