"""The nine real graphs of the onnx wheel: imported, compiled, and compared."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import weft
from tests.models.randomize import (
    LIGHT_MODELS,
    input_names,
    light_model_output,
    light_model_path,
    randomize_weights,
)
from weft.compiler.options import CompileOptions
from weft.compiler.pipeline import PHASE_NAMES, run_pipeline
from weft.frontend.onnx import from_onnx
from weft.ir.types import TensorType
from weft.ir.visitor import post_order
from weft.transform.analysis.reference import evaluate

ONES = np.ones((1, 3, 224, 224), np.float32)
# Enough for every path through the importer and the passes; the others run with the slow tests.
QUICK = ("squeezenet", "shufflenet")
MODELS = [m if m in QUICK else pytest.param(m, marks=pytest.mark.slow) for m in LIGHT_MODELS]
# Plain chains of large convolutions and products: what they have, others have in less time.
_LARGE = ("vgg19", "zfnet512", "bvlc_alexnet")
VARIED = [m for m, name in zip(MODELS, LIGHT_MODELS, strict=True) if name not in _LARGE]


@pytest.mark.parametrize("name", LIGHT_MODELS)
def test_import_gives_a_concrete_graph(name: str) -> None:
    module = from_onnx(light_model_path(name))
    (input_name,) = module.attrs["input_names"]
    assert input_name.endswith(("data_0", "data"))
    main = module["main"]
    assert main.params[0].checked_type == TensorType.of((1, 3, 224, 224))
    assert main.body.checked_type == TensorType.of(light_model_output(name).shape)
    assert all(node.checked_type is not None for node in post_order(main))


@pytest.mark.sample(0.12, 1)
@pytest.mark.parametrize("name", MODELS)
def test_reference_interpreter_gives_the_stored_output(name: str) -> None:
    expected = light_model_output(name)
    actual = evaluate(from_onnx(light_model_path(name)), [ONES])
    assert_close(actual, expected)


@pytest.mark.sample(0.12, 1)
@pytest.mark.parametrize("name", VARIED)
def test_graph_passes_keep_the_values(name: str) -> None:
    """Every phase of the pipeline under the reference interpreter, with random weights."""
    module = from_onnx(randomize_weights(onnx.load(light_model_path(name)), seed=4))
    image = np.random.default_rng(6).uniform(-1, 1, ONES.shape).astype(np.float32)
    expected = evaluate(module, [image])
    options = CompileOptions.make()
    for phase in PHASE_NAMES[1:]:
        assert_close(evaluate(run_pipeline(module, options, stop_at=phase), [image]), expected)


def assert_close(actual: np.ndarray, expected: np.ndarray) -> None:
    """To 1e-3 relative and 1e-4 of the output's scale."""
    scale = np.abs(expected).max()
    np.testing.assert_allclose(actual, expected, rtol=1e-3, atol=1e-4 * scale)


@pytest.mark.sample(0.12, 1)
@pytest.mark.parametrize("name", MODELS)
def test_stored_output(name: str) -> None:
    module = weft.compile(light_model_path(name))
    assert_close(module(ONES), light_model_output(name))


@pytest.mark.sample(0.12, 1)
@pytest.mark.parametrize("name", VARIED)
def test_random_weights_agree_with_onnxruntime(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """And to the bit with themselves at another thread count."""
    from tests.onnxruntime_peer import run_onnxruntime

    model = randomize_weights(onnx.load(light_model_path(name)), seed=3)
    data = model.SerializeToString()
    image = np.random.default_rng(5).uniform(-1, 1, ONES.shape).astype(np.float32)
    (expected,) = run_onnxruntime(data, {input_names(model)[0]: image})
    assert np.isfinite(expected).all()
    results = {}
    for threads in (1, 2):
        monkeypatch.setenv("WEFT_THREADS", str(threads))
        results[threads] = weft.compile(data)(image)
    assert_close(results[1], expected)
    np.testing.assert_array_equal(results[1], results[2])
