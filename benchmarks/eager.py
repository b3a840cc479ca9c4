"""The cost of recorded tensors: ``python -m benchmarks.eager``.

Prints microseconds per operator of small elementwise chains on tensors of 16 elements, where the
arithmetic takes almost no time: the first recording of each operator, recording again, recording
and running in a loop whose program is in the cache, a training step as a loop, and a compiled step;
torch eager beside them if it is installed. Times are minima over rounds.
"""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import weft

OPERATORS = 200
ROUNDS = 30


def best(function: Callable[[], object], rounds: int = ROUNDS) -> float:
    """The shortest time of several calls, in microseconds."""
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return min(times) * 1e6


def chain(x: Any, y: Any) -> Any:
    """``OPERATORS`` elementwise operators."""
    for _ in range(OPERATORS // 4):
        x = x * y
        x = x + y
        x = x - 0.5
        x = x.tanh()
    return x


def first_recording() -> float:
    """Microseconds per operator that is recorded for the first time, over new shapes."""
    sizes = range(100, 200)
    operands = [weft.ones(n) for n in sizes]
    for one in operands:
        one.numpy()
    start = time.perf_counter()
    results = [(x + x, x * x, x - x, x.exp()) for x in operands]
    seconds = time.perf_counter() - start
    del results
    return seconds / (4 * len(operands)) * 1e6


def loop_step(lib: Any, w: Any, x: Any) -> Callable[[], object]:
    """A training step of a small network in eager form: about 40 operators with gradients."""

    def step() -> Any:
        h = x
        for _ in range(3):
            h = (h @ w).tanh() * 0.5
        loss = (h * h).mean()
        w.grad = None
        loss.backward()
        with lib.no_grad():
            w.sub_(w.grad * 0.01)
        return loss.item()

    return step


def main() -> None:
    """Print the table."""
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(2, 16)).astype(np.float32)
    x, y = weft.tensor(a), weft.tensor(b)
    rows = [("first recording of an operator", first_recording(), None)]
    rows.append(("recording alone", best(lambda: chain(x, y)) / OPERATORS, None))
    rows.append(("recorded and run, repeated", best(lambda: chain(x, y).numpy()) / OPERATORS,
                 "chain"))
    w = weft.tensor(rng.normal(size=(16, 16)).astype(np.float32), requires_grad=True)
    m = weft.tensor(rng.normal(size=(4, 16)).astype(np.float32))
    rows.append(("training step, a loop", best(loop_step(weft, w, m)), "step"))
    compiled = weft.train_step(_plain_step(w))
    rows.append(("training step, compiled", best(lambda: compiled(m).item()), None))
    peers = torch_times(a, b) if importlib.util.find_spec("torch") else {}
    print(f"{'microseconds':34}{'weft':>10}{'torch':>10}")
    for name, own, peer in rows:
        print(f"{name:34}{own:10.2f}{peers.get(peer, float('nan')):10.2f}")


def _plain_step(w: Any) -> Callable[[Any], Any]:
    def step(x: Any) -> Any:
        h = x
        for _ in range(3):
            h = (h @ w).tanh() * 0.5
        loss = (h * h).mean()
        loss.backward()
        with weft.no_grad():
            w.sub_(w.grad * 0.01)
        return loss

    return step


def torch_times(a: np.ndarray, b: np.ndarray) -> dict[str | None, float]:
    """Microseconds of torch eager: per operator of the chain, and of the step."""
    import torch

    torch.set_num_threads(1)
    x, y = torch.from_numpy(a), torch.from_numpy(b)
    w = torch.randn(16, 16, requires_grad=True)
    m = torch.randn(4, 16)
    return {"chain": best(lambda: chain(x, y).numpy()) / OPERATORS,
            "step": best(loop_step(torch, w, m))}


if __name__ == "__main__":
    main()
