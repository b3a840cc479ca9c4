"""Whole models on an emulated GPU: ONNX against the CPU target, torch modules against torch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft
from tests.unit.cuda.models.cuda_models import difference
from weft.runtime.device import HOST


@pytest.mark.slow
def test_squeezenet_of_a_small_image() -> None:
    """``python -m tests.unit.cuda.models.cuda_models`` runs the other light models."""
    assert difference("squeezenet", 32) < 1e-5


@pytest.mark.torch
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # the libraries that trace warn of their own deprecations
@pytest.mark.parametrize("name", ["bert", "gpt2", "vit"])
def test_transformers(name: str) -> None:
    torch = pytest.importorskip("torch")
    pytest.importorskip("transformers")
    zoo = pytest.importorskip("benchmarks.torch_zoo")
    module, inputs = zoo.ARCHITECTURES[name].module(), zoo.ARCHITECTURES[name].inputs(1, 7)
    with torch.no_grad():
        expected = _arrays(torch, module(*inputs))
    with weft.config(cuda="emulate"):
        compiled = weft.compile(module, example_inputs=inputs, target="cuda")
        found = _arrays(torch, compiled(*inputs))
    assert all(step.device != HOST for step in compiled.manifest.steps)
    for got, want in zip(found, expected, strict=True):
        assert np.abs(got - want).max() <= 2e-5 * np.abs(want).max()


def _arrays(torch: Any, result: Any) -> list[np.ndarray]:
    results = result if isinstance(result, (tuple, list)) else (result,)
    return [r.detach().numpy() if torch.is_tensor(r) else np.asarray(r) for r in results]
