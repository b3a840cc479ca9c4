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
from weft.models.transformers.configuration import Configuration
from weft.models.transformers.families import FAMILIES
from weft.models.transformers.source import Source
from weft.models.transformers.translate import translate

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


def test_files_with_a_tensor_per_expert_are_read() -> None:
    model = seeded(*MODELS["qwen3moe"])
    architecture, weights = architecture_of(model)
    tensors = {name: value.numpy() for name, value in model.state_dict().items()}
    for name in [name for name in tensors if ".mlp.experts." in name]:
        prefix, _, part = name.rpartition(".")
        for number, matrix in enumerate(tensors.pop(name)):
            names = ("gate_proj", "up_proj") if part == "gate_up_proj" else ("down_proj",)
            for new, rows in zip(names, np.split(matrix, len(names)), strict=True):
                tensors[f"{prefix}.{number}.{new}.weight"] = rows
    source = Source({name: lambda value=value: value for name, value in tensors.items()}, None, "")
    config = Configuration(model.config, "qwen3_moe", FAMILIES["qwen3_moe"].defaults)
    found, read = translate(config, source, FAMILIES["qwen3_moe"])
    assert found == architecture
    for key in weights.names():
        np.testing.assert_array_equal(read[key], weights[key], err_msg=key)
