"""Quantisation-aware training: straight-through gradients, ranges, and integer programs."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import weft
from weft import nn, optim
from weft.nn.modules.module import ModuleError
from weft.nn.utils import convert_qat, prepare_qat

pytestmark = pytest.mark.torch  # whose environment has scikit-learn


@functools.cache
def digits() -> tuple[np.ndarray, ...]:
    from sklearn import datasets

    found = datasets.load_digits()
    order = np.random.default_rng(0).permutation(len(found.images))
    images = (found.images[order, None] / 16).astype(np.float32)
    return images[:1500], found.target[order][:1500], images[1500:], found.target[order][1500:]


def network() -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(),
                         nn.Conv2d(16, 32, 3, stride=2, padding=1), nn.ReLU(), nn.Flatten(),
                         nn.Linear(512, 10))


def train(model: nn.Module, steps: int, rate: float) -> None:
    optimizer, loss_of = optim.AdamW(model.parameters(), lr=rate), nn.CrossEntropyLoss()

    @weft.train_step
    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        loss = loss_of(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    model.train()
    images, classes, *_ = digits()
    rng = np.random.default_rng(1)
    for _ in range(steps):
        rows = rng.integers(0, len(images), 64)
        step(weft.tensor(images[rows]), weft.tensor(classes[rows]))


def accuracy(run: Any) -> float:
    *_, images, classes = digits()
    return float((np.asarray(run(images)).argmax(1) == classes).mean())


@pytest.fixture(scope="module")
def trained() -> dict[str, np.ndarray]:
    """The weights of a network that reads digits."""
    weft.manual_seed(0)
    model = network()
    train(model, 100, 3e-3)
    return {name: np.array(tensor) for name, tensor in model.state_dict().items()}


def of_weights(weights: dict[str, np.ndarray]) -> nn.Sequential:
    model = network()
    model.load_state_dict(weights)
    model.eval()
    return model


@pytest.mark.sample(0.3)
@pytest.mark.filterwarnings("ignore")  # of the other tool
def test_static_int8_is_as_close_as_onnxruntimes(trained: dict[str, np.ndarray], tmp_path: Path
                                                 ) -> None:
    """The same weights and calibration data, ranges from minima and maxima, scales per channel."""
    from onnxruntime import InferenceSession
    from onnxruntime.quantization import CalibrationDataReader, quantize_static

    images = digits()[0][:256]
    program = weft.trace(of_weights(trained), weft.tensor(images))
    weft.export_onnx(program, tmp_path / "net.onnx")
    name = weft.ir.input_names(program)[0]

    class Reader(CalibrationDataReader):
        def __init__(self) -> None:
            self.left = [{name: images}]

        def get_next(self) -> Any:
            return self.left.pop() if self.left else None

    quantize_static(tmp_path / "net.onnx", tmp_path / "int8.onnx", Reader(), per_channel=True)
    (theirs,) = InferenceSession(tmp_path / "int8.onnx").run(None, {name: images})
    exact = weft.compile(program)(images)
    ours = weft.compile(weft.quantize(program, [images], scheme="int8"))(images)
    errors = [np.linalg.norm(found - exact) / np.linalg.norm(exact) for found in (ours, theirs)]
    assert errors[0] < 1.1 * errors[1]
    assert errors[0] < 0.02


def test_a_network_of_digits_multiplies_integers_and_loses_nothing(
        trained: dict[str, np.ndarray]) -> None:
    weft.manual_seed(0)
    model = of_weights(trained)
    images = weft.tensor(digits()[2])
    real = accuracy(weft.compile(weft.trace(model.eval(), images)))
    prepare_qat(model)
    train(model, 40, 1e-3)
    convert_qat(model)
    program = weft.compile(weft.trace(model, images))
    assert accuracy(program) >= real - 0.005
    assert program.as_text("lowered").count('out_dtype="int32"') == 3


def test_gradients_pass_where_nothing_is_clipped() -> None:
    layer = prepare_qat(nn.Linear(2, 1, bias=False))
    original = next(p for name, p in layer.named_parameters() if name.endswith("original"))
    original.data = weft.tensor(np.array([[0.5, -1.0]], np.float32))
    x = weft.tensor(np.array([[1.0, -3.0]], np.float32))
    layer(x).sum().backward()  # the range of the first batch is that of the data
    assert float(layer.fake_quantize.low.item()) == -3
    assert float(layer.fake_quantize.high.item()) == 1
    np.testing.assert_allclose(original.grad.numpy(), x.numpy(), atol=4 / 255)
    layer(x * 3)
    np.testing.assert_allclose(float(layer.fake_quantize.low.item()), -3 - 0.1 * 6, rtol=1e-6)
    layer.eval()(x * 9)  # evaluation moves no ranges
    np.testing.assert_allclose(float(layer.fake_quantize.low.item()), -3.6, rtol=1e-6)


def test_kept_layers_and_wrong_uses() -> None:
    model = prepare_qat(network(), keep=("5",))
    assert not hasattr(model[5], "fake_quantize")
    assert hasattr(model[0], "fake_quantize")
    with pytest.raises(ModuleError, match="a layer has seen no data"):
        convert_qat(model)
    with pytest.raises(ModuleError, match="is computed already"):
        prepare_qat(model)
    with pytest.raises(ModuleError, match="the model is not prepared"):
        convert_qat(network())
    with pytest.raises(ModuleError, match="no layer to quantise"):
        prepare_qat(nn.ReLU())
    with pytest.raises(ModuleError, match="momentum is a share"):
        prepare_qat(network(), momentum=0.0)
