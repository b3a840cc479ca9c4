"""User subclasses of layers, containers and losses, with constructors and forwards of their own."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest

import weft
from weft import nn
from weft.nn.modules.function_layer import FunctionLayer, signature_of

ARGUMENTS: dict[str, tuple[Any, ...]] = {
    "Threshold": (0.1, 2.0), "Softmax": (1,), "LogSoftmax": (1,), "Softmin": (1,),
    "MaxPool1d": (2,), "AvgPool2d": (2,), "AdaptiveAvgPool1d": (1,), "PixelShuffle": (1,),
    "Fold": (3, 2), "Unfold": (2,), "LPPool1d": (2, 2), "LocalResponseNorm": (2,)}
NAMES = ("ReLU", "GELU", "Softmax", "Threshold", "Hardtanh", "RReLU", "Dropout", "MaxPool1d",
         "AvgPool2d", "AdaptiveAvgPool1d", "LPPool1d", "PixelShuffle", "Upsample", "Unfold", "Fold",
         "LocalResponseNorm", "MSELoss", "CrossEntropyLoss", "BCEWithLogitsLoss", "CTCLoss",
         "CosineSimilarity")


@pytest.mark.parametrize("name", NAMES)
def test_a_subclass_has_its_own_constructor(name: str):
    base = getattr(nn, name)

    class Mine(base):
        def __init__(self, scale: float) -> None:
            super().__init__(*ARGUMENTS.get(name, ()))
            self.scale = scale

        def forward(self, *inputs: Any) -> Any:
            return super().forward(*inputs) * self.scale

    layer = Mine(2.0)
    assert isinstance(layer, base)
    assert list(inspect.signature(Mine).parameters) == ["scale"]
    assert repr(layer).startswith("Mine(")
    assert isinstance(Mine(scale=1.0).double(), Mine)


def test_a_subclass_computes_with_its_parents_forward():
    class Scaled(nn.MSELoss):
        def __init__(self) -> None:
            super().__init__(reduction="sum")

        def forward(self, *inputs: Any) -> Any:
            return super().forward(*inputs) * 2

    assert Scaled()(weft.ones(2, 3), weft.zeros(2, 3)).item() == 12

    class Gate(nn.Sequential):
        def __init__(self, width: int) -> None:
            super().__init__(nn.Linear(width, width), nn.Sigmoid())

        def forward(self, x: Any) -> Any:
            return x * super().forward(x)

    assert tuple(Gate(3)(weft.ones(2, 3)).shape) == (2, 3)


def test_a_row_of_the_table_may_be_a_users():
    class Clipped(FunctionLayer, function="hardtanh", takes="min_val=0.0 max_val=2.0"):
        """Limits to 0 and 2."""

    assert Clipped()(weft.tensor([-1.0, 1.0, 3.0])).tolist() == [0, 1, 2]
    assert repr(Clipped(max_val=1.0)) == "Clipped(min_val=0.0, max_val=1.0)"


def test_the_signature_of_a_row():
    found = signature_of("dim beta=1.0 * name='x'")
    assert str(found) == "(dim, beta=1.0, *, name='x')"
    with pytest.raises(TypeError, match="Softmax has no keyword 'dimension'"):
        nn.Softmax(dimension=1)


def test_the_older_names_of_reductions():
    x, y = weft.ones(2, 2), weft.zeros(2, 2)
    assert nn.MSELoss(size_average=False)(x, y).item() == 4
    assert tuple(nn.MSELoss(reduce=False)(x, y).shape) == (2, 2)
    assert nn.CrossEntropyLoss(weft.ones(3), None, -100).weight.tolist() == [1, 1, 1]


def test_a_flag_of_the_mode_follows_the_module():
    layer = nn.Dropout(0.5).eval()
    np.testing.assert_array_equal(layer(weft.ones(50)).numpy(), np.ones(50))
    assert (layer.train()(weft.ones(200)).numpy() == 0).any()
