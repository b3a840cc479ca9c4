"""Operators of torch.library without a converter run in torch, called by compiled code."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import weft
from weft.support.errors import ArtifactError, CodegenError, StrictError, UnsupportedModelError

pytestmark = pytest.mark.torch


@torch.library.custom_op("weft_tests::cut", mutates_args=())
def cut(x: torch.Tensor, at: int, factor: float = 1.0) -> tuple[torch.Tensor, torch.Tensor]:
    return x[:at] * factor, x[at:].clone()


@cut.register_fake
def _(x: torch.Tensor, at: int, factor: float = 1.0) -> tuple[torch.Tensor, torch.Tensor]:
    return x[:at].clone(), x[at:].clone()


@torch.library.custom_op("weft_tests::twice_", mutates_args=("x",))
def twice_(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    x.mul_(2)
    return y + 1


@twice_.register_fake
def _(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(y)


@torch.library.custom_op("weft_tests::positive", mutates_args=())
def positive(x: torch.Tensor) -> torch.Tensor:
    return x[x > 0]


@positive.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return x.new_empty(torch.library.get_ctx().new_dynamic_size())


@torch.library.custom_op("weft_tests::total", mutates_args=())
def total(parts: list[torch.Tensor]) -> torch.Tensor:
    return torch.stack(parts).sum(0)


@total.register_fake
def _(parts: list[torch.Tensor]) -> torch.Tensor:
    return torch.empty_like(parts[0])


class Net(torch.nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> Any:
        z = x + 1
        plus = twice_(z, y)
        (first, rest), (same, _) = cut(z, 1, 3.0), cut(z, 1, 3.0)
        return torch.relu(plus), z, first + same, rest


class Of(torch.nn.Module):
    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(x)


def arguments(rows: int = 3) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(rows, 4), torch.randn(2).bfloat16()


def check(run: Any, x: torch.Tensor, y: torch.Tensor) -> None:
    for got, wanted in zip(run(x, y), Net()(x, y), strict=True):
        shown = got.float().numpy() if isinstance(got, torch.Tensor) else np.float32(got)
        np.testing.assert_allclose(shown, wanted.float().numpy(), rtol=1e-6)


def test_compiled_code_calls_torch_and_says_so_once(tmp_path: Path) -> None:
    with pytest.warns(weft.FallbackWarning) as told:
        run = weft.compile(Net().eval(), example_inputs=arguments())
    assert len(told) == 1
    assert "weft_tests.cut.default (2 times), weft_tests.twice_.default" in str(told[0].message)
    assert '@weft.torch_converter("weft_tests::cut")' in " ".join(run.explain().split())
    check(run, *arguments())
    with pytest.raises(ArtifactError, match=r"calls Python functions") as caught:
        run.export(tmp_path / "net.weft")
    assert "converter" in str(caught.value.help)
    with pytest.raises(StrictError, match=r"weft_tests\.cut"):
        weft.compile(Net().eval(), example_inputs=arguments(), strict=True)


@pytest.mark.filterwarnings("ignore::weft.FallbackWarning")
def test_dynamic_sizes_have_a_program_each() -> None:
    run = weft.compile(Net().eval(), example_inputs=arguments(), inputs={"x": ("n", 4)})
    for rows in (1, 5):
        check(run, *arguments(rows))


@pytest.mark.filterwarnings("ignore::weft.FallbackWarning")
def test_torch_compile_leaves_them_to_torch() -> None:
    torch._dynamo.reset()
    check(torch.compile(Net(), backend="weft"), *arguments())


@pytest.mark.filterwarnings("ignore::weft.FallbackWarning")
def test_lists_of_tensors_and_weights() -> None:
    weight = torch.randn(3)
    net = Of(lambda x: total([x, weight, x, x * 2])).eval()
    run = weft.compile(net, example_inputs=(torch.ones(3),))
    wanted = 4 + weight.numpy()
    np.testing.assert_allclose(run(np.ones(3, np.float32)), wanted, rtol=1e-6)


@pytest.mark.filterwarnings("ignore::weft.FallbackWarning")
def test_what_cannot_be_called() -> None:
    x = torch.randn(4)
    with pytest.raises(UnsupportedModelError, match="data determines"):
        weft.compile(Of(positive).eval(), example_inputs=(x,))
    with pytest.raises(UnsupportedModelError, match="1 operator that weft does not support"):
        weft.compile(Of(lambda x: torch.view_as_real(cut(torch.complex(x, x), 2)[0])).eval(),
                     example_inputs=(x,))


@torch.library.custom_op("weft_tests::halved", mutates_args=())
def halved(x: torch.Tensor) -> torch.Tensor:
    return x / 2


@halved.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x, dtype=torch.float64)


@pytest.mark.filterwarnings("ignore::weft.FallbackWarning")
def test_results_of_another_type_than_the_fake_ones() -> None:
    run = weft.compile(Of(halved).eval(), example_inputs=(torch.ones(3),))
    with pytest.raises(CodegenError, match=r"weft_tests\.halved.*results of the wrong type"):
        run(np.ones(3, np.float32))
