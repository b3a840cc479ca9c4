"""Compiled steps and functions see the Python values that they read."""

from __future__ import annotations

import collections
import random
import types
from collections import deque
from typing import Any

import numpy as np
import pytest

import weft
from weft import nn, optim
from weft.support.errors import InvalidInputError

SCALE = 2.0
NAMESPACE = types.SimpleNamespace(rate=3.0)


class Base:
    """A class that serves as a namespace."""

    factor = 1.0


class Slotted:
    __slots__ = ("bias",)

    def __init__(self) -> None:
        self.bias = 1.0


def count(step: Any) -> int:
    return int(step.explain().split(":")[1].split()[0])


def test_values_of_every_kind_are_guarded(monkeypatch: pytest.MonkeyPatch) -> None:
    outer, cell, numbers, array = {"a": [1.0]}, 1.0, {4.0}, np.ones(2, np.float32)
    slotted, calls = Slotted(), {"f": lambda v: v * 2}

    def helper(x: Any, by: float = 1.0) -> Any:
        return x * SCALE * Base.factor * by

    @weft.jit
    def f(x: Any) -> Any:
        total = helper(x) + NAMESPACE.rate + outer["a"][-1] + cell + max(numbers) + slotted.bias
        return calls["f"](total + array)

    def check() -> None:
        expected = 2 * (SCALE * Base.factor + NAMESPACE.rate + outer["a"][-1] + cell
                        + max(numbers) + slotted.bias + array) if len(calls) == 1 else array
        np.testing.assert_allclose(f(weft.ones(2)).numpy(), expected)

    check()
    monkeypatch.setitem(globals(), "SCALE", 3.0)
    check()
    monkeypatch.setattr(Base, "factor", 4.0)
    check()
    monkeypatch.setattr(NAMESPACE, "rate", 5.0)
    check()
    outer["a"].append(6.0)
    check()
    cell = 7.0
    check()
    numbers.add(8.0)
    check()
    slotted.bias = 9.0
    check()
    array[0] = 10.0
    check()
    before = count(f)
    check()
    assert count(f) == before == 9
    monkeypatch.setattr(helper, "__defaults__", (1.0,))
    check()
    assert "array" in f.explain()
    assert "outer['a']" in f.explain()
    assert "slotted.bias was 1.0, is 9.0" in f.explain()


def test_containers_and_attributes_of_tensors() -> None:
    queue, weight, rate = deque([1.0]), weft.ones(2), collections.UserDict(by=1.0)
    step = weft.train_step(
        lambda x: x * weight * queue[0] * rate["by"] * getattr(weight, "scale", 1.0))
    x, expected = weft.ones(2), 1.0
    assert step(x).tolist() == [expected] * 2
    for edit, factor in ((lambda: queue.appendleft(2.0), 2), (lambda: rate.update(by=3.0), 3),
                         (lambda: setattr(weight, "scale", 5.0), 5), (lambda: None, 1)):
        edit()
        expected *= factor
        assert step(x).tolist() == [expected] * 2
    assert count(step) == 4


def test_random_numbers_of_python_are_refused() -> None:
    rng = np.random.default_rng(0)
    for draw, name in ((random.random, "random"), (np.random.rand, r"np\.random"),
                       (rng.random, "rng")):
        def f(x: Any, draw: Any = draw) -> Any:
            return x * draw()

        def g(x: Any) -> Any:
            return x * rng.random()

        with pytest.raises(InvalidInputError, match=f"draws from {name}"):
            weft.jit(g if name == "rng" else f)(weft.ones(2))


def test_modes_of_the_caller_are_part_of_the_key() -> None:
    layer = nn.Linear(4, 4)
    step = weft.train_step(layer)
    x = weft.ones(2, 4)
    wide = step(x)
    with weft.amp.autocast():
        assert step(x).dtype == weft.bfloat16
    with weft.no_grad():
        step(x)
    assert step(x).dtype == wide.dtype == weft.float32
    assert count(step) == 3


