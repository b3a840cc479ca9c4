"""Parametrized tensors and norms of weights equal torch's, with gradients and state dicts."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest

import weft
from weft import nn
from weft.nn.modules.module import ModuleError
from weft.nn.utils import parametrizations, parametrize

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore::FutureWarning")]


def _like(layer: Any, theirs: Any) -> None:
    """Give a layer the state of torch's."""
    layer.load_state_dict({name: weft.tensor(value.detach().numpy())
                           for name, value in theirs.state_dict().items()})


def _agree(ours: Any, theirs: Any, x: np.ndarray) -> None:
    assert list(ours.state_dict()) == list(theirs.state_dict())
    _like(ours, theirs)
    for _ in range(2):
        y, wanted = ours(weft.tensor(x)), theirs(torch.tensor(x))
        np.testing.assert_allclose(y.detach().numpy(), wanted.detach().numpy(), rtol=1e-5,
                                   atol=1e-5)
    (y * y).sum().backward()
    (wanted * wanted).sum().backward()
    slopes = dict(theirs.named_parameters())
    for name, parameter in ours.named_parameters():
        np.testing.assert_allclose(parameter.grad.numpy(), slopes[name].grad.numpy(), rtol=2e-4,
                                   atol=2e-5, err_msg=name)


X = np.random.default_rng(3).normal(size=(4, 3)).astype(np.float32)


@pytest.mark.sample(0.3)
@pytest.mark.parametrize(("name", "options"), [
    ("weight_norm", {}), ("weight_norm", {"dim": None}), ("spectral_norm", {}),
    ("spectral_norm", {"n_power_iterations": 2, "dim": 1}), ("orthogonal", {}),
    ("orthogonal", {"orthogonal_map": "cayley"}), ("orthogonal", {"orthogonal_map": "matrix_exp"})])
def test_parametrizations_of_torch(name, options):
    ours = getattr(parametrizations, name)(nn.Linear(3, 2), **options)
    theirs = getattr(torch.nn.utils.parametrizations, name)(torch.nn.Linear(3, 2), **options)
    _agree(ours, theirs, X)


def test_spectral_norm_by_hook():
    ours = nn.utils.spectral_norm(nn.Linear(3, 2), n_power_iterations=3)
    theirs = torch.nn.utils.spectral_norm(torch.nn.Linear(3, 2), n_power_iterations=3)
    assert set(ours.state_dict()) == set(theirs.state_dict())
    _like(ours, theirs)
    np.testing.assert_allclose(ours(weft.tensor(X)).detach().numpy(),
                               theirs(torch.tensor(X)).detach().numpy(), rtol=1e-5, atol=1e-5)
    nn.utils.remove_spectral_norm(ours)
    assert list(ours.state_dict()) == ["bias", "weight"]


def test_an_orthogonal_weight_starts_at_itself():
    layer = nn.Linear(3, 3, bias=False)
    nn.init.orthogonal_(layer.weight)
    before = layer.weight.detach().numpy().copy()
    parametrizations.orthogonal(layer)
    np.testing.assert_allclose(layer.weight.detach().numpy(), before, atol=1e-5)


class Symmetric(nn.Module):
    def forward(self, x: Any) -> Any:
        return x.triu() + x.triu(1).mT

    def right_inverse(self, a: Any) -> Any:
        return a.triu()


class Doubled(nn.Module):
    def forward(self, x: Any) -> Any:
        return x * 2.0

    def right_inverse(self, a: Any) -> Any:
        return a * 0.5


def _layer() -> Any:
    layer = nn.Linear(2, 2)
    parametrize.register_parametrization(layer, "weight", Symmetric())
    return parametrize.register_parametrization(layer, "weight", Doubled())


def test_parametrizations_in_turn_assignment_and_removal():
    layer = _layer()
    layer.weight = weft.tensor([[1.0, 2.0], [9.0, 4.0]])
    assert layer.weight.tolist() == [[1, 2], [2, 4]]
    assert [n for n, _ in layer.named_parameters()] == [
        "bias", "parametrizations.weight.original"]
    with parametrize.cached():
        assert layer.weight is layer.weight
    for other in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        assert other.weight.tolist() == layer.weight.tolist()
    assert parametrize.is_parametrized(layer, "weight")
    parametrize.remove_parametrizations(layer, "weight")
    assert (type(layer), layer.weight.tolist()) == (nn.Linear, [[1, 2], [2, 4]])
    assert not parametrize.is_parametrized(layer)


def test_a_parametrized_layer_trains_in_a_compiled_step():
    layer = parametrizations.spectral_norm(nn.Linear(3, 1))
    optimizer = weft.optim.SGD(layer.parameters(), lr=0.1)

    @weft.train_step
    def step(x: Any) -> Any:
        optimizer.zero_grad()
        loss = (layer(x) - 1.0).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    losses = [step(weft.tensor(X)).item() for _ in range(4)]
    assert losses[-1] < losses[0]


def test_refusals():
    with pytest.raises(ModuleError, match="no parameter or buffer 'wight'"):
        parametrize.register_parametrization(nn.Linear(2, 2), "wight", Symmetric())
    with pytest.raises(ModuleError, match="changes the type"):
        parametrize.register_parametrization(nn.Linear(2, 2), "weight", nn.Flatten(0))
    with pytest.raises(ModuleError, match="has no parametrization"):
        parametrize.remove_parametrizations(nn.Linear(2, 2), "weight")
    with pytest.raises(ModuleError, match="unknown map"):
        parametrizations.orthogonal(nn.Linear(2, 2), orthogonal_map="exp")
