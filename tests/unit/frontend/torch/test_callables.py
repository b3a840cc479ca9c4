"""Functions of torch tensors and TorchScript compile as modules do."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest
import torch

import weft
from weft.support.errors import InvalidModelError, OptionError

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore::DeprecationWarning")]
X = torch.arange(12.0).reshape(3, 4) - 5


class Branch(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, 2)

    def forward(self, x: torch.Tensor, scale: float = 2.0) -> torch.Tensor:
        if x.sum() > 0:
            x = x + 1
        return self.layer(x) * scale


def _layer() -> torch.nn.Module:
    torch.manual_seed(0)
    return Branch().eval()


def _plus(x: torch.Tensor, *, more: float = 2.0) -> torch.Tensor:
    return torch.sin(x) + more


def _scaled(x: torch.Tensor) -> torch.Tensor:
    return torch.tanh(x) * 2


def _unequal(x: torch.Tensor) -> torch.Tensor:
    return x + x[:, :3]


FUNCTIONS: dict[str, Any] = {
    "function": _plus, "closure": lambda x: _LAYER(x) * 2,
    "partial": functools.partial(_plus, more=3),
    "builtin": torch.sin, "partial of a builtin": functools.partial(torch.sum, dim=1),
    "transformed": torch.vmap(lambda row: row * row.sum()),
}
_LAYER = torch.nn.Linear(4, 2)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_of_tensors(name: str) -> None:
    function = FUNCTIONS[name]
    got = weft.compile(function, example_inputs=(X,))(X)
    np.testing.assert_allclose(got, function(X).detach().numpy(), rtol=1e-5, atol=1e-5)


def test_a_scripted_function() -> None:
    function = torch.jit.script(_scaled)
    got = weft.compile(function, example_inputs=(X,))(X)
    np.testing.assert_allclose(got, function(X).numpy(), rtol=1e-5, atol=1e-5)


def test_script_takes_branches_and_named_sizes() -> None:
    script = torch.jit.script(_layer())
    mod = weft.compile(script, example_inputs=(X,), inputs={"x": ("batch", 4)})
    for x in (X, torch.cat([X, X + 9])):
        np.testing.assert_allclose(mod(x), script(x).detach().numpy(), rtol=1e-5, atol=1e-5)


def test_scripts_with_equal_weights_have_their_own_code() -> None:
    first = torch.jit.trace(torch.nn.ReLU().eval(), X)
    second = torch.jit.trace(torch.nn.Tanh().eval(), X)
    for script in (first, second):
        got = weft.compile(script, example_inputs=(X,))(X)
        np.testing.assert_allclose(got, script(X).numpy(), rtol=1e-5, atol=1e-5)


def test_refusals_say_what_to_do() -> None:
    with pytest.raises(InvalidModelError, match="lazy layers"):
        weft.compile(torch.nn.LazyLinear(3).eval(), example_inputs=(X,))
    with pytest.raises(InvalidModelError, match="training mode"):
        weft.compile(torch.jit.script(Branch()), example_inputs=(X,))
    with pytest.raises(InvalidModelError, match="TorchScript"):
        weft.compile(torch.jit.script(_layer()), example_inputs=(X, 1.0, 2))
    for model in (_layer(), _plus):
        with pytest.raises(OptionError, match="do not fit the arguments"):
            weft.compile(model, example_inputs=(X, 1.0, 2))
    with pytest.raises(InvalidModelError, match="_unequal"):  # the name of the function
        weft.compile(_unequal, example_inputs=(X,))