def test_two_modes_of_a_model_are_two_programs_that_are_found_again() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5))
    step = weft.train_step(model)
    x = weft.ones(3, 4)
    for _ in range(3):
        model.train()
        assert (step(x).numpy() == 0).sum() > 0
        model.eval()
        np.testing.assert_array_equal(step(x).numpy(), model(x).detach().numpy())
    assert count(step) == 2
    assert "training was True, is False" in step.explain()


def test_a_trace_of_the_same_graph_keeps_the_program() -> None:
    options = types.SimpleNamespace(names=["a"])
    step = weft.train_step(lambda x: x * len(options.names))
    step(weft.ones(2))
    (program,) = step._programs.all()
    module = program._module
    options.names = ["b"]
    step(weft.ones(2))
    assert step._last is not program
    assert step._last._module is module
    assert count(step) == 1


def test_methods_that_are_replaced_are_called(monkeypatch: pytest.MonkeyPatch) -> None:
    class Net(nn.Module):
        def forward(self, x: Any) -> Any:
            return x + 1

    net = Net()
    step = weft.train_step(net)
    x = weft.ones(2)
    assert step(x).tolist() == [2, 2]
    monkeypatch.setattr(Net, "forward", lambda self, x: x + 2)
    assert step(x).tolist() == [3, 3]
    net.forward = lambda x: x + 3
    assert step(x).tolist() == [4, 4]
    assert net.extra_repr() == ""  # the class is as it was before
    assert "__getattribute__" not in vars(Net)


def test_what_changes_at_each_call_is_refused_by_name() -> None:
    class Trainer:
        def __init__(self) -> None:
            self.count = 0
            self.losses: list[Any] = []

        def step(self, x: Any) -> Any:
            self.count += 1
            return x * self.count

        def logged(self, x: Any) -> Any:
            self.losses.append(x.sum())
            return x

    trainer = Trainer()
    for method, name in ((trainer.step, "count"), (trainer.logged, "losses")):
        step = weft.train_step(method)
        step(weft.ones(2))
        with pytest.raises(InvalidInputError, match=f"(?s)changes at each call.*{name} was"):
            step(weft.ones(2))


def test_attributes_that_a_step_sets_are_set_by_every_program() -> None:
    class Net(nn.Module):
        def forward(self, x: Any) -> Any:
            self.mean = x.mean()
            self.mode = "train" if self.training else "eval"
            return x * 2

    net = Net()
    step = weft.train_step(net)
    for value in (1.0, 2.0, 3.0):
        for on in (True, False):
            net.train(on)
            step(weft.full((2,), value + on))
            assert net.mean.item() == value + on
            assert net.mode == ("train" if on else "eval")


def test_options_of_optimisers_need_no_new_program() -> None:
    weight = nn.Parameter(np.ones(3, np.float32))
    optimizer = optim.AdamW([weight], lr=0.1, weight_decay=0.1)

    @weft.train_step
    def step() -> None:
        optimizer.zero_grad()
        weight.sum().backward()
        optimizer.step()

    step()
    group = optimizer.param_groups[0]
    for name, value in (("lr", 0.2), ("betas", (0.5, 0.6)), ("eps", 0.1), ("weight_decay", 0.2)):
        before = weight.detach().numpy().copy()
        group[name] = value
        step()
        assert not np.array_equal(weight.detach().numpy(), before)
    assert count(step) == 1
    group["weight_decay"] = 0
    group["amsgrad"] = True
    step()
    assert count(step) == 2
    assert "param_groups[0]['amsgrad'] was False, is True" in step.explain()


def test_an_argument_gets_its_gradient() -> None:
    w = weft.tensor([2.0, 3.0], requires_grad=True)
    step = weft.train_step(lambda x: (x * w).sum().backward())
    for x in (weft.ones(2), weft.ones(2, requires_grad=True)):
        w.grad = None
        step(x)
        step(x)
        assert w.grad.tolist() == [2, 2]
        assert (x.grad is None) == (not x.requires_grad)
        if x.requires_grad:
            assert x.grad.tolist() == [4, 6]
    with pytest.raises(InvalidInputError, match="computed with gradients"):
        step(x * 2)


