"""``weft.grad`` of torch functions against torch's autograd."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch")

import torch

import weft
from tests.torch.gradient_programs import RandomFunction

pytestmark = pytest.mark.torch


def check(function: RandomFunction) -> None:
    gradient = weft.value_and_grad(function, example_inputs=tuple(function.inputs),
                                   cotangent="ones", unused="zeros")
    value, *found = weft.compile(gradient)(*function.inputs)
    np.testing.assert_allclose(value, function(*function.inputs), rtol=1e-9, atol=1e-12)
    wanted = function.gradients()
    scale = max(1.0, *(float(np.abs(g).max()) for g in wanted))
    for ours, autograds in zip(found, wanted, strict=True):
        np.testing.assert_allclose(ours, autograds, rtol=1e-7, atol=1e-9 * scale)


# Drawn functions take the variance of one number, of which torch warns.
@pytest.mark.sample(0.3)
@pytest.mark.filterwarnings("ignore:var.*degrees of freedom")
@pytest.mark.parametrize("seed", range(12))
def test_random_functions(seed):
    check(RandomFunction(seed, 6))


class Blocks(torch.nn.Module):
    """Values that autograd does not follow, in the forms that torch has for that."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            scale, shift = x.amax(0), x.sin() * 2
        return ((x - shift) * scale + x.detach() * x + x.sign().detach()).sum()


def test_what_autograd_does_not_follow():
    x = torch.randn(3, 4, dtype=torch.float64, requires_grad=True)
    exported = torch.export.export(Blocks().eval(), (x.detach(),))
    Blocks()(x).backward()
    before = str(exported.graph)
    for model, examples in ((Blocks().eval(), x.detach()), (exported, None)):
        gradient = weft.value_and_grad(model, example_inputs=examples, cotangent="ones")
        _, found = weft.compile(gradient)(x.detach())
        np.testing.assert_allclose(found, x.grad, rtol=1e-12)
    assert str(exported.graph) == before
