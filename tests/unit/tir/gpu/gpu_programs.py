"""Schedules for GPUs, as loop programs before any pass."""

from __future__ import annotations

from weft import te
from weft.te.lower import lower
from weft.tir.func import PrimFunc
from weft.tir.stmt import Evaluate
from weft.tir.visitor import post_order_stmts


def tiled_matmul(m: int = 24, n: int = 20, k: int = 12) -> PrimFunc:
    """C = A B by tiles of 8 x 8 in shared memory, 2 x 2 elements to a thread; 16 threads."""
    a, b = te.placeholder((m, k), name="A"), te.placeholder((k, n), name="B")
    r = te.reduce_axis(k, "k")
    c = te.compute((m, n), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), name="C")
    s = te.create_schedule(c)
    shared = [s.cache_read(a, "shared", [c]), s.cache_read(b, "shared", [c])]
    local = s.cache_write(c, "local")
    stage = s[c]
    blocks_i, i = stage.split(stage.axis[0], factor=8)
    blocks_j, j = stage.split(stage.axis[1], factor=8)
    threads_i, i = stage.split(i, factor=2)
    threads_j, j = stage.split(j, factor=2)
    stage.reorder(blocks_i, blocks_j, threads_i, threads_j, i, j)
    for axis, tag in ((blocks_i, "blockIdx.y"), (blocks_j, "blockIdx.x"),
                      (threads_i, "threadIdx.y"), (threads_j, "threadIdx.x")):
        stage.bind(axis, tag)
    s[local].compute_at(stage, threads_j)
    outer, inner = s[local].split(s[local].reduce_axis[0], factor=4)
    s[local].reorder(outer, inner, *s[local].axis)
    for tile in shared:
        copy = s[tile]
        copy.compute_at(s[local], outer)
        _, x = copy.split(copy.fuse(*copy.axis), factor=4)
        _, y = copy.split(copy.leaf_iter_vars[0], factor=4)
        copy.bind(x, "threadIdx.x")
        copy.bind(y, "threadIdx.y")
    return lower(s, [a, b, c], "matmul")


def row_sums(rows: int, columns: int, threads: int) -> PrimFunc:
    """The sum of each row by one block, whose threads share the reduction axis."""
    a = te.placeholder((rows, columns), name="A")
    k = te.reduce_axis(columns, "k")
    b = te.compute((rows,), lambda i: te.sum(a[i, k], axis=k), name="B")
    s = te.create_schedule(b)
    _, lane = s[b].split(k, factor=threads)
    s[b].bind(s[b].axis[0], "blockIdx.x")
    s[b].bind(lane, "threadIdx.x")
    return lower(s, [a, b], "row_sums")


def barriers(func: PrimFunc) -> int:
    """The number of barriers in the text of a program."""
    return sum(isinstance(n, Evaluate) and getattr(n.value, "name", "") == "barrier"
               for n in post_order_stmts(func.body))
