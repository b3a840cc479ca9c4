"""Decoding beside eager torch and ONNX Runtime: time of a prefill, tokens per second, bandwidth.

``python -m benchmarks.decoding --model gpt2 --threads 1``. Each engine runs in a process of its own
with the same seeded weights, in interleaved rounds; ``--sequential`` runs one after the other, for
models of which only one fits into memory. All engines use caches of the same capacity.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import click

from benchmarks.bandwidth import copy_bandwidth
from benchmarks.decoding_engines import ENGINES, SIZES

SETTLE_SECONDS = 0.05
STEPS = 16


@dataclass
class Contestant:
    """One engine in a worker process, and the best seconds of each of its commands."""

    engine: str
    process: subprocess.Popen[str]
    ready: float = 0.0
    first: float = 0.0
    best: dict[str, float] = field(default_factory=dict)
    tokens: dict[str, list[int]] = field(default_factory=dict)

    def read(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise click.ClickException(f"{self.engine} ended early")
        return json.loads(line)

    def send(self, command: str, count: int) -> dict[str, Any]:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps([command, count]) + "\n")
        self.process.stdin.flush()
        return self.read()

    def measure(self, name: str, command: str, count: int) -> None:
        answer = self.send(command, count)
        seconds = min(answer["seconds"])
        self.best[name] = min(seconds, self.best.get(name, seconds))
        self.tokens[name] = answer.get("tokens", [])


@contextmanager
def started(engine: str, model: str, batch: int, threads: int, capacity: int, dtype: str
            ) -> Iterator[Contestant]:
    arguments = ["benchmarks.decoding_engines", engine, model, str(batch), str(threads),
                 str(capacity), dtype]
    with running(engine, arguments, threads) as contestant:
        yield contestant


@contextmanager
def running(engine: str, arguments: Sequence[str], threads: int, *, is_quiet: bool = False
            ) -> Iterator[Contestant]:
    """An engine in a process of its own, ``python -m *arguments``, after a prefill and a step."""
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads), "WEFT_THREADS": str(threads)}
    process = subprocess.Popen(
        [sys.executable, "-m", *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        text=True, env=environment, stderr=subprocess.DEVNULL if is_quiet else None)
    try:
        contestant = Contestant(engine, process)
        contestant.ready = contestant.read()["ready"]
        contestant.first = contestant.send("prefill", 8)["seconds"][0]
        contestant.send("steps", 1)
        yield contestant
    finally:
        process.kill()
        process.wait()


def measure(contestants: Sequence[Contestant], prefills: Sequence[int], rounds: int) -> None:
    """Interleaved rounds: prefills, then steps after the last of them."""
    for _ in range(rounds):
        for contestant in contestants:
            for count in prefills:
                time.sleep(SETTLE_SECONDS)
                contestant.measure(f"prefill {count}", "prefill", count)
            contestant.measure("step", "steps", STEPS)


def weight_bytes(model: str, dtype: str) -> int:
    """Bytes of the matrices that a step of one token reads: no embeddings that are looked up, and
    of a mixture the chosen experts.
    """
    import torch

    from benchmarks.decoding_engines import seeded_model

    with torch.device("meta"):
        made = seeded_model(model, dtype)
    skipped = made.get_input_embeddings().weight
    parameters = {id(p): p for p in made.parameters()}
    tied = made.get_output_embeddings().weight is skipped
    config = made.config
    share = getattr(config, "num_experts_per_tok", 1) / getattr(config, "num_local_experts", 1)
    return sum(int(p.nbytes * (share if p.ndim == 3 else 1)) for p in parameters.values()
               if p.ndim > 1 and (tied or p is not skipped))


@click.command()
@click.option("--model", type=click.Choice(list(SIZES)), default="gpt2")
@click.option("--batch", "batches", type=int, multiple=True, default=(1, 8))
@click.option("--threads", type=int, default=1)
@click.option("--engine", "engines", type=click.Choice(list(ENGINES)), multiple=True,
              default=tuple(ENGINES))
@click.option("--prefill", "prefills", type=int, multiple=True, default=(128, 512))
@click.option("--capacity", type=int, default=1024)
@click.option("--dtype", type=click.Choice(["float32", "bfloat16"]), default="float32")
@click.option("--rounds", type=int, default=5)
@click.option("--sequential", is_flag=True, help="one engine after the other")
def main(model: str, batches: tuple[int, ...], threads: int, engines: tuple[str, ...],
         prefills: tuple[int, ...], capacity: int, dtype: str, rounds: int, *, sequential: bool
         ) -> None:
    """Times of prefills and steps."""
    nbytes, bandwidth = weight_bytes(model, dtype), copy_bandwidth(1 << 30, threads)
    if dtype != "float32" or model == "mixtral":
        # The ONNX decoder of the benchmark is one of float32 without experts.
        engines = tuple(e for e in engines if e != "onnxruntime")
    print(f"{model} in {dtype}: {nbytes / 1e9:.2f} GB of matrices per step; copies reach "
          f"{bandwidth:.1f} GB/s on {threads} threads")
    for batch in batches:
        # Prompts of a batch cost as much as longer prompts; one length is enough.
        lengths = prefills if batch == 1 else prefills[:1]
        found: list[Contestant] = []
        groups = [[e] for e in engines] if sequential else [list(engines)]
        for group in groups:
            with ExitStack() as stack:
                here = [stack.enter_context(started(e, model, batch, threads, capacity, dtype))
                        for e in group]
                measure(here, lengths, rounds)
                for contestant in here:
                    if contestant.engine == "weft":
                        contestant.measure("host", "host", STEPS)
                found += here
        _report(found, batch, nbytes, bandwidth)


def _report(found: Sequence[Contestant], batch: int, nbytes: int, bandwidth: float) -> None:
    print(f"\nbatch {batch}")
    for contestant in found:
        best = contestant.best
        step = best["step"]
        parts = [f"{name} {1e3 * best[name]:8.1f} ms" for name in best
                 if name.startswith("prefill")]
        parts.append(f"step {1e3 * step:7.2f} ms = {batch / step:7.1f} tokens/s")
        parts.append(f"{nbytes / step / 1e9:5.1f} GB/s ({nbytes / step / 1e9 / bandwidth:4.0%})")
        parts.append(f"ready {contestant.ready:5.1f} s, first token {contestant.first:5.2f} s")
        if "host" in best:
            parts.append(f"host {1e6 * best['host']:.0f} us per step")
        print(f"{contestant.engine:12s}", "  ".join(parts))
    first = found[0]
    for other in found[1:]:
        for name, tokens in other.tokens.items():
            if tokens and tokens != first.tokens[name]:
                print(f"{other.engine} and {first.engine} differ after {name}: "
                      f"{tokens[:4]}, {first.tokens[name][:4]}")


if __name__ == "__main__":
    main()
