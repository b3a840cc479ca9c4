"""Weights in blocks: the kernels of each format, and whole models beside llama.cpp.

``python -m benchmarks.quantized kernels`` prints, per format and matrix, the rate at which weights
are read (and its share of the read bandwidth), and the arithmetic (and its share of the fp32 FMA
peak). ``python -m benchmarks.quantized models`` writes GGUF files of seeded weights (it needs the
package ``gguf``) and times prefills and steps in interleaved rounds; engines whose package is not
installed are left out. Both take ``--threads``; run once for each count.
"""

from __future__ import annotations

import importlib.util
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import click
import numpy as np

import weft
from benchmarks.bandwidth import read_bandwidth
from benchmarks.decoding import Contestant, measure, running
from benchmarks.peak import fma_peak
from benchmarks.quantized_engines import ENGINES, SHAPES, write_model
from weft import op
from weft.ir import Constant, Function, IRModule, infer_type, var
from weft.op.nn.block_quantized import random_blocks
from weft.topi.nn.block_formats import FORMATS, block_format

MATRICES = ((2048, 2048), (5632, 2048), (2048, 5632), (32000, 2048))
FORMATS_OF_KERNELS = ("q8_0", "q4_0", "q5_0", "q4_k", "q5_k", "q6_k", "iq4_nl")
ROWS = (1, 8, 128, 512)
READ_BYTES = 1 << 29
SECONDS = 0.4  # of calls of one kernel
# Copies of a matrix that together leave no part of it in a cache between calls.
CACHE_BYTES = 128 << 20


def kernel_seconds(kind: str, rows: Sequence[int], columns: int, depth: int, target: str,
                   threads: int) -> dict[int, float]:
    """Seconds of a product by number of rows of data, weights read from memory."""
    form = block_format(kind)
    blocks = random_blocks(form, columns, depth // form.elements)
    copies = max(2, min(16, CACHE_BYTES // blocks.nbytes + 1))
    best = dict.fromkeys(rows, float("inf"))
    for count in rows:
        x = var("x", (count, depth), "float32")
        products = [op.nn.block_quantized_dense(
            x, Constant(np.roll(blocks, n, axis=0)), format=kind, activations="int8")
            for n in range(copies)]
        total = products[0]
        for other in products[1:]:
            total = total + other
        module = weft.compile(infer_type(IRModule.from_expr(Function((x,), total))),
                              target=target, threads=threads)
        data = np.random.default_rng(0).normal(size=(count, depth)).astype(np.float32)
        module(data)
        until = time.perf_counter() + SECONDS
        while time.perf_counter() < until:
            started = time.perf_counter()
            module(data)
            best[count] = min(best[count], (time.perf_counter() - started) / copies)
    return best


@click.group()
def main() -> None:
    """Weights quantised in blocks."""


@main.command()
@click.option("--format", "formats", multiple=True, default=FORMATS_OF_KERNELS)
@click.option("--rows", type=int, multiple=True, default=ROWS)
@click.option("--target", default="cpu")
@click.option("--threads", type=int, default=1)
def kernels(formats: tuple[str, ...], rows: tuple[int, ...], target: str, threads: int) -> None:
    """Rates of products by format, matrix and number of rows."""
    bandwidth, peak = read_bandwidth(READ_BYTES, threads), fma_peak(threads)
    print(f"{threads} threads: reads {bandwidth:.1f} GB/s, fp32 FMA peak {peak:.0f} GFLOP/s")
    for kind in formats:
        for columns, depth in MATRICES:
            nbytes = columns * block_format(kind).row_bytes(depth)
            parts: list[str] = []
            for count, seconds in kernel_seconds(
                    kind, rows, columns, depth, target, threads).items():
                read, flops = nbytes / seconds / 1e9, 2e-9 * count * columns * depth / seconds
                parts.append(f"M={count} {1e6 * seconds:7.0f} us "
                             f"{read:5.1f} GB/s ({read / bandwidth:4.0%}) "
                             f"{flops:5.0f} GFLOP/s ({flops / peak:4.2f})")
            print(f"{kind:7s} {columns:5d} x {depth:4d}  {'  '.join(parts)}", flush=True)


@contextmanager
def started(engine: str, path: Path, batch: int, threads: int) -> Iterator[Contestant]:
    arguments = ["benchmarks.quantized_engines", engine, str(path), str(batch), str(threads),
                 "1024"]
    with running(engine, arguments, threads, is_quiet=engine != "weft") as contestant:
        yield contestant


@main.command()
@click.option("--model", "names", type=click.Choice(list(SHAPES)), multiple=True,
              default=("llama-0.66b",))
@click.option("--format", "formats", type=click.Choice(list(FORMATS)), multiple=True,
              default=("q8_0", "q4_0", "q4_k"))
@click.option("--batch", "batches", type=int, multiple=True, default=(1, 8))
@click.option("--prefill", "prefills", type=int, multiple=True, default=(128, 512))
@click.option("--threads", type=int, default=1)
@click.option("--rounds", type=int, default=4)
def models(names: tuple[str, ...], formats: tuple[str, ...], batches: tuple[int, ...],
           prefills: tuple[int, ...], threads: int, rounds: int) -> None:
    """Prefills and steps of whole models in tokens per second."""
    bandwidth = read_bandwidth(READ_BYTES, threads)
    engines = [engine for engine in ENGINES
               if engine == "weft" or importlib.util.find_spec("llama_cpp")]
    print(f"{threads} threads: reads {bandwidth:.1f} GB/s")
    for name in names:
        for kind in formats:
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder) / "model.gguf"
                nbytes = write_model(path, name, kind)
                for batch in batches:
                    lengths = prefills if batch == 1 else prefills[:1]
                    with ExitStack() as stack:
                        found = [stack.enter_context(started(engine, path, batch, threads))
                                 for engine in engines]
                        measure(found, lengths, rounds)
                        _report(f"{name} {kind}", found, batch, nbytes, bandwidth)


def _report(title: str, found: Sequence[Contestant], batch: int, nbytes: int, bandwidth: float
            ) -> None:
    print(f"\n{title}, batch {batch}: {nbytes / 1e9:.2f} GB per step")
    for contestant in found:
        rates = [f"prefill {what.split()[1]} {batch * int(what.split()[1]) / seconds:7.0f} tokens/s"
                 for what, seconds in contestant.best.items() if what.startswith("prefill")]
        step = contestant.best["step"]
        read = nbytes / step / 1e9
        print(f"{contestant.engine:10s} {'  '.join(rates)}  step {batch / step:6.1f} tokens/s, "
              f"{read:5.1f} GB/s ({read / bandwidth:4.0%})", flush=True)


if __name__ == "__main__":
    main()
