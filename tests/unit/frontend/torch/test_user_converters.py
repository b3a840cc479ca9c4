"""Users' converters of torch operators, of the same form as those of ONNX operators."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch

import weft
from weft import op
from weft.frontend.common.typed import tensor_type
from weft.frontend.torch import converters as _converters  # noqa: F401 - fills the table
from weft.frontend.torch.registry import CONVERTERS
from weft.support.errors import OperatorError

pytestmark = pytest.mark.torch


@torch.library.custom_op("weft_tests::scale", mutates_args=())
def _scale(x: torch.Tensor, factor: float, times: int = 1) -> torch.Tensor:
    return x * factor * times


@_scale.register_fake
def _(x: torch.Tensor, factor: float, times: int = 1) -> torch.Tensor:
    return torch.empty_like(x)


class Scaled(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(_scale(x, 2.0))


@pytest.fixture(autouse=True)
def _forget() -> Iterator[None]:
    before = dict(CONVERTERS.entries)
    yield
    CONVERTERS.entries = before


def _compiled() -> np.ndarray:
    x = torch.tensor([1.0, -2.0])
    return weft.compile(Scaled().eval(), example_inputs=(x,))(x.numpy())


def test_inputs_and_attributes_arrive_typed() -> None:
    seen = {}

    @weft.torch_converter("weft_tests::scale")
    def scale(node, x, *, factor, times=5):
        seen.update(type=str(tensor_type(x)), times=times)
        # Nested calls have no types yet: weft infers those of the whole result.
        return op.multiply(op.add(x, op.zeros(shape=(2,))), node.constant(factor, "float32"))

    assert _compiled().tolist() == [2, 0]
    assert seen == {"type": "Tensor[(2,), float32]", "times": 1}


def test_results_are_compared_with_those_of_torch() -> None:
    @weft.torch_converter("weft_tests::scale")
    def scale(node, x, factor, times):
        return op.sum(x)

    with pytest.raises(OperatorError, match="float32 of rank 0"):
        _compiled()


def test_a_result_that_is_no_expression() -> None:
    @weft.torch_converter("weft_tests::scale.default")
    def scale(node, x, factor, times):
        return None

    with pytest.raises(OperatorError, match=r"converter of weft_tests.scale.default returned no"):
        _compiled()


def test_an_operator_without_converter_says_how_to_register_one() -> None:
    with pytest.warns(weft.FallbackWarning, match=r'torch_converter\("weft_tests::scale"\)'):
        _compiled()


def test_a_converter_replaces_that_of_weft() -> None:
    @weft.torch_converter("aten::relu")
    def relu(node, x):
        return op.exp(x)

    x = torch.zeros(2)
    compiled = weft.compile(torch.nn.ReLU().eval(), example_inputs=(x,))
    assert compiled(x.numpy()).tolist() == [1, 1]
