"""Architectures of torch as ONNX files, for every runtime that reads them."""

from __future__ import annotations

import contextlib
import io
import logging
import warnings
from collections.abc import Generator
from pathlib import Path

import numpy as np
import torch

from benchmarks.torch_further import BENCHMARKED


@contextlib.contextmanager
def quiet_exporter() -> Generator[None]:
    """Keep torch's exporter from printing: onnxscript warns of constants that it cannot fold."""
    for logger in ("torch.onnx", "onnxscript"):
        logging.getLogger(logger).setLevel(logging.ERROR)
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        yield


def export(name: str, folder: Path, batch: int, length: int) -> tuple[Path, dict[str, np.ndarray]]:
    """Export an architecture at full size; returns the file and the inputs by their ONNX names."""
    import onnx

    architecture = BENCHMARKED[name]
    inputs = architecture.inputs(batch, length, full=True)
    module = architecture.module(full=True).requires_grad_(False)
    path = folder / f"{name}-{batch}.onnx"
    with quiet_exporter(), torch.no_grad():
        program = torch.onnx.export(module, inputs, dynamo=True, verbose=False)
        assert program is not None
        program.save(str(path))
    graph = onnx.load(path, load_external_data=False).graph
    return path, {i.name: x.numpy() for i, x in zip(graph.input, inputs, strict=True)}
