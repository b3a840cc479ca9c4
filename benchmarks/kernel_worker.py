"""A worker process: one peer that loads and times small models on command."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.peers import PEERS, Feeds, Runner
from benchmarks.worker import time_calls


class Worker:
    """Answers ``load`` (a model), ``calls`` (time it) and ``copy`` (bandwidth) commands."""

    def __init__(self, peer: str, threads: int) -> None:
        self.peer, self.threads = peer, threads
        self.run: Runner | None = None
        self.feeds: Feeds = {}

    def answer(self, command: dict[str, Any]) -> dict[str, Any]:
        if "load" in command:
            return self.load(Path(command["load"]), command["inputs"], command["outputs"])
        if "copy" in command:
            from benchmarks.bandwidth import copy_bandwidth

            return {"rate": copy_bandwidth(command["copy"], self.threads)}
        assert self.run is not None
        return {"times": time_calls(self.run, self.feeds, command["warmup"], command["calls"])}

    def load(self, model: Path, inputs: str, outputs: str) -> dict[str, Any]:
        self.run = None
        self.feeds = dict(np.load(inputs))
        if self.peer == "torch":
            from benchmarks.torch_kernels import load
        else:
            load = PEERS[self.peer]
        try:
            self.run = load(model, self.threads)
            np.savez(outputs, *self.run(self.feeds))
        except Exception as error:  # noqa: BLE001 - a peer may refuse a model in any way
            self.run = None
            return {"error": f"{type(error).__name__}: {error}"}
        return {"outputs": outputs,
                "implementations": list(getattr(self.run, "implementations", ()))}


def main() -> None:
    peer, threads = sys.argv[1:]
    # Libraries may print to stdout, so the protocol uses a duplicated descriptor.
    channel = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    worker = Worker(peer, int(threads))
    for line in sys.stdin:
        print(json.dumps(worker.answer(json.loads(line))), file=channel, flush=True)


if __name__ == "__main__":
    main()