def test_gradients_that_a_step_leaves_accumulate() -> None:
    w = weft.tensor([1.0, 2.0], requires_grad=True)
    step = weft.train_step(lambda x: (w * w * x).sum().backward())
    kept = []
    for _ in range(2):
        w.grad = None
        for _ in range(3):
            step(weft.tensor(1.0))
        kept.append(w.grad)
        with weft.no_grad():
            w.mul_(2)
    assert kept[0].tolist() == [6, 12]  # which the second round left alone
    assert kept[1].tolist() == [12, 24]
    assert count(step) == 2


def test_gradients_of_what_a_step_updates_are_dropped() -> None:
    w, v = (weft.tensor([1.0], requires_grad=True) for _ in "ab")
    optimizer = optim.SGD([w], lr=0.1)

    @weft.train_step
    def step() -> None:
        optimizer.zero_grad()
        v.grad = None
        (w * v).sum().backward()
        optimizer.step()

    w.grad = weft.ones(1)
    step()
    assert w.grad is None
    assert v.grad.tolist() == [1.0]


def test_a_parameter_made_anew_is_another_program() -> None:
    model = nn.Linear(2, 1, bias=False)
    step = weft.train_step(lambda x: model(x).sum())
    step(weft.ones(1, 2))
    model.weight = nn.Parameter(np.full((1, 2), 3, np.float32))
    assert step(weft.ones(1, 2)).item() == 6
    model.double()
    assert step(weft.ones(1, 2, dtype="float64")).dtype == weft.float64


def test_a_step_names_its_state_as_the_model_does(tmp_path: Any) -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout(0.1))

        def forward(self, x: Any) -> Any:
            return self.body(x)

    model, offset = Net(), weft.zeros(4)
    optimizer = optim.Adam(model.parameters())

    @weft.train_step
    def step(x: Any) -> Any:
        optimizer.zero_grad()
        loss = (model(x) + offset).square().mean()
        loss.backward()
        optimizer.step()
        offset.add_(1)
        return loss

    step(weft.ones(2, 3))
    step.export(tmp_path / "step.weft")
    state = weft.load(tmp_path / "step.weft").state
    names = set(state)
    assert set(model.state_dict()) <= names
    assert {"optimizer.exp_avg.body.0.weight", "optimizer.step", "random.key", "offset"} <= names
    np.testing.assert_array_equal(np.asarray(state["body.0.weight"]),
                                  model.body[0].weight.detach().numpy())
    step.export(tmp_path / "c", format="c")


def test_a_step_without_state_is_exported(tmp_path: Any) -> None:
    model = nn.Linear(3, 2)
    step = weft.train_step(model)
    found = step(weft.ones(4, 3))
    assert found.shape == (4, 2)
    step.export(tmp_path / "step.weft")
    np.testing.assert_array_equal(weft.load(tmp_path / "step.weft")(np.ones((4, 3), np.float32)),
                                  found.numpy())
    weft.train_step(lambda: None)()


def test_a_jitted_function_may_be_a_whole_step() -> None:
    """It changes the parameters by gradients that it makes and clears."""
    def losses(*, jitted: bool) -> list[float]:
        weft.manual_seed(0)
        model = nn.Linear(4, 2)
        optimizer = optim.SGD(model.parameters(), lr=0.1)

        def step(x: weft.Tensor) -> weft.Tensor:
            optimizer.zero_grad()
            loss = (model(x) ** 2).sum()
            loss.backward()
            optimizer.step()
            return loss

        run = weft.jit(step) if jitted else step
        return [float(run(weft.ones(3, 4) * 0.5)) for _ in range(3)]

    np.testing.assert_allclose(losses(jitted=True), losses(jitted=False), rtol=1e-5)
