"""Every optimiser inside of a compiled step: values, options without another program, states."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest

import weft
from weft import nn, optim
from weft.support.errors import InvalidInputError, OptionError

OPTIMISERS: list[tuple[str, dict[str, Any]]] = [
    ("ASGD", {"t0": 1.0}), ("Adadelta", {}), ("Adafactor", {"weight_decay": 0.1}),
    ("Adagrad", {}), ("Adam", {}), ("AdamW", {"amsgrad": True}), ("Adamax", {}), ("Lion", {}),
    ("Muon", {}), ("NAdam", {}), ("RAdam", {}), ("RMSprop", {"centered": True}), ("Rprop", {}),
    ("SGD", {"momentum": 0.9}), ("SparseAdam", {}),
]
START = np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32)


def _loss(weight: nn.Parameter) -> weft.Tensor:
    return ((weight * weight - 1.0) ** 2).sum() + weight.sum()


@pytest.mark.sample(0.3)
@pytest.mark.parametrize(("name", "options"), OPTIMISERS, ids=str)
def test_a_compiled_step_is_the_eager_one(name: str, options: dict[str, Any]):
    weights = nn.Parameter(START), nn.Parameter(START)
    eager, compiled = (getattr(optim, name)([w], lr=0.01, **options) for w in weights)

    @weft.train_step
    def step() -> None:
        compiled.zero_grad()
        _loss(weights[1]).backward()
        compiled.step()

    for rate in (0.01, 0.01, 0.02, 0.005):
        for optimiser in (eager, compiled):
            optimiser.param_groups[0]["lr"] = rate
        eager.zero_grad()
        _loss(weights[0]).backward()
        eager.step()
        step()
    np.testing.assert_allclose(weights[1].detach().numpy(), weights[0].detach().numpy(),
                               rtol=1e-4, atol=1e-2 if name == "Muon" else 1e-6)
    assert "1 program(s)" in step.explain()
    before = copy.deepcopy(compiled.state_dict())
    assert before["state"][0].keys() == eager.state_dict()["state"][0].keys()
    compiled.load_state_dict(before)
    step()
    assert "1 program(s)" in step.explain()


def test_the_closure_of_lbfgs_may_be_compiled():
    weights = nn.Parameter(START), nn.Parameter(START)
    eager, mixed = (optim.LBFGS([w], line_search_fn="strong_wolfe", max_iter=6) for w in weights)

    def closure() -> weft.Tensor:
        eager.zero_grad()
        loss = _loss(weights[0])
        loss.backward()
        return loss

    @weft.train_step
    def compiled() -> weft.Tensor:
        mixed.zero_grad()
        loss = _loss(weights[1])
        loss.backward()
        return loss

    for _ in range(3):
        first = eager.step(closure)
        mixed.step(compiled)
    np.testing.assert_allclose(weights[1].detach().numpy(), weights[0].detach().numpy(), rtol=1e-3)
    assert _loss(weights[0]).item() < first.item()
    assert "1 program(s)" in compiled.explain()

    @weft.train_step
    def wrong() -> None:
        eager.step(closure)

    with pytest.raises(InvalidInputError, match=r"LBFGS.step\(\) inside of a compiled"):
        wrong()
    with pytest.raises(InvalidInputError, match="without a closure"):
        eager.step()


def test_a_tensor_as_learning_rate_is_an_input():
    weight, rate = nn.Parameter(np.ones(2, np.float32)), weft.tensor(0.5)
    optimizer = optim.SGD([weight], lr=rate)

    @weft.train_step
    def step() -> None:
        optimizer.zero_grad()
        weight.sum().backward()
        optimizer.step()

    step()
    rate.fill_(0.25)
    step()
    np.testing.assert_allclose(weight.detach().numpy(), 0.25)
    assert "1 program(s)" in step.explain()
    optimizer.param_groups[0]["lr"] = 1.0
    step()
    np.testing.assert_allclose(weight.detach().numpy(), -0.75)
    other = optim.SGD([nn.Parameter(np.ones(2, np.float32))], lr=0.1)
    other.load_state_dict(optim.SGD([weight], lr=rate).state_dict())
    assert other.param_groups[0]["lr"].item() == 0.25
    assert other.param_groups[0]["lr"] is not rate


def test_flags_of_torch_are_taken_or_refused():
    weight = nn.Parameter(START)
    adam = optim.Adam([weight], foreach=True, capturable=True)
    assert adam.param_groups[0]["fused"] is None
    for make, text in ((lambda: optim.SGD([weight], capturable=True), "takes no capturable"),
                       (lambda: optim.Adam([weight], differentiable=True), "differentiable"),
                       (lambda: optim.Adam([weight], foreach=True, fused=True), "exclude"),
                       (lambda: optim.Adam([weight], weight_decy=0.1), "weight_decay"),
                       (lambda: optim.LBFGS([weight], line_search_fn="armijo"), "strong_wolfe")):
        with pytest.raises(OptionError, match=text):
            make()


def test_parameters_may_have_names():
    first, second = nn.Parameter(START), nn.Parameter(START)
    optimizer = optim.SGD([("a", first)], lr=0.1)
    optimizer.add_param_group({"params": [("b", second)], "lr": 1.0})
    names = [group["param_names"] for group in optimizer.state_dict()["param_groups"]]
    assert names == [["a"], ["b"]]
    for given in ([("a", first), second], [{"params": [("a", first)]}, {"params": [second]}]):
        with pytest.raises(InvalidInputError, match="name"):
            optim.SGD(given, lr=0.1)


def test_hooks_run_around_steps_and_state_dicts():
    weight = nn.Parameter(START)
    optimizer, calls = optim.SGD([weight], lr=0.1), []
    optimizer.register_step_pre_hook(lambda o, args, kwargs: calls.append(len(args)))
    optimizer.register_step_post_hook(lambda o, args, kwargs: calls.append("stepped"))
    optimizer.register_state_dict_post_hook(lambda o, state: {**state, "more": 1})
    optimizer.register_state_dict_pre_hook(lambda o: calls.append("second"))
    first = optimizer.register_state_dict_pre_hook(lambda o: calls.append("first"), prepend=True)
    optimizer.register_load_state_dict_pre_hook(lambda o, state: state.pop("more") and None)
    optimizer.register_load_state_dict_post_hook(lambda o: calls.append("loaded"))
    optimizer.step()
    optimizer.step(weight.sum)
    state = optimizer.state_dict()
    first.remove()
    optimizer.state_dict()
    optimizer.load_state_dict(state)
    assert calls == [1, "stepped", 2, "stepped", "first", "second", "second", "loaded"]


def test_an_optimiser_of_a_user_keeps_its_state_as_in_torch():
    class Momentum(optim.Optimizer):
        def __init__(self, params: Any, lr: float) -> None:
            super().__init__(params, {"lr": lr})

        @weft.no_grad()
        def step(self, closure: Any = None) -> None:
            for group in self.param_groups:
                for parameter in group["params"]:
                    state = self.state[parameter]
                    buffer = state.get("buffer", 0.0) * 0.5 + parameter.grad
                    state["buffer"] = buffer
                    parameter.sub_(buffer * group["lr"])

    weight = nn.Parameter(np.ones(2, np.float32))
    optimizer = Momentum([weight], 0.1)
    schedule = optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
    for _ in range(2):
        optimizer.zero_grad()
        weight.sum().backward()
        optimizer.step()
        schedule.step()
    np.testing.assert_allclose(weight.detach().numpy(), 1 - 0.1 - 0.05 * 1.5)
    assert list(optimizer.state_dict()["state"][0]) == ["buffer"]
