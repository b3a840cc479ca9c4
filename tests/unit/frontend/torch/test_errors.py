"""What weft cannot read of a torch module is told at once, at the lines of its forward."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import weft
from weft.support.errors import InvalidModelError, UnsupportedModelError

pytestmark = pytest.mark.torch


class Of(torch.nn.Module):
    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function
        self.eval()

    def forward(self, x: torch.Tensor) -> Any:
        return self.function(x)


class Two(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> Any:
        factor, pivots, _ = torch.linalg.ldl_factor_ex(x)
        return torch.linalg.ldl_solve(factor, pivots, x)


class Narrow(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> Any:
        y = x + 1
        return y.to(torch.float8_e4m3fn).to(torch.float32)


def refused(module: torch.nn.Module, kind: Any = UnsupportedModelError, **options: Any) -> Any:
    with pytest.raises(kind) as caught:
        weft.compile(module.eval(), example_inputs=(torch.eye(3),), **options)
    return caught.value


def place(module: type[torch.nn.Module], line: int) -> str:
    """A line of ``forward``, counted from its first."""
    return f"{__file__}:{module.forward.__code__.co_firstlineno + line}"


def test_all_operators_at_once_with_lines_and_the_other_way_in() -> None:
    error = refused(Two())
    assert "2 operators" in error.what
    assert place(Two, 1) in " ".join(error.notes)
    assert place(Two, 2) in " ".join(error.notes)
    assert "torch_converter" in error.help
    assert 'torch.compile(module, backend="weft")' in error.help


def test_an_error_of_a_converter_has_the_line() -> None:
    assert place(Narrow, 2) in str(refused(Narrow()))


def test_a_size_that_torch_fixes_is_told_as_torchs() -> None:
    error = refused(Of(lambda x: x.reshape(3, 3)), InvalidModelError, inputs={"x": ("n", 3)})
    assert error.what == "torch.export cannot trace the module"
    assert "give its number in inputs" in error.help
    error = refused(Of(lambda x: x if x.sum() > 0 else -x), InvalidModelError)
    assert "torch.cond" in error.help
