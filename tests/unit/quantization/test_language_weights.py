"""Language models whose weights are quantised as they are read."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from tests.unit.generation.text.model_files import write_folder
from weft.generation.text.load import load
from weft.models.architecture import Architecture, Layer, Rotary, Weights
from weft.models.compiled_decoder import CompiledDecoder
from weft.quantization.language import quantize_weights
from weft.support.errors import InvalidInputError, OptionError

WIDTH, VOCAB, HIDDEN = 64, 50, 128
ARCHITECTURE = Architecture(
    vocab_size=VOCAB, hidden_size=WIDTH, heads=4, kv_heads=2, head_dim=16, norm="rms",
    layers=(Layer(scale=0.25, rotary=Rotary(tuple(10000.0 ** (-i / 8) for i in range(8)))),),
    epsilon=1e-5, activation="silu")
SHAPES = {"q": (WIDTH, WIDTH), "k": (32, WIDTH), "v": (32, WIDTH),
          "attention_output": (WIDTH, WIDTH), "gate": (HIDDEN, WIDTH), "up": (HIDDEN, WIDTH),
          "down": (WIDTH, HIDDEN)}


def made_weights(*, tied=True):
    rng = np.random.default_rng(0)
    embedding = rng.standard_normal((VOCAB, WIDTH)).astype(np.float32)
    arrays = {"embedding.weight": embedding, "final_norm.weight": np.ones(WIDTH, np.float32),
              "output.weight": embedding if tied else embedding.copy()}
    for norm in ("attention_norm", "mlp_norm"):
        arrays[f"layers.0.{norm}.weight"] = np.exp(rng.standard_normal(WIDTH)).astype(np.float32)
    for name, shape in SHAPES.items():
        matrix = rng.standard_normal(shape) / np.sqrt(shape[1])
        arrays[f"layers.0.{name}.weight"] = matrix.astype(np.float32)
    return Weights(arrays)


def logits(weights, texts):
    decoder = CompiledDecoder(ARCHITECTURE, weights, capacity=64)
    found = []
    for text in texts:
        found.append(decoder.score([0], [text])[0])
        decoder.free(0)
    return np.concatenate(found)


TEXTS = [np.random.default_rng(i).integers(0, VOCAB, 48) for i in range(12)]


@pytest.fixture(scope="module")
def expected():
    return logits(made_weights(), TEXTS[:4])


def relative(found, expected):
    return float(np.linalg.norm(found - expected) / np.linalg.norm(expected))


def test_gptq_keeps_the_logits_closer_than_rounding(expected):
    weights, errors = made_weights(), []
    for scheme in ("int4_rtn", "int4_gptq"):
        small = quantize_weights(ARCHITECTURE, weights, scheme, TEXTS)
        assert small.blocks("embedding.weight") is small.blocks("output.weight")
        assert small.blocks("layers.0.down.weight") is not None
        assert small.nbytes < 0.35 * weights.nbytes
        errors.append(relative(logits(small, TEXTS[:4]), expected))
    assert errors[1] < 0.8 * errors[0] < 0.3


def test_each_method_loses_less_than_the_one_before_it():
    errors = [np.mean([layer.error for layer in quantize_weights(
        ARCHITECTURE, made_weights(), scheme, TEXTS).report.layers if "layers" in layer.layer])
        for scheme in ("int4_rtn", "int4_search", "int4_awq", "int4_gptq")]
    assert errors == sorted(errors, reverse=True)


def test_a_report_lists_the_matrices():
    report = quantize_weights(ARCHITECTURE, made_weights(tied=False), "int4",
                              keep="layers.0.q*").report
    after = {layer.layer: layer.after for layer in report.layers}
    assert after["layers.0.q"] == "float32"
    assert after["layers.0.k"] == "int4_g32"
    assert after["output"] == after["embedding"] == "int8_g32"


def test_awq_keeps_layers_that_stay_right(expected):
    """The norm is divided by the factors, so a matrix that stays is multiplied by them."""
    weights = made_weights()
    small = quantize_weights(ARCHITECTURE, weights, "int4_awq", TEXTS, max_error=1e-9)
    assert {layer.after for layer in small.report.layers} == {"float32"}
    norms = [f"layers.0.{name}_norm.weight" for name in ("attention", "mlp")]
    assert any((small[name] != weights[name]).any() for name in norms)
    assert relative(logits(small, TEXTS[:4]), expected) < 1e-4


@pytest.mark.parametrize(("scheme", "data", "error", "says"), [
    ("bf16", None, OptionError, "not of weights only"),
    ("int4_awq", None, OptionError, "needs calibration data"),
    ("int4_awq", [[VOCAB]], InvalidInputError, "unknown tokens"),
], ids=["scheme", "data", "tokens"])
def test_errors(scheme, data, error, says):
    with pytest.raises(error, match=says):
        quantize_weights(ARCHITECTURE, made_weights(), scheme, data)


def test_texts_are_cut_at_the_positions_of_the_model():
    short = dataclasses.replace(ARCHITECTURE, max_positions=32)
    small = quantize_weights(short, made_weights(), "int4_gptq", TEXTS[:2])
    assert small.report.layers[1].error is not None


def test_a_folder_is_loaded_in_four_bits(tmp_path):
    folder = write_folder(tmp_path / "model")
    texts = ["the quick brown fox", "jumps over the lazy dog"]
    small = load(folder, precision="int4", scheme="int4_gptq", data=texts, capacity=32)
    assert 1 < small.perplexity("a quick dog") < 100_000
    with pytest.raises(OptionError, match="needs calibration data"):
        load(folder, scheme="int4_gptq")
    with pytest.raises(OptionError, match="unknown precision"):
        load(folder, precision="int3")
