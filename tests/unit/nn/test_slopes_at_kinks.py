"""Gradients where a function has a kink, a pole or nothing to count: those of torch."""

import math

import numpy as np
import pytest

import weft
from weft.nn import functional

INF = math.inf


def gradients(function, *points):
    """Of the sum of the result."""
    leaves = [weft.tensor(p, requires_grad=True) for p in points]
    function(*leaves).sum().backward()
    return [leaf.grad.numpy() for leaf in leaves]


SELU = 1.0507009873554805
CASES = {
    "relu6": (functional.relu6, [[0.0, 6.0, 3.0]], [[0, 0, 1]]),
    "hardtanh": (functional.hardtanh, [[-1.0, 1.0, 0.0]], [[0, 0, 1]]),
    "hardsigmoid": (functional.hardsigmoid, [[-3.0, 3.0, 0.0]], [[0, 0, 1 / 6]]),
    "hardswish": (functional.hardswish, [[-3.0, 3.0, 0.0]], [[0, 1, 0.5]]),
    "elu": (lambda x: functional.elu(x, 2.0), [[0.0, 1.0]], [[2, 1]]),
    "celu": (lambda x: functional.celu(x, 2.0), [[0.0, 1.0]], [[1, 1]]),
    "selu": (functional.selu, [[0.0, 1.0]], [[SELU * 1.6732632423543772, SELU]]),
    "clamp": (lambda x: weft.clamp(x, -1.0, 1.0), [[-1.0, 1.0, 2.0]], [[1, 1, 0]]),
    "clamp to tensors": (weft.clamp, [[0.0, 1.0, 2.0], [0.0, 0.0, 0.0], [1.0, 1.0, 1.0]],
                         [[1, 1, 0], [0, 0, 0], [0, 0, 1]]),
    "atan2": (weft.atan2, [[0.0, 0.0, 1.0], [0.0, 1.0, 0.0]], [[0, 1, 0], [0, 0, -1]]),
    "pow": (weft.pow, [[0.0, 0.0, 2.0], [2.0, -1.0, 1.0]],
            [[0, -INF, 1], [0, -INF, 2 * math.log(2)]]),
    "std": (lambda x: x.std(), [[1.0, 1.0]], [[0, 0]]),
    "norm": (lambda x: x.norm(), [[0.0, 0.0]], [[0, 0]]),
    "norm of 3": (lambda x: weft.norm(x, 3), [[0.0, 0.0]], [[0, 0]]),
    "normalize": (lambda x: functional.normalize(x, dim=0, eps=0.5), [[0.0, 0.0]], [[2, 2]]),
    "cosine similarity": (lambda x, y: functional.cosine_similarity(x, y, 0, 0.5),
                          [[0.0, 0.0], [1.0, 0.0]], [[2, 0], [0, 0]]),
    "hinge": (lambda x: functional.hinge_embedding_loss(
        x, weft.tensor([-1.0, -1.0]), reduction="sum"),
              [[1.0, 2.0]], [[-1, 0]]),
    "margin ranking": (lambda x, y: functional.margin_ranking_loss(x, y, weft.tensor([1.0])),
                       [[1.0], [1.0]], [[-1], [1]]),
    "binary cross entropy": (
        lambda x: functional.binary_cross_entropy(
            x, weft.tensor([0.0, 1.0, 1.0, 0.0]), reduction="sum"),
        [[0.0, 0.0, 1.0, 0.5]], [[0, -1e12, 0, 2]]),
}


@pytest.mark.sample(0.4)
@pytest.mark.parametrize("name", CASES)
def test_slopes(name):
    function, points, expected = CASES[name]
    for found, wanted in zip(gradients(function, *points), expected, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-5)


@pytest.mark.torch
@pytest.mark.parametrize("name", ["relu6", "hardtanh", "hardsigmoid", "hardswish", "selu"])
def test_slopes_of_torch(name):
    import torch

    _, points, expected = CASES[name]
    x = torch.tensor(points[0], requires_grad=True)
    getattr(torch.nn.functional, name)(x).sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), expected[0], rtol=1e-5)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_a_batch_that_is_ignored_changes_nothing(smoothing):
    """The mean over no element is not a number; its gradient is 0."""
    logits = weft.tensor([[0.0, 1.0, 2.0], [1.0, 2.0, 0.0]], requires_grad=True)
    loss = functional.cross_entropy(logits, weft.tensor([-100, -100]), label_smoothing=smoothing)
    loss.backward()
    assert math.isnan(loss.item())
    assert logits.grad.tolist() == [[0.0] * 3] * 2


def test_values_at_the_kinks_stay():
    x = weft.tensor([0.0, 1.0, 0.25])
    targets = weft.tensor([1.0, 0.0, 0.25])
    losses = functional.binary_cross_entropy(x, targets, reduction="none").numpy()
    np.testing.assert_allclose(losses[:2], [100, 100])
    np.testing.assert_allclose(losses[2], 0.5623351, rtol=1e-6)
    nan = weft.tensor([math.nan, 1.0])
    bounded = weft.clamp(nan, weft.tensor([0.0, math.nan]), weft.tensor([1.0, 1.0])).numpy()
    assert np.isnan(bounded).all()
