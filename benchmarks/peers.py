"""One adapter per runtime: load a model with a thread count, then run it on a dict of arrays.

Every adapter uses the settings that its own documentation recommends for latency on a CPU.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

Feeds = dict[str, np.ndarray]
Runner = Callable[[Feeds], list[np.ndarray]]


@dataclass(frozen=True)
class WeftRunner:
    """A compiled model."""

    module: Any

    def __call__(self, feeds: Feeds) -> list[np.ndarray]:
        return self.module.run(None, feeds)

    @property
    def implementations(self) -> tuple[str, ...]:
        """How each kernel is computed."""
        return tuple(step.implementation for step in self.module.manifest.steps)


def load_weft(path: Path, threads: int) -> Runner:
    os.environ["WEFT_THREADS"] = str(threads)
    import weft

    return WeftRunner(weft.compile(path))


def load_onnxruntime(path: Path, threads: int) -> Runner:
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_ALL
    session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return lambda feeds: session.run(None, feeds)


def load_openvino(path: Path, threads: int) -> Runner:
    import openvino as ov

    core = ov.Core()
    settings = {
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_NUM_THREADS": threads,
        "INFERENCE_PRECISION_HINT": "f32",  # the peers compute in fp32, so it must as well
    }
    compiled = core.compile_model(core.read_model(str(path)), "CPU", settings)
    request = compiled.create_infer_request()

    def run(feeds: Feeds) -> list[np.ndarray]:
        results = request.infer(feeds, share_inputs=True, share_outputs=True)
        return [results[port] for port in compiled.outputs]

    return run


def load_torch(path: Path, threads: int) -> Runner:
    from benchmarks.torch_eager import load

    return load(path, threads)


def load_module(path: Path, threads: int) -> Runner:
    from benchmarks.torch_peers import load_module as load

    return load(path, threads)


def load_inductor(path: Path, threads: int) -> Runner:
    from benchmarks.torch_peers import load_inductor as load

    return load(path, threads)


PEERS: dict[str, Callable[[Path, int], Runner]] = {
    "weft": load_weft,
    "onnxruntime": load_onnxruntime,
    "openvino": load_openvino,
    "torch": load_torch,
}
# Peers for torch architectures; they build the module that the file name selects.
ZOO_PEERS: dict[str, Callable[[Path, int], Runner]] = {
    "module": load_module,
    "inductor": load_inductor,
}
