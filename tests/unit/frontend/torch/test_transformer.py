"""The operators of whole layers that torch.nn takes at inference."""

from __future__ import annotations

import pytest

from tests.unit.frontend.torch.check import check, normal, torch

pytestmark = pytest.mark.torch
aten = torch.ops.aten
_KEYS = torch.tensor([[False, False, True, False], [False, True, True, False]])
_QUERIES = torch.ones(4, 4, dtype=torch.bool).triu(1)
MASKS = [(None, None), (_KEYS, 1), (_QUERIES, 0)]


def _layer_parameters():
    shapes = [(24, 8), (24,), (8, 8), (8,)]
    return [normal(*shape, seed=i) * 0.3 for i, shape in enumerate(shapes)]


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("weights", [(True, True), (True, False), (False, False)])
def test_multi_head_attention(mask, weights):
    x, y = normal(2, 4, 8, seed=7), normal(2, 4, 8, seed=8)
    kind = mask[1]
    given = [] if mask[0] is None else [mask[0]]

    def run(a, b, *rest):
        hidden = rest[4] if given else None
        found = aten._native_multi_head_attention(a, b, b, 8, 2, *rest[:4], hidden, *weights,
                                                  kind)
        return found if weights[0] else found[0]

    check(run, x, y, *_layer_parameters(), *given, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("options", [(True, False), (False, True)])
def test_encoder_layer(mask, options):
    norms = [normal(8, seed=20 + i) for i in range(4)]
    net = [normal(16, 8, seed=30), normal(16, seed=31), normal(8, 16, seed=32), normal(8, seed=33)]
    kind = mask[1]
    given = [] if mask[0] is None else [mask[0]]

    def run(a, *rest):
        hidden = rest[12] if given else None
        return aten._transformer_encoder_layer_fwd(a, 8, 2, *rest[:4], *options, 1e-5,
                                                   *rest[4:12], hidden, kind)

    check(run, normal(2, 4, 8), *_layer_parameters(), *norms, *net, *given, rtol=1e-4, atol=1e-5)
