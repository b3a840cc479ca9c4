"""Initial values have torch's bounds and deviations; clipping, vectors, weight norm, dropout."""

from __future__ import annotations

import math

import numpy as np
import pytest

import weft
from weft import nn
from weft.nn import init
from weft.support.errors import InvalidInputError

SHAPE = (60, 40, 3)  # fan in 120, fan out 180


@pytest.mark.parametrize(("fill", "bound", "deviation"), [
    (init.xavier_uniform_, math.sqrt(6 / 300), math.sqrt(2 / 300)),
    (init.kaiming_uniform_, math.sqrt(6 / 120), math.sqrt(2 / 120)),
    (init.xavier_normal_, None, math.sqrt(2 / 300)),
    (lambda t: init.kaiming_normal_(t, mode="fan_out", nonlinearity="relu"), None,
     math.sqrt(2 / 180)),
    (lambda t: init.trunc_normal_(t, std=2.0, a=-2.0, b=2.0), 2.0, 2 * 0.5396),
    (lambda t: init.uniform_(t, -3, 3), 3.0, math.sqrt(3)),
])
def test_distributions(fill, bound: float | None, deviation: float):
    weft.manual_seed(1)
    values = fill(nn.Parameter(np.zeros(SHAPE, np.float32))).detach().numpy()
    assert values.std() == pytest.approx(deviation, rel=0.04)
    assert abs(values.mean()) < 4 * deviation / math.sqrt(values.size)
    if bound is not None:
        assert 0.97 * bound < np.abs(values).max() <= bound * (1 + 1e-6)


def test_a_seed_gives_the_same_layer():
    weights = []
    for _ in range(2):
        weft.manual_seed(5)
        weights.append(nn.Linear(4, 3).weight.detach().numpy())
    np.testing.assert_array_equal(*weights)
    assert np.abs(weights[0]).max() <= 0.5


def test_special_matrices():
    q = init.orthogonal_(nn.Parameter(np.zeros((3, 5), np.float32)), gain=2.0).detach().numpy()
    np.testing.assert_allclose(q @ q.T, 4 * np.eye(3), atol=1e-5)
    kept = nn.Conv1d(2, 2, 3, padding=1, bias=False)
    init.dirac_(kept.weight)
    x = np.random.default_rng(0).normal(size=(1, 2, 5)).astype(np.float32)
    np.testing.assert_allclose(kept(weft.tensor(x)).detach().numpy(), x, rtol=1e-6)
    with pytest.raises(InvalidInputError, match="fan in"):
        init.xavier_uniform_(nn.Parameter(np.zeros(3, np.float32)))
    assert init.calculate_gain("leaky_relu", 0.2) == math.sqrt(2 / 1.04)


@pytest.mark.parametrize(("kind", "norm"), [(2.0, 13.0), (math.inf, 12.0), (1.0, 19.0)])
def test_clipping(kind: float, norm: float):
    parameters = [nn.Parameter(np.zeros(n, np.float32)) for n in (1, 2, 1)]
    parameters[0].grad = weft.tensor([3.0])
    parameters[1].grad = weft.tensor([4.0, -12.0])
    total = nn.utils.clip_grad_norm_(parameters, 1.0, kind)
    assert total.item() == pytest.approx(norm)
    np.testing.assert_allclose(parameters[1].grad.numpy(), np.array([4, -12]) / norm, rtol=1e-5)
    assert parameters[2].grad is None
    nn.utils.clip_grad_value_(parameters, 0.1)
    assert np.abs(parameters[1].grad.numpy()).max() == pytest.approx(0.1)


def test_vectors_and_weight_norm():
    layer = nn.Linear(3, 2)
    vector = nn.utils.parameters_to_vector(layer.parameters())
    assert tuple(vector.shape) == (8,)
    nn.utils.vector_to_parameters(vector * 0 + 1, layer.parameters())
    x = weft.ones(1, 3)
    before = layer(x).detach().numpy()
    nn.utils.weight_norm(layer)
    assert list(layer.state_dict()) == ["bias", "weight_g", "weight_v"]
    result = layer(x)
    np.testing.assert_allclose(result.detach().numpy(), before, rtol=1e-6)
    result.sum().backward()
    assert layer.weight_g.grad is not None
    nn.utils.remove_weight_norm(layer)
    np.testing.assert_allclose(layer(x).detach().numpy(), before, rtol=1e-6)


def test_dropout_keeps_the_mean_and_depends_on_the_seed():
    layer, x = nn.Dropout(0.25), weft.ones(100, 100)
    weft.manual_seed(3)
    first, second = layer(x).numpy(), layer(x).numpy()
    assert set(np.unique(first)) == {0, np.float32(4 / 3)}
    assert first.mean() == pytest.approx(1, abs=0.03)
    assert (first != second).any()
    weft.manual_seed(3)
    np.testing.assert_array_equal(layer(x).numpy(), first)
    channels = nn.Dropout2d(0.5)(weft.ones(8, 8, 3, 3)).numpy().reshape(64, 9)
    assert (channels.min(1) == channels.max(1)).all()
    assert layer.eval()(x) is x
