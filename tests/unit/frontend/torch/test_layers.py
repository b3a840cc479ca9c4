"""Convolutions, pools, products, norms, attention and recurrent layers."""

from __future__ import annotations

import pytest

from tests.unit.frontend.torch.check import check, imported, normal, torch
from weft.support.errors import UnsupportedModelError

pytestmark = pytest.mark.torch
F = torch.nn.functional
sdpa = F.scaled_dot_product_attention


def test_products():
    def all_of(x, w, v):
        stack = x.reshape(2, 2, 3)
        return (x @ w, x @ v, v @ w, v @ v, stack @ w, stack @ stack.transpose(1, 2),
                torch.addmm(x[0, 0], x, w), torch.addmm(w[0], x, w, beta=0.5, alpha=2),
                torch.baddbmm(v, stack, w.expand(2, 3, 3)), F.linear(stack, w, v), F.linear(x, w),
                stack[:, None] @ stack.transpose(1, 2), torch.einsum("bij,jk->bik", stack, w),
                torch.outer(v, v))

    check(all_of, normal(4, 3), normal(3, 3, seed=1), normal(3, seed=2))


def test_convolutions():
    def all_of(x, w, b):
        return (F.conv2d(x, w, b, stride=(2, 1), padding=(1, 2)), F.conv2d(x, w[:2, :2], groups=2),
                F.conv2d(x, w, dilation=2, padding="same"), F.conv1d(x[:, :, 0], w[:, :, 0], b),
                F.conv_transpose2d(x, w, stride=2, padding=1, output_padding=1),
                F.conv_transpose2d(x, w[:, :2], groups=2, dilation=2),
                F.conv_transpose1d(x[:, :, 0], w[:, :, 0], stride=3))

    check(all_of, normal(2, 4, 6, 7), normal(4, 4, 3, 3, seed=1), normal(4, seed=2))


def test_pools():
    def all_of(x):
        return (F.max_pool2d(x, 2), F.max_pool2d(x, 3, 2, 1, ceil_mode=True),
                F.max_pool2d(x, 2, 1, dilation=2), F.avg_pool2d(x, 2),
                F.avg_pool2d(x, 3, 2, 1, count_include_pad=False),
                F.avg_pool2d(x, 2, divisor_override=3), F.max_pool1d(x[0], 3, 2, 1),
                F.avg_pool1d(x[0], 2), F.adaptive_avg_pool2d(x, 1),
                F.adaptive_avg_pool2d(x, (3, 2)), F.adaptive_avg_pool2d(x, (4, 5)),
                F.max_pool2d(x[0], 2))

    check(all_of, normal(1, 2, 6, 7))


def test_norms():
    def all_of(x, w, b):
        mean, variance = b * 0.1, w * w + 0.5
        return (F.batch_norm(x, mean, variance, w, b), F.batch_norm(x, mean, variance),
                F.layer_norm(x, (5,)), F.layer_norm(x, (4, 3, 5), x[0], x[1]),
                F.group_norm(x, 2, w, b), F.instance_norm(x), F.rms_norm(x, (5,), x[0, 0, 0]),
                F.normalize(x, dim=1))

    check(all_of, normal(2, 4, 3, 5), normal(4, seed=1), normal(4, seed=2), rtol=1e-4, atol=1e-5)


def test_attention():
    def all_of(q, k, v, mask, bias):
        one = k[:, :1], v[:, :1]
        return (sdpa(q, k, v), sdpa(q, k, v, is_causal=True), sdpa(q, k, v, attn_mask=mask),
                sdpa(q, k, v, attn_mask=bias), sdpa(q, *one, enable_gqa=True),
                sdpa(q, k[:, :2], v[:, :2], attn_mask=mask, enable_gqa=True, scale=0.3))

    mask = normal(2, 1, 3, 5, seed=3) > -0.5
    mask[0, 0, 1] = False  # a row that allows nothing
    bias = normal(3, 5, seed=4)
    check(all_of, normal(2, 4, 3, 6), normal(2, 4, 5, 6, seed=1), normal(2, 4, 5, 2, seed=2), mask,
          bias)


@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("kind", [torch.nn.LSTM, torch.nn.GRU, torch.nn.RNN])
def test_recurrent_networks(kind, bidirectional):
    torch.manual_seed(0)
    net = kind(3, 4, num_layers=2, batch_first=bidirectional, bidirectional=bidirectional)

    def flat(x):
        output, state = net(x)
        return (output, *state) if isinstance(state, tuple) else (output, state)

    module = torch.nn.Module()
    module.net = net
    module.forward = flat
    check(module, normal(3, 2, 3))


def test_resampling():
    def all_of(x):
        return (F.interpolate(x, scale_factor=2), F.interpolate(x, size=(5, 9)),
                F.interpolate(x, scale_factor=2, mode="bilinear"),
                F.interpolate(x, size=(7, 3), mode="bilinear", align_corners=True),
                F.interpolate(x, size=(7, 3), mode="bicubic"),
                F.interpolate(x, scale_factor=(1.5, 2.5), mode="nearest-exact"),
                F.interpolate(x[0], scale_factor=3, mode="linear"), F.pixel_shuffle(x, 2))

    check(all_of, normal(1, 4, 3, 5), rtol=1e-4, atol=1e-5)


def test_what_is_missing_is_listed_at_once():
    def all_of(x):
        first, second = (torch.linalg.ldl_factor_ex(y)[0] for y in (x, x + 1))
        return first, torch.poisson(x.abs()), second

    with pytest.raises(UnsupportedModelError, match="2 operators") as caught:
        imported(all_of, (normal(3, 3),))
    text = str(caught.value)
    assert "aten.poisson" in text
    assert "aten.linalg_ldl_factor_ex.default: 2 times" in text
    assert "test_layers.py" in text or "check.py" in text
