"""A worker process: one peer that loads and times small models on command."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
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
        if "corner" in command:
            return self.load_corner(command["corner"], Path(command["folder"]))
        if "copy" in command:
            from benchmarks.bandwidth import copy_bandwidth

            return {"rate": copy_bandwidth(command["copy"], self.threads)}
        assert self.run is not None
        return {"times": time_calls(self.run, self.feeds, command["warmup"], command["calls"])}

    def load(self, model: Path, inputs: str, outputs: str) -> dict[str, Any]:
        if self.peer == "torch":
            from benchmarks.torch_kernels import load
        else:
            load = PEERS[self.peer]
        return self.loaded(lambda: load(model, self.threads), dict(np.load(inputs)), outputs)

    def load_corner(self, name: str, folder: Path) -> dict[str, Any]:
        """Load a kernel of ``benchmarks.corner_operators``."""
        from benchmarks.corner_operators import corner_named, load

        feeds = corner_named(name).feeds()
        path = folder / f"{self.peer}.onnx"
        return self.loaded(lambda: load(name, self.peer, feeds, path, self.threads), feeds,
                           str(folder / f"{self.peer}.npz"))

    def loaded(self, load: Callable[[], Runner], feeds: Feeds, outputs: str) -> dict[str, Any]:
        """Make a runner and save its results."""
        self.run, self.feeds = None, feeds
        try:
            self.run = load()
            np.savez(outputs, *map(as_array, self.run(self.feeds)))
        except Exception as error:  # noqa: BLE001 - a peer may refuse a model in any way
            self.run = None
            return {"error": f"{type(error).__name__}: {error}"}
        return {"outputs": outputs,
                "implementations": list(getattr(self.run, "implementations", ()))}


def as_array(result: Any) -> np.ndarray:
    """A result of any peer in a dtype that ``np.savez`` keeps."""
    if type(result).__module__ == "torch":
        result = result.float() if str(result.dtype) == "torch.bfloat16" else result
    array = np.asarray(result)
    return array.astype(np.float32) if array.dtype.name == "bfloat16" else array


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
