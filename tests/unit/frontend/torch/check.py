"""Functions of torch beside what weft makes of them, evaluated by the reference interpreter."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from weft.frontend.torch import from_torch, torch_program
from weft.ir.module import IRModule
from weft.transform import evaluate

torch = pytest.importorskip("torch")


class AsModule(torch.nn.Module):
    """A function as a module."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: Any) -> Any:
        return self.function(*args)


def imported(function: Any, inputs: Sequence[Any]) -> IRModule:
    """The module of a function (or torch module) for these inputs."""
    module = function if isinstance(function, torch.nn.Module) else AsModule(function)
    return from_torch(torch_program(module.eval(), example_inputs=tuple(inputs)))


def check(function: Any, *inputs: Any, rtol: float = 1e-5, atol: float = 1e-6) -> None:
    """All tensors that ``function`` gives, in value and dtype."""
    mod = imported(function, inputs)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = function(*inputs)
    expected = expected if isinstance(expected, (tuple, list)) else (expected,)
    got = evaluate(mod, [x.numpy() for x in inputs])
    got = got if isinstance(got, tuple) else (got,)
    assert len(got) == len(expected)
    for number, (mine, theirs) in enumerate(zip(got, expected, strict=True)):
        wanted = theirs.numpy()
        assert np.asarray(mine).dtype == wanted.dtype, f"result {number}"
        np.testing.assert_allclose(mine, wanted, rtol=rtol, atol=atol,
                                   err_msg=f"result {number}")


def normal(*shape: int, seed: int = 0) -> Any:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def uniform(*shape: int, low: float = 0.1, high: float = 0.9, seed: int = 0) -> Any:
    numbers = torch.rand(*shape, generator=torch.Generator().manual_seed(seed))
    return low + (high - low) * numbers


def integers(*shape: int, low: int = -9, high: int = 9, seed: int = 0) -> Any:
    return torch.randint(low, high, shape, generator=torch.Generator().manual_seed(seed))
