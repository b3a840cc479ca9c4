"""Compiles programs with any placement and order of their steps, for tests."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

import weft
from weft.compiler.device_options import device_of
from weft.compiler.program.devices import partition
from weft.runtime.device import HOST, Device

LATENCY = 1e-6


def sims(count: int, **properties: Any) -> list[weft.SimDevice]:
    return [weft.SimDevice(n, **{"latency": LATENCY, "bandwidth": 1e12, **properties})
            for n in range(count)]


@contextmanager
def placed_by(choose: Callable[[int, Sequence[Device]], Device], seed: int = 0) -> Iterator[None]:
    """Place step ``n`` on ``choose(n, devices)``, in a random order that the data allow."""
    def chosen(made, topology, options):
        rng = random.Random(seed)
        devices = [HOST, *(device_of(one) for one in options.devices)]
        picked = tuple(choose(at, devices) for at in range(len(made.step_tasks)))
        order = _random_order(made.tasks, rng)
        step_of = {task: at for at, task in enumerate(made.step_tasks)}
        return partition.Chosen(picked, tuple(step_of[t] for t in order if t in step_of))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(partition, "_chosen", chosen)
        yield


def _random_order(tasks, rng: random.Random) -> list[int]:
    waiting = [len({one.producer for one in task.inputs}) for task in tasks]
    followers: list[set[int]] = [set() for _ in tasks]
    for number, task in enumerate(tasks):
        for one in task.inputs:
            followers[one.producer].add(number)
    ready = [number for number, count in enumerate(waiting) if not count]
    order = []
    while ready:
        order.append(ready.pop(rng.randrange(len(ready))))
        for after in sorted(followers[order[-1]]):
            waiting[after] -= 1
            if not waiting[after]:
                ready.append(after)
    assert len(order) == len(tasks)
    return order


def compiled_at_random(model: Any, count: int, seed: int, **options: Any) -> Any:
    """The model on ``count`` simulated devices and the host, each step on a random one."""
    rng = random.Random(seed)
    with placed_by(lambda _at, devices: rng.choice(devices), seed):
        # The whole program must not come from the cache, where another placement may be.
        return weft.compile(model, devices=sims(count, memory=(1 << 40) + seed), **options)


def within(seconds: float, run: Callable[[], Any]) -> Any:
    """The result of ``run``, which must end within some seconds."""
    results: list[Any] = []

    def work() -> None:
        try:
            results.append((run(), None))
        except BaseException as error:  # noqa: BLE001 - raised again below
            results.append((None, error))

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(seconds)
    assert results, f"still running after {seconds} s"
    result, error = results[0]
    if error is not None:
        raise error
    return result
