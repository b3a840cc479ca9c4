"""The training examples follow torch: same data order and initial values, same curves."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest

import weft
from weft import data, nn

pytest.importorskip("sklearn")

from examples.train import digits, fine_tune, language
from examples.train.training import accuracy, epochs_of, show_curve, text_curve
from tests.torch.training_curves import curves_of

STEPS = 20


def _close(curves: list[np.ndarray]) -> None:
    np.testing.assert_allclose(curves[0][:STEPS], curves[1][:STEPS], rtol=1e-4)
    assert curves[0][-1] < curves[0][0]


@pytest.mark.sample(0.4)
@pytest.mark.torch
@pytest.mark.slow
@pytest.mark.parametrize("name", digits.MODELS)
def test_digits_follow_torch(name: str):
    import torch

    torch.manual_seed(0)
    x, y, x_test, y_test = digits.load_digits(enlarged=name == "resnet9")
    theirs, ours = (digits.build(library, name, 0.0, width=4) for library in (torch.nn, nn))
    loader = data.DataLoader(data.ArrayDataset(x, y), 64, shuffle=True, drop_last=True)
    # Adam would turn the rounding of gradients that are zero, those of biases before a batch norm,
    # into whole steps, so that any two libraries drift apart.
    options = {"name": "SGD", "lr": 0.02, "momentum": 0.9} if name == "resnet9" else {}
    epochs = 1 if name == "resnet9" else 4
    _close(curves_of(ours, theirs, epochs_of(loader, epochs), **options))
    theirs.eval()
    found = theirs(torch.tensor(x_test)).argmax(1).numpy()
    assert accuracy(ours, x_test, y_test) == pytest.approx((found == y_test).mean(), abs=0.01)


@pytest.mark.torch
@pytest.mark.slow
@pytest.mark.parametrize("name", language.MODELS)
def test_language_models_follow_torch(name: str):
    import torch

    torch.manual_seed(0)
    text, length = language.read_text(), 8
    numbers, symbols = (language.words if name == "transformer" else language.characters)(text)
    theirs = language.build(torch.nn, torch.tensor, name, symbols, length)
    ours = language.build(nn, weft.tensor, name, symbols, length)
    batches = itertools.islice(language.batches_of(numbers, 16, length), STEPS)
    _close(curves_of(ours, theirs, batches))


@pytest.mark.torch
@pytest.mark.slow
def test_fine_tuning_of_an_onnx_file_follows_torch(tmp_path: Path):
    import torch

    torch.manual_seed(0)
    features = torch.nn.Sequential(torch.nn.Linear(64, 48), torch.nn.ReLU(),
                                   torch.nn.Linear(48, 32), torch.nn.ReLU())
    weights = {k: v.detach().numpy() for k, v in features.state_dict().items()}
    fine_tune.write_onnx(tmp_path / "features.onnx", weights)
    theirs = torch.nn.Sequential(features, torch.nn.Linear(32, 10))
    ours, _ = fine_tune.fine_tuned(tmp_path / "features.onnx", 10)
    assert set(ours.state_dict()) == set(theirs.state_dict())
    x, y, *_ = digits.load_digits()
    loader = data.DataLoader(data.ArrayDataset(x.reshape(-1, 64), y), 64, shuffle=True)
    _close(curves_of(ours, theirs, itertools.islice(loader, STEPS)))


@pytest.mark.torch
@pytest.mark.slow
def test_an_example_runs_as_a_script(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    curve = tmp_path / "curve.png"
    losses = digits.main(["--model", "softmax", "--steps", "30", "--curve", str(curve)])
    assert losses[-1] < losses[0]
    assert curve.read_bytes().startswith(b"\x89PNG")
    assert "accuracy on 297 test images" in capsys.readouterr().out


def test_a_curve_of_text_falls_with_the_values(tmp_path: Path):
    rows = text_curve([3.0, 2.0, 1.0], height=3).split("\n")
    assert [row.split(" ", 1)[-1].count("█") for row in rows] == sorted(
        row.split(" ", 1)[-1].count("█") for row in rows)
    assert rows[0].endswith("█  ")
    show_curve([3.0, 2.0], tmp_path / "c.png", "loss")
