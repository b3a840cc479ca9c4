"""``python -m benchmarks.narrow_gemm``: GEMM in int8 and bfloat16 compared with float32."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import click
import ml_dtypes
import numpy as np
from rich.console import Console
from rich.table import Table

import weft
from benchmarks.contraction_kernels import BERT, SQUARES
from benchmarks.worker import time_calls
from weft import op
from weft.ir import Function, const, var

ROWS_OF_BERT = 128


@dataclass(frozen=True)
class Precision:
    """The dtypes of A, B and C."""

    name: str
    data: str
    weight: str
    result: str


PRECISIONS = (
    Precision("fp32", "float32", "float32", "float32"),
    Precision("bf16", "bfloat16", "bfloat16", "float32"),
    Precision("int8", "uint8", "int8", "int32"),
)


class ConstantWeightGemm:
    """``C[m, n] = A[m, k] * B[n, k]`` with a constant B, compiled and checked."""

    def __init__(self, m: int, n: int, k: int, precision: Precision) -> None:
        rng = np.random.default_rng(0)
        data, weight = _random(rng, (m, k), precision.data), _random(rng, (n, k), precision.weight)
        x = var("x", (m, k), precision.data)
        body = op.nn.dense(x, const(weight), out_dtype=precision.result)
        self.module = weft.compile(Function((x,), body))
        self.feeds = {"x": data}
        (found,) = self.module.run(None, self.feeds)
        wide = data.astype(np.float64) @ weight.astype(np.float64).T
        np.testing.assert_allclose(found, wide, rtol=1e-3, atol=1e-3 * k**0.5)

    def seconds(self, calls: int) -> list[float]:
        return time_calls(lambda feeds: self.module.run(None, feeds), self.feeds, 2, calls)


def _random(rng: np.random.Generator, shape: tuple[int, int], dtype: str) -> np.ndarray:
    if dtype.startswith(("int", "uint")):
        ends = np.iinfo(dtype)
        return rng.integers(ends.min, ends.max, shape, dtype, endpoint=True)
    kind = ml_dtypes.bfloat16 if dtype == "bfloat16" else np.float32
    return rng.uniform(-1, 1, shape).astype(kind)


def measure(size: tuple[int, int, int], rounds: int) -> list[float]:
    """Median seconds at each precision, in interleaved rounds."""
    gemms = [ConstantWeightGemm(*size, precision) for precision in PRECISIONS]
    calls = max(2, int(0.05 / min(gemms[0].seconds(2))))
    times: list[list[float]] = [[] for _ in PRECISIONS]
    for _ in range(rounds):
        for gemm, seen in zip(gemms, times, strict=True):
            seen.extend(gemm.seconds(calls))
    return [statistics.median(seen) for seen in times]


def table_of(sizes: Sequence[tuple[int, int, int]], rounds: int) -> Table:
    table = Table(title="GEMM with constant weights, us, and the speedup over fp32")
    for name in ("M x N x K", *(f.name for f in PRECISIONS),
                 *(f"{f.name} / fp32" for f in PRECISIONS[1:])):
        table.add_column(name, justify="right")
    for size in sizes:
        seconds = measure(size, rounds)
        gains = [f"{seconds[0] / s:.2f}x" for s in seconds[1:]]
        table.add_row("x".join(map(str, size)), *(f"{1e6 * s:.1f}" for s in seconds), *gains)
    return table


@click.command()
@click.option("--rounds", default=5, help="Interleaved rounds; medians are over all calls.")
@click.option("--largest", default=1024, help="Largest square GEMM.")
def main(rounds: int, largest: int) -> None:
    """Time GEMM in int8 (int32 accumulators), bfloat16 (float32 accumulators) and float32.

    ``WEFT_THREADS`` sets the number of threads.
    """
    squares = [(n, n, n) for n in SQUARES if n <= largest]
    layers = [(ROWS_OF_BERT, outputs, inputs) for outputs, inputs in BERT]
    Console(width=120).print(table_of([*squares, *layers], rounds))


if __name__ == "__main__":
    main()
