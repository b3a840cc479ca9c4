"""``python -m benchmarks.narrow_gemm``: products of bytes and bfloat16 beside float32."""

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
class Form:
    """The dtypes of data, weights and sums."""

    name: str
    data: str
    weight: str
    result: str


FORMS = (
    Form("fp32", "float32", "float32", "float32"),
    Form("bf16", "bfloat16", "bfloat16", "float32"),
    Form("int8", "uint8", "int8", "int32"),
)


class Product:
    """``data[m, k] * weight[n, k]`` with constant weights, compiled and checked."""

    def __init__(self, m: int, n: int, k: int, form: Form) -> None:
        rng = np.random.default_rng(0)
        data, weight = _random(rng, (m, k), form.data), _random(rng, (n, k), form.weight)
        x = var("x", (m, k), form.data)
        body = op.nn.dense(x, const(weight), out_dtype=form.result)
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
    """Median seconds of each form, timed in turn."""
    products = [Product(*size, form) for form in FORMS]
    calls = max(2, int(0.05 / min(products[0].seconds(2))))
    times: list[list[float]] = [[] for _ in FORMS]
    for _ in range(rounds):
        for product, seen in zip(products, times, strict=True):
            seen.extend(product.seconds(calls))
    return [statistics.median(seen) for seen in times]


def table_of(sizes: Sequence[tuple[int, int, int]], rounds: int) -> Table:
    table = Table(title="products with constant weights, us, and the speed-up over fp32")
    for name in ("rows x columns x depth", *(f.name for f in FORMS),
                 *(f"{f.name} / fp32" for f in FORMS[1:])):
        table.add_column(name, justify="right")
    for size in sizes:
        seconds = measure(size, rounds)
        gains = [f"{seconds[0] / s:.2f}x" for s in seconds[1:]]
        table.add_row("x".join(map(str, size)), *(f"{1e6 * s:.1f}" for s in seconds), *gains)
    return table


@click.command()
@click.option("--rounds", default=5, help="Rounds in turn; the medians are over all calls.")
@click.option("--largest", default=1024, help="Largest square product.")
def main(rounds: int, largest: int) -> None:
    """Times of products of bytes (sums of 32 bits), bfloat16 (sums of float32) and float32.

    Threads are those of ``WEFT_THREADS``.
    """
    squares = [(n, n, n) for n in SQUARES if n <= largest]
    layers = [(ROWS_OF_BERT, outputs, inputs) for outputs, inputs in BERT]
    Console(width=120).print(table_of([*squares, *layers], rounds))


if __name__ == "__main__":
    main()
