"""One GEMM under increasingly optimised schedules: ``python -m benchmarks.schedule_steps``.

docs/schedules.md explains the steps and shows these functions.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import click
import numpy as np

from weft import te
from weft.codegen import CPU_BACKEND
from weft.runtime.arena import aligned_bytes
from weft.runtime.devices.cpu.rates import measure_fma_peak
from weft.runtime.devices.cpu.threads import threading_of
from weft.target import CpuTarget, Target
from weft.tir.expr import PrimExpr
from weft.tir.func import PrimFunc
from weft.tir.transform.pipeline import lower_prim_func


@dataclass(frozen=True, slots=True)
class Tile:
    """The register block of the microkernel: ``mr`` rows by ``vectors`` vectors of ``lanes``."""

    mr: int
    vectors: int
    lanes: int

    @property
    def nr(self) -> int:
        """Columns of the register block, and of a packed panel of B."""
        return self.vectors * self.lanes

    @staticmethod
    def of(target: Target) -> Tile:
        """Choose ``mr`` so that accumulators, vectors of ``b`` and a broadcast of ``a`` fit."""
        mr = 8 if target.vector_registers >= 32 else 4
        return Tile(mr, 3, target.lanes("float32"))


Program = tuple[te.Schedule, list[te.Tensor]]
MC, NC, KC = 64, 256, 64  # cache blocks of M, N and K, by the names of BLIS


def gemm(n: int) -> tuple[te.Tensor, te.Tensor, te.Tensor]:
    a = te.placeholder((n, n), name="a")
    b = te.placeholder((n, n), name="b")
    k = te.reduce_axis(n, "k")
    c = te.compute((n, n), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="c")
    return a, b, c


def naive(n: int, tile: Tile) -> Program:  # noqa: ARG001 - every step takes the same
    a, b, c = gemm(n)
    return te.create_schedule(c), [a, b, c]


def vectorized(n: int, tile: Tile) -> Program:
    a, b, c = gemm(n)
    s = te.create_schedule(c)
    i, j = s[c].axis
    (k,) = s[c].reduce_axis
    columns, lane = s[c].split(j, factor=tile.lanes)
    s[c].reorder(i, k, columns, lane)
    s[c].vectorize(lane)
    return s, [a, b, c]


def cache_blocked(n: int, tile: Tile) -> Program:
    a, b, c = gemm(n)
    s = te.create_schedule(c)
    i, j = s[c].axis
    (k,) = s[c].reduce_axis
    row_block, row = s[c].split(i, factor=MC)
    column_block, column = s[c].split(j, factor=NC)
    k_block, k_in = s[c].split(k, factor=KC)
    columns, lane = s[c].split(column, factor=tile.lanes)
    s[c].reorder(row_block, column_block, k_block, row, k_in, columns, lane)
    s[c].vectorize(lane)
    return s, [a, b, c]


def register_blocked(n: int, tile: Tile) -> Program:
    a, b, c = gemm(n)
    s = te.create_schedule(c)
    register_blocking(s, c, tile)
    return s, [a, b, c]


def register_blocking(s: te.Schedule, c: te.Tensor, tile: Tile) -> te.IterVar:
    """Keep an ``mr`` x ``nr`` tile of ``c`` in registers; returns the loop over panels of B."""
    acc = s.cache_write(c, "local")
    i, j = s[c].axis
    tile_row, row = s[c].split(i, factor=tile.mr)
    panel, column = s[c].split(j, factor=tile.nr)
    vector, lane = s[c].split(column, factor=tile.lanes)
    s[c].reorder(panel, tile_row, row, vector, lane)
    s[acc].compute_at(s[c], tile_row)
    i, j = s[acc].axis
    vector_in, lane_in = s[acc].split(j, factor=tile.lanes)
    s[acc].reorder(*s[acc].reduce_axis, i, vector_in, lane_in)
    for stage, axes, last in ((s[c], (row, vector), lane), (s[acc], (i, vector_in), lane_in)):
        for axis in axes:
            stage.unroll(axis)
        stage.vectorize(last)
    return panel


def packed_gemm(n: int, tile: Tile) -> tuple[te.Tensor, te.Tensor, te.Tensor, te.Tensor]:
    a = te.placeholder((n, n), name="a")
    b = te.placeholder((n, n), name="b")
    k = te.reduce_axis(n, "k")

    def packed(panel: PrimExpr, k: PrimExpr, column: PrimExpr) -> PrimExpr:
        j = panel * tile.nr + column
        return te.if_then_else(j < n, b[k, j], te.const(0, "float32"))

    panels = te.compute((-(-n // tile.nr), n, tile.nr), packed, name="panels")

    def element(i: PrimExpr, j: PrimExpr) -> PrimExpr:
        return te.sum(a[i, k] * panels[j // tile.nr, k, j % tile.nr], axis=k)

    c = te.compute((n, n), element, name="c")
    return a, b, panels, c


def packed(n: int, tile: Tile) -> Program:
    a, b, panels, c = packed_gemm(n, tile)
    s = te.create_schedule(c)
    *_, column = s[panels].axis
    _, lane = s[panels].split(column, factor=tile.lanes)
    s[panels].vectorize(lane)
    register_blocking(s, c, tile)
    return s, [a, b, c]


def packed_per_panel(n: int, tile: Tile) -> Program:
    a, b, panels, c = packed_gemm(n, tile)
    s = te.create_schedule(c)
    *_, column = s[panels].axis
    _, lane = s[panels].split(column, factor=tile.lanes)
    s[panels].vectorize(lane)
    s[panels].compute_at(s[c], register_blocking(s, c, tile))
    return s, [a, b, c]


def parallel(n: int, tile: Tile) -> Program:
    a, b, panels, c = packed_gemm(n, tile)
    s = te.create_schedule(c)
    *_, column = s[panels].axis
    _, lane = s[panels].split(column, factor=tile.lanes)
    s[panels].vectorize(lane)
    panel = register_blocking(s, c, tile)
    s[panels].compute_at(s[c], panel)
    s[c].parallel(panel)
    return s, [a, b, c]


STEPS: tuple[Callable[[int, Tile], Program], ...] = (
    naive, vectorized, cache_blocked, register_blocked, packed, packed_per_panel, parallel,
)


def lowered(step: Callable[[int, Tile], Program], n: int, tile: Tile) -> PrimFunc:
    """The loop program of a step, ready for code generation."""
    schedule, arguments = step(n, tile)
    return lower_prim_func(te.lower(schedule, arguments, step.__name__))


class Compiled:
    """A loop program compiled for this machine and called with arrays."""

    def __init__(self, func: PrimFunc, threads: int = 1) -> None:
        target = CpuTarget.host()
        code = CPU_BACKEND.build_kernel(func, target)
        self.library = CPU_BACKEND.load([code, *CPU_BACKEND.support_objects(target)], target)
        threading_of(self.library).apply(threads)
        self._scratch = aligned_bytes(bytes(func.attrs.get("workspace_bytes", 0)))
        count = len(func.params) + bool(self._scratch.size)
        self._call = self.library.kernel(func.name, count)

    def __call__(self, *arrays: np.ndarray) -> None:
        scratch = [self._scratch] if self._scratch.size else []
        self._call(*(a.ctypes.data for a in (*arrays, *scratch)))


def seconds(call: Callable[[], None], budget: float = 1.0) -> float:
    """Time of the fastest call within ``budget`` seconds, of at least two calls."""
    times: list[float] = []
    while len(times) < 2 or sum(times) < budget:
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return min(times)


@click.command()
@click.option("--size", default=1024, show_default=True, help="M, N and K")
@click.option("--threads", default=2, show_default=True, help="threads of the last step")
def main(size: int, threads: int) -> None:
    """Time every step on this machine."""
    tile = Tile.of(CpuTarget.host())
    rng = np.random.default_rng(0)
    shape = (3, size, size)
    a, b, c = aligned_bytes(rng.random(shape, np.float32)).view(np.float32).reshape(shape)
    expected = a @ b
    click.echo(f"{size} x {size} x {size}, {tile}")
    for step in STEPS:
        used = threads if step is parallel else 1
        run = Compiled(lowered(step, size, tile), used)
        best = seconds(lambda run=run: run(a, b, c))
        np.testing.assert_allclose(c, expected, rtol=1e-4)
        rate = 2e-9 * size**3 / best
        peak = measure_fma_peak(run.library, used)
        click.echo(f"{step.__name__:10} {used} threads {best * 1e3:9.2f} ms {rate:8.1f} GFLOP/s "
                   f"{100 * rate / peak:5.1f} % of the FMA peak")


if __name__ == "__main__":
    main()
