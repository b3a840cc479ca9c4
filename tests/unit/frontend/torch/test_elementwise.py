"""Elementwise operators: one graph per family, every result compared."""

from __future__ import annotations

import pytest

from tests.unit.frontend.torch.check import check, integers, normal, torch, uniform

pytestmark = pytest.mark.torch
F = torch.nn.functional


def test_functions_of_floats():
    functions = (torch.acos, torch.asin, torch.atan, torch.asinh, torch.atanh, torch.cos,
                 torch.cosh, torch.erf, torch.exp, torch.log, torch.rsqrt, torch.sigmoid,
                 torch.sin, torch.sinh, torch.sqrt, torch.tan, torch.tanh, torch.expm1,
                 torch.log1p, torch.log2, torch.log10, torch.reciprocal)
    check(lambda x: tuple(f(x) for f in functions), uniform(3, 4))


def test_functions_near_zero_keep_their_digits():
    check(lambda x: (torch.expm1(x), torch.log1p(x)), torch.tensor([1e-7, -1e-6, 1e-20, 0.4, 3.0]),
          atol=0)


def test_functions_that_keep_the_dtype():
    def both(x, i):
        shared = (torch.abs, torch.neg, torch.sign)
        return (*(f(v) for v in (x, i) for f in shared), torch.floor(x), torch.ceil(x),
                torch.trunc(x), torch.round(x), torch.round(x, decimals=1), torch.floor(i))

    check(both, normal(3, 5) * 3, integers(4))


def test_arithmetic_promotes_as_torch_does():
    def all_of(x, i, b):
        return (x + i, i + i, i * 2.5, x - 1, 3 - x, torch.add(x, i, alpha=2),
                torch.sub(x, x * 2, alpha=0.5), i / 4, x // 0.7, i // 4, i % 4, x % 0.7,
                torch.fmod(i, 4), torch.div(x, 0.3, rounding_mode="trunc"),
                torch.div(i, 4, rounding_mode="trunc"), torch.div(i, 4, rounding_mode="floor"),
                torch.maximum(x, -x), torch.minimum(i, -i), b + i, b * x, i.sum() + x)

    check(all_of, normal(3, 4), integers(3, 4), integers(3, 4) > 0)


def test_powers():
    def all_of(x, i):
        return (x**2, x**3, x**4, x**0.5, x**-0.5, x**-1, x**1.7, 2**x, x**x, i**2, i**3)

    check(all_of, uniform(3, 4), integers(5))


def test_comparisons_and_logic():
    def all_of(x, i, b):
        c = i > 0
        return (x > 0, x >= i, i == 3, i != 3, x < 0.5, i <= 2, b == c, b != c, b > c,
                torch.logical_and(b, c), torch.logical_or(b, i), torch.logical_xor(b, c),
                torch.logical_not(i), b & c, i & 5, i | 5, i ^ 5, ~i, ~b, torch.isnan(x),
                torch.isinf(x), torch.isfinite(x), torch.isnan(i))

    special = torch.tensor([[float("nan"), float("inf"), 1.0], [0.0, -1.0, float("-inf")]])
    check(all_of, special, integers(2, 3), integers(2, 3, seed=1) > 0)


def test_choices_and_bounds():
    def all_of(x, i):
        return (torch.where(x > 0, x, -1.0), torch.where(i > 0, i, x), x.masked_fill(x < 0, 7.0),
                x.clamp(-0.5, 0.5), x.clamp(min=0.1), x.clamp(max=0.1), i.clamp(-2, 3),
                torch.clamp(x, min=x * 0.5), F.relu6(x), F.hardtanh(x, -2, 0.5))

    check(all_of, normal(3, 4), integers(3, 4))


def test_activations():
    def all_of(x):
        return (F.relu(x), F.leaky_relu(x, 0.2), F.elu(x, 1.5), F.celu(x, 0.7), F.selu(x),
                F.silu(x), F.gelu(x), F.gelu(x, approximate="tanh"), F.hardswish(x),
                F.hardsigmoid(x), F.softplus(x, beta=2), F.mish(x), F.softsign(x),
                F.logsigmoid(x), F.glu(x, 1), F.softmax(x, 1), F.log_softmax(x, 0),
                F.prelu(x, x[0, :1]), F.threshold(x, 0.1, -3.0), F.tanhshrink(x))

    check(all_of, normal(4, 6) * 4)


def test_conversions():
    def all_of(x, i):
        return (x.to(torch.int64), x.half().float(), i.to(torch.float32), i.bool(), x.double(),
                x.to(torch.uint8), x.detach().clone(), x.contiguous())

    check(all_of, uniform(3, 4, low=0, high=9), integers(3))


def test_a_model_in_training_mode_is_refused():
    from weft.frontend.torch import torch_program
    from weft.support.errors import InvalidModelError

    with pytest.raises(InvalidModelError, match="training mode"):
        torch_program(torch.nn.Dropout().train(), example_inputs=(normal(3),))
