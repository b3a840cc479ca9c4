"""torch as a peer: modules of the zoo, selected by the file name, ``<name>-<batch>.onnx``.

Images and the weights of convolutions are in channels-last, torch's fastest layout on CPUs.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.models import MODELS
from benchmarks.torch_eager import held_tensors
from benchmarks.torch_further import BENCHMARKED

Feeds = dict[str, np.ndarray]


def load_module(path: Path, threads: int) -> Any:
    """Eager torch."""
    torch.set_num_threads(threads)
    return _runner(_module(path))


def load_inductor(path: Path, threads: int) -> Any:
    """``torch.compile`` with its own backend, weights as constants."""
    if not any(shutil.which(name) for name in ("c++", "g++", "clang++")):
        raise SystemExit("inductor needs a C++ compiler")
    import torch._inductor.config as settings

    torch.set_num_threads(threads)
    settings.freezing = True
    return _runner(torch.compile(_module(path)))


def _module(path: Path) -> torch.nn.Module:
    """The module whose weights are in the file; those built as ONNX graphs have none."""
    name = path.stem.rpartition("-")[0]
    if name in MODELS or name not in BENCHMARKED:
        raise SystemExit(f"{name} is no torch module")
    return BENCHMARKED[name].module(full=True).to(memory_format=torch.channels_last)


def _runner(module: Any) -> Any:
    tensors = held_tensors()

    def run(feeds: Feeds) -> list[np.ndarray]:
        with torch.no_grad():
            results = module(*tensors(feeds).values())
        results = results if isinstance(results, (tuple, list)) else (results,)
        return [r.numpy() for r in results]

    return run
