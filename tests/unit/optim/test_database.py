"""Optimisers against torch's own database of inputs: values, state dicts, refusals."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest

import weft
from tests.unit.optim.twins import Pair, as_torch, as_weft, inputs_of, wrong_inputs_of
from weft import nn, optim
from weft.support.errors import WeftError

pytestmark = pytest.mark.torch

NAMES = ("ASGD", "Adadelta", "Adafactor", "Adagrad", "Adam", "AdamW", "Adamax", "LBFGS", "Muon",
         "NAdam", "RAdam", "RMSprop", "Rprop", "SGD")
# Muon iterates in bfloat16, where one digit rounded the other way is 2**-8.
TOLERANCE = {"Muon": 5e-3, "LBFGS": 1e-12}
# What torch refuses and weft can do: betas as tensors beside numbers, and flags that weft ignores.
ALLOWED = ("foreach", "both floats or both Tensors", "fused")


@pytest.mark.sample(0.3)
@pytest.mark.parametrize("name", NAMES)
def test_all_inputs_give_the_values_of_torch(name: str):
    for case in inputs_of(name):
        pair = Pair(name, case.kwargs)
        pair.steps(3 if name == "LBFGS" else 6)
        assert pair.difference < TOLERANCE.get(name, 2e-5), case.desc
        ours, theirs = (x.state_dict() for x in (pair.our_optimiser, pair.their_optimiser))
        assert ours["param_groups"][0].keys() == theirs["param_groups"][0].keys(), case.desc
        known = theirs["state"].get(0, {}).keys() - {"al"}  # work space of torch's LBFGS
        assert ours["state"].get(0, {}).keys() == known, case.desc


@pytest.mark.parametrize("name", NAMES)
def test_states_go_to_torch_and_back(name: str):
    first, second = (Pair(name, inputs_of(name)[-1].kwargs) for _ in range(2))
    first.steps(2)
    ours, theirs = (copy.deepcopy(x.state_dict())
                    for x in (first.our_optimiser, first.their_optimiser))
    for to, values in ((second.ours, first.ours), (second.theirs, first.theirs)):
        for parameter, value in zip(to, values, strict=True):
            parameter.detach().copy_(value.detach())
    second.our_optimiser.load_state_dict(as_weft(theirs))
    second.their_optimiser.load_state_dict(as_torch(ours))
    second.steps(3)
    first.steps(3)
    tolerance = 10 * TOLERANCE.get(name, 2e-5)
    assert second.difference < tolerance
    for one, other in zip(first.ours, second.ours, strict=True):
        np.testing.assert_allclose(one.detach().numpy(), other.detach().numpy(), atol=tolerance)


@pytest.mark.parametrize("name", NAMES)
def test_what_torch_refuses_is_refused(name: str):
    import torch

    for case in wrong_inputs_of(name):
        given = case.optimizer_error_input
        if any(word in case.error_regex for word in ALLOWED) or "complex" in given.desc:
            continue
        params = given.params
        if params is None:
            params = [torch.zeros(1, 1, requires_grad=True)]
        with pytest.raises(WeftError):
            getattr(optim, name)(_as_parameters(params, {}), **as_weft(given.kwargs))


def _as_parameters(value: Any, made: dict[int, nn.Parameter]) -> Any:
    """A tree whose tensors of torch are parameters of weft, the same for the same."""
    if hasattr(value, "detach"):
        return made.setdefault(id(value), nn.Parameter(value.detach().numpy()))
    if isinstance(value, dict):
        return {k: _as_parameters(v, made) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_as_parameters(v, made) for v in value)
    return value


def test_sparse_adam_moves_the_rows_that_sparse_gradients_of_torch_have():
    import torch

    table = np.random.default_rng(0).normal(size=(6, 3)).astype(np.float32)
    for case in inputs_of("SparseAdam"):
        sides = []
        for library, options in ((torch, case.kwargs), (weft, as_weft(case.kwargs))):
            layer = library.nn.Embedding(6, 3, sparse=True)
            layer.load_state_dict({"weight": library.tensor(table)})
            optimiser = library.optim.SparseAdam(layer.parameters(), **options)
            for rows in ([0, 2, 2], [1], [2, 5, 0], [1, 1]):
                optimiser.zero_grad()
                (layer(library.tensor(rows)) ** 2).sum().backward()
                optimiser.step()
            sides.append(layer.weight.detach().numpy())
        np.testing.assert_allclose(sides[1], sides[0], rtol=1e-5, atol=1e-6, err_msg=case.desc)
        np.testing.assert_array_equal(sides[1][3:5], table[3:5])
    for options in ({"lr": 0.0}, {"eps": 0.0}):
        with pytest.raises(WeftError, match="zero"):
            optim.SparseAdam([nn.Parameter(table)], **options)
