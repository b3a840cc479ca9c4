"""GGUF files of transformers models: the architecture and the weights of the model itself."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from tests.models.gguf_writer import MODELS, write_model
from tests.seeded_models import seeded
from tests.unit.models import numpy_decoder
from weft.models import architecture_of
from weft.models.gguf.reader import read_gguf
from weft.models.gguf.translate import architecture_of_gguf

torch = pytest.importorskip("torch")

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore")]


@pytest.mark.parametrize("name", [name for name in MODELS
                                  if name not in ("llama", "mixtral", "olmo")])
def test_files_describe_the_model(name: str, tmp_path: Path) -> None:
    model = seeded(*MODELS[name])
    architecture, weights = architecture_of(model)
    found, read = architecture_of_gguf(read_gguf(write_model(tmp_path / "m.gguf", name, model)))
    assert found.epsilon == np.float32(architecture.epsilon)  # as files have it
    assert dataclasses.replace(found, epsilon=architecture.epsilon) == architecture
    assert set(read.names()) == set(weights.names())
    for key in weights.names():
        np.testing.assert_array_equal(read[key], weights[key], err_msg=key)


@pytest.mark.parametrize("name", ["llama", "mixtral", "olmo"])
def test_logits_with_neighbouring_pairs_are_those_of_the_model(name: str, tmp_path: Path) -> None:
    model, ids = seeded(*MODELS[name]), np.array([3, 77, 12, 254, 9, 9, 41])
    read = architecture_of_gguf(read_gguf(write_model(tmp_path / "m.gguf", name, model)))
    with torch.no_grad():
        wanted = model(torch.tensor(ids)[None]).logits[0].double().numpy()
    np.testing.assert_allclose(numpy_decoder.logits(*read, ids), wanted, rtol=1e-3,
                               atol=1e-3 * abs(wanted).max())
