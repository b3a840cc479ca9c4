"""Damaged models of other formats: an error of weft's family that says something, or a module."""

from __future__ import annotations

import random
import warnings
from typing import Any

import pytest
from onnx import ModelProto, helper, numpy_helper

import weft
from tests.fuzz.mutate import mutate_bytes, mutate_fields
from tests.unit.frontend.onnx.test_onnx_ml import X, forest, ml_model
from weft.export.stablehlo.program import stablehlo_text
from weft.frontend.onnx import from_onnx
from weft.frontend.stablehlo import from_stablehlo
from weft.support.errors import InternalError, WeftError

SEEDS_PER_ROUND = 40
ML = {
    "trees": lambda: ml_model("TreeEnsembleClassifier", [X], ["int64", "float32"],
                              classlabels_int64s=[1, 2, 3], post_transform="SOFTMAX",
                              **forest(1, 5, 3, 2, 2, "class")),
    "vectors": lambda: ml_model("SVMRegressor", [X], ["float32"], coefficients=[0.5, -1.0],
                                kernel_params=[0.4, 0.1, 3.0], kernel_type="RBF", n_supports=2,
                                rho=[0.3], support_vectors=[0.1] * 10),
    "linear": lambda: ml_model("LinearClassifier", [X], ["int64", "float32"],
                               coefficients=[0.5] * 15, intercepts=[0.0, 1.0, 2.0],
                               classlabels_ints=[1, 2, 3], post_transform="LOGISTIC"),
}
PROGRAM = """
def @main(%x: Tensor[(1, 2, 4, 4), float32], %k: Tensor[(3, 2, 3, 3), float32],
          %w: Tensor[(2, 3), float32]) {
  %0 = nn.relu(nn.conv2d(%x, %k, padding=[1, 1]));
  %1 = nn.dense(mean(%0, axis=[2, 3]), %w);
  nn.softmax(take(%1, [1, 0], axis=1))
}
"""


def with_constant(model: ModelProto) -> ModelProto:
    """The model behind a sum with a constant, which ``mutate_fields`` damages, too."""
    model.graph.node[0].input[0] = "moved"
    model.graph.node.insert(0, helper.make_node("Add", ["x0", "bias"], ["moved"], "shift"))
    model.graph.initializer.append(numpy_helper.from_array(X[0], "bias"))
    return model


def is_refused(read: Any, model: Any) -> bool:
    """Whether ``read`` raises an error that says something; other exceptions are faults."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            read(model)
    except WeftError as error:
        if isinstance(error, InternalError) or not error.what:
            raise
        return True
    return False


@pytest.mark.sample(0.3)
@pytest.mark.parametrize("number", range(8))
@pytest.mark.parametrize("kind", ["bytes", "fields"])
@pytest.mark.parametrize("name", ML)
def test_damaged_models_of_scikit_learn(name: str, kind: str, number: int) -> None:
    model = with_constant(ML[name]())
    refused = 0
    for seed in range(number * SEEDS_PER_ROUND, (number + 1) * SEEDS_PER_ROUND):
        rng = random.Random(f"{name}/{kind}/{seed}")
        damaged = mutate_bytes(model.SerializeToString(), rng) if kind == "bytes" \
            else mutate_fields(model, rng).SerializeToString()
        try:
            refused += is_refused(from_onnx, damaged)
        except Exception as error:
            error.add_note(f"seed: {name}/{kind}/{seed}")
            raise
    assert refused


@pytest.mark.sample(0.3)
@pytest.mark.parametrize("number", range(8))
def test_damaged_stablehlo(number: int) -> None:
    text = stablehlo_text(weft.parse(PROGRAM.replace("[1, 0]", "const([1, 0], (2,), int64)")))
    refused = 0
    for seed in range(number * SEEDS_PER_ROUND, (number + 1) * SEEDS_PER_ROUND):
        damaged = mutate_bytes(text.encode(), random.Random(f"stablehlo/{seed}"))
        try:
            refused += is_refused(from_stablehlo, damaged.decode("utf-8", errors="replace"))
        except Exception as error:
            error.add_note(f"seed: stablehlo/{seed}")
            raise
    assert refused
