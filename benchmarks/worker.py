"""A worker process: one peer with one model, timed on command.

Each peer runs in a separate process because their thread pools spin: two pools in one process
would compete for cores. The parent wakes one worker at a time.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.peers import PEERS, ZOO_PEERS


def main() -> None:
    peer, model, threads, inputs, outputs = sys.argv[1:]
    # Libraries may print to stdout, so the protocol uses a duplicated descriptor.
    channel = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    feeds = dict(np.load(inputs))
    started = time.perf_counter()
    run = {**PEERS, **ZOO_PEERS}[peer](Path(model), int(threads))
    results = run(feeds)
    ready = time.perf_counter() - started
    np.savez(outputs, *results)
    told = {"ready": ready, "implementations": list(getattr(run, "implementations", ()))}
    print(json.dumps(told), file=channel, flush=True)
    for line in sys.stdin:
        command = json.loads(line)
        if "limit" in command:
            told = limit(run, feeds)
        else:
            told = {"times": time_calls(run, feeds, command["warmup"], command["calls"])}
        print(json.dumps(told), file=channel, flush=True)


def limit(run: object, feeds: dict[str, np.ndarray]) -> dict[str, Any]:
    """Seconds of a call of weft's module, of its kernels within it, and what limits them."""
    module = run.module  # type: ignore[attr-defined]
    repeat = max(10, min(300, int(0.5 / module.profile(**feeds, repeat=1).module_seconds)))
    profile = module.profile(**feeds, repeat=repeat)
    return {"call": profile.module_seconds, "limit": profile.limit_seconds,
            "kernels": sum(step.seconds for step in profile.steps),
            "arithmetic": sum(limit.arithmetic for limit in profile.limits),
            "traffic": sum(limit.traffic for limit in profile.limits),
            "machine": str(profile.roofline)}


def time_calls(run: object, feeds: dict[str, np.ndarray], warmup: int, calls: int) -> list[float]:
    """Seconds of each of ``calls`` calls, after ``warmup`` untimed calls."""
    for _ in range(warmup):
        run(feeds)  # type: ignore[operator]
    times = []
    for _ in range(calls):
        started = time.perf_counter()
        run(feeds)  # type: ignore[operator]
        times.append(time.perf_counter() - started)
    return times


if __name__ == "__main__":
    main()
