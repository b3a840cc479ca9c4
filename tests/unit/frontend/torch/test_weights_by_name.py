"""A compiled torch module takes the weights of another, by the keys of ``state_dict``."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import weft

pytestmark = pytest.mark.torch


def network(seed: int) -> torch.nn.Module:
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Conv2d(2, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.ReLU(),
                               torch.nn.Flatten(), torch.nn.Linear(16, 3)).eval()


def test_the_state_of_another_module() -> None:
    first, second, x = network(0), network(1), torch.randn(1, 2, 4, 4)
    second[1].running_var[:] = torch.tensor([1.0, 2.0, 3.0, 4.0])
    second[1].running_mean[:] = torch.tensor([0.5, 1.0, 0.25, 2.0])
    mod = weft.compile(first, example_inputs=(x,))
    given = {name: value for name, value in second.state_dict().items()
             if name != "1.num_batches_tracked"}
    assert mod.weights().keys() == given.keys()
    mod.set_weights(given)
    with torch.no_grad():
        np.testing.assert_allclose(mod(x), second(x).numpy(), rtol=1e-4, atol=1e-5)
