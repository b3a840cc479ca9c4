"""Quantised programs of torch (PT2E): each operator, and integer kernels of whole layers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.ao.quantization.fx._decomposed

import weft
from weft.support.errors import InvalidModelError, UnsupportedModelError

pytestmark = pytest.mark.torch

Q = torch.ops.quantized_decomposed
BYTE, FULL = (0, 255, torch.uint8), (-128, 127, torch.int8)


class Program(torch.nn.Module):
    """A function of the inputs and of buffers ``w`` (int8), ``s`` (scales) and ``z`` (zeros)."""

    def __init__(self, function: Callable[..., Any], shape: tuple[int, ...] = (24, 16)) -> None:
        super().__init__()
        made = torch.Generator().manual_seed(7)
        self.function = function
        self.register_buffer("w", torch.randint(-127, 128, shape, dtype=torch.int8,
                                                generator=made))
        self.register_buffer("s", torch.rand(shape[0], generator=made) * 0.01 + 0.001)
        self.register_buffer("z", torch.zeros(shape[0], dtype=torch.int64))

    def forward(self, x: torch.Tensor) -> Any:
        return self.function(self, x)


def compare(function: Callable[..., Any], x: torch.Tensor, **made: Any) -> str:
    """weft computes what torch computes; the kernels, as text."""
    program = Program(function, **made).eval()
    expected = program(x)
    module = weft.compile(program, example_inputs=(x,))
    actual = module(x)
    if isinstance(expected, torch.Tensor):
        expected, actual = (expected,), (actual,)
    for ours, theirs in zip(actual, expected, strict=True):
        assert ours.shape == tuple(theirs.shape)  # some dtypes differ between torch's own versions
        np.testing.assert_allclose(ours, theirs.detach().numpy(), rtol=1e-5, atol=1e-5)
    return module.as_text("lowered")


def fake(x: torch.Tensor, scale: float, zero: int, *limits: Any) -> torch.Tensor:
    stored = Q.quantize_per_tensor(x, scale, zero, *limits)
    return Q.dequantize_per_tensor(stored, scale, zero, *limits)


def test_a_linear_layer_of_pt2e_multiplies_integers() -> None:
    def layer(self: Any, x: torch.Tensor) -> torch.Tensor:
        weight = Q.dequantize_per_channel(self.w, self.s, self.z, 0, -127, 127, torch.int8)
        y = torch.relu(torch.nn.functional.linear(fake(x, 1 / 32, 120, *BYTE), weight))
        return fake(y, 1 / 16, 0, *BYTE)

    assert 'out_dtype="int32"' in compare(layer, torch.randn(5, 16))


def test_a_convolution_of_pt2e_multiplies_integers() -> None:
    def layer(self: Any, x: torch.Tensor) -> torch.Tensor:
        weight = Q.dequantize_per_channel(self.w, self.s, self.z, 0, -127, 127, torch.int8)
        return torch.nn.functional.conv2d(fake(x, 1 / 32, 120, *BYTE), weight)

    assert 'out_dtype="int32"' in compare(layer, torch.randn(1, 4, 6, 6), shape=(8, 4, 3, 3))


def test_scales_found_at_run_time_multiply_integers() -> None:
    def layer(self: Any, x: torch.Tensor) -> torch.Tensor:
        scale, zero = Q.choose_qparams.tensor(x, -128, 127, 1e-5, torch.int8)
        stored = Q.quantize_per_tensor.tensor(x, scale, zero, *FULL)
        real = Q.dequantize_per_tensor.tensor(stored, scale, zero, *FULL)
        weight = Q.dequantize_per_channel(self.w, self.s, self.z, 0, -127, 127, torch.int8)
        return torch.nn.functional.linear(real, weight)

    assert 'out_dtype="int32"' in compare(layer, torch.randn(5, 16))


def test_each_operator_computes_what_torch_does() -> None:
    def all_of(self: Any, x: torch.Tensor) -> Any:
        token = Q.choose_qparams_per_token(x, torch.int8)
        both = Q.choose_qparams_per_token_asymmetric(x, torch.int8)
        zeros = both[1].to(torch.int32)
        stored = Q.quantize_per_token(x, both[0], zeros, *FULL)
        groups, none = self.s.reshape(-1, 1) * torch.ones(1, 4), torch.zeros(24, 4)
        per_group = Q.quantize_per_channel_group(x, groups, none, -8, 7, torch.int8, 4)
        return (*token, *both, stored,
                Q.dequantize_per_token(stored, both[0], zeros, *FULL, torch.float32),
                per_group,
                Q.dequantize_per_channel_group(per_group, groups, None, -8, 7, torch.int8, 4,
                                               torch.float32),
                *Q.choose_qparams_symmetric.tensor(x, -127, 127, 1e-5, torch.int8),
                Q.quantize_per_channel(x, self.s, self.z, 0, -100, 99, torch.int8),
                Q.fake_quant_per_channel(x, self.s, self.z, 0, -128, 127),
                Q.dequantize_per_tensor(self.w, 0.5, 3, *FULL, out_dtype=torch.float16),
                Q.convert_element_type.no_fuse(x, torch.float16))

    compare(all_of, torch.randn(24, 16) * torch.rand(24, 1))


def test_int8_matmul() -> None:
    kernels = compare(lambda self, x: torch._int_mm(x, self.w.t()),
                      torch.randint(-128, 128, (32, 16), dtype=torch.int8))
    assert 'out_dtype="int32"' in kernels


@pytest.mark.parametrize(("scale", "zero", "dtype", "error", "what"), [
    (0.0, 0, torch.int8, InvalidModelError, "a scale is not a positive number"),
    (float("nan"), 0, torch.int8, InvalidModelError, "a scale is not a positive number"),
    (0.5, 200, torch.int8, InvalidModelError, "a zero point is out of range"),
    (0.5, -1, torch.uint8, InvalidModelError, "a zero point is out of range"),
    (0.5, 0, torch.float8_e4m3fn, UnsupportedModelError, "float8_e4m3fn"),
])
def test_bad_parameters_are_refused(scale: float, zero: int, dtype: torch.dtype,
                                    error: type[Exception], what: str) -> None:
    limits = (0, 255) if dtype is torch.uint8 else (-128, 127)
    program = Program(lambda _, x: Q.quantize_per_tensor(x, scale, zero, *limits, dtype)).eval()
    with pytest.raises(error, match=what):
        weft.compile(program, example_inputs=(torch.ones(2, 3),))
