"""A training step as one program that is cut over a mesh."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft
from weft import nn, optim
from weft.distributed import Mesh, Sharding, run_local, shard_step
from weft.eager.checks import AnomalyError, IndexRangeError
from weft.support.errors import InvalidInputError, OptionError

MESH = Mesh({"data": 2})
ROWS = Sharding.of("data", None)
BATCH = {"x": ROWS, "y": ROWS}


class Training:
    """A model with running averages, an optimiser with state, and a step of both."""

    def __init__(self, make: Any) -> None:
        weft.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(6, 8, bias=False), nn.BatchNorm1d(8), nn.ReLU(),
                                   nn.Linear(8, 4))
        self.optimizer = optimizer = make(self.model.parameters())

        @weft.train_step
        def step(x, y):
            optimizer.zero_grad()
            loss = ((self.model(x) - y) ** 2).mean()
            loss.backward()
            optimizer.step()
            return loss, {"first": y[:, 0]}

        self.step = step

    def values(self) -> dict[str, np.ndarray]:
        return {name: t.detach().numpy().copy() for name, t in self.model.state_dict().items()}


def batches(count: int) -> list[tuple[Any, Any]]:
    rng = np.random.default_rng(1)
    return [tuple(weft.tensor(rng.standard_normal((8, size)).astype(np.float32))
                  for size in (6, 4)) for _ in range(count)]


def momentum(parameters: Any) -> Any:
    return optim.SGD(parameters, lr=0.1, momentum=0.9)


def run(training: Training, step: Any, given: list[Any]) -> list[float]:
    losses = []
    for number, (x, y) in enumerate(given):
        training.optimizer.param_groups[0]["lr"] = 0.1 / (number + 1)  # is no constant
        loss, others = step(x, y)
        np.testing.assert_array_equal(others["first"].numpy(), y.numpy()[:, 0])
        losses.append(float(loss))
    return losses


def test_one_process_computes_what_all_devices_do():
    given, whole, cut = batches(3), Training(momentum), Training(momentum)
    expected = run(whole, whole.step, given)
    before = cut.values()
    step = shard_step(cut.step, MESH, BATCH, example_inputs=given[0])
    assert {e.collective for e in step.plan.exchanges()} == {"all_reduce"}
    np.testing.assert_allclose(run(cut, step, given), expected, rtol=1e-5)
    assert all((v == before[name]).all() for name, v in cut.values().items())
    step.sync()
    for name, value in whole.values().items():
        np.testing.assert_allclose(cut.values()[name], value, rtol=1e-4, atol=1e-6, err_msg=name)
    np.testing.assert_allclose(run(cut, cut.step, given), run(whole, whole.step, given), rtol=1e-4)


def test_ranks_keep_parts_of_weights_and_of_the_optimiser():
    given, whole = batches(3), Training(optim.AdamW)
    expected = run(whole, whole.step, given)
    parts = {"0.weight": ROWS, "3.weight": Sharding.of(None, "data")}

    trainings = [Training(optim.AdamW) for _ in range(2)]

    def work(world):
        training = trainings[world.rank]
        step = shard_step(training.step, MESH, BATCH | parts, example_inputs=given[0],
                          communicator=world)
        found = run(training, step, given)
        step.sync()
        return found, training.values(), step.state_bytes, step.plan.inputs

    for found, values, nbytes, inputs in run_local(2, work):
        np.testing.assert_allclose(found, expected, rtol=1e-5)
        for name, value in whole.values().items():
            np.testing.assert_allclose(values[name], value, rtol=1e-4, atol=1e-6, err_msg=name)
        moments = [s for name, s in inputs.items() if name.endswith(".0.weight")]
        assert moments == [ROWS] * 2
        weights = values["0.weight"].nbytes + values["3.weight"].nbytes
        assert nbytes < 3 * (sum(v.nbytes for v in values.values()) - weights / 2)


def test_arguments_of_another_kind_are_refused():
    given, training = batches(1), Training(momentum)
    step = shard_step(training.step, MESH, BATCH, example_inputs=given[0])
    with pytest.raises(InvalidInputError, match="arguments of one kind"):
        step(given[0][0][:4], given[0][1][:4])
    with pytest.raises(OptionError, match="no tensor 'z'"):
        shard_step(training.step, MESH, {"z": ROWS}, example_inputs=given[0])


def classifier(**options: Any) -> tuple[Any, Any]:
    net = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 4))
    optimizer = momentum(net.parameters())

    @weft.train_step(**options)
    def step(x, y):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(net(x), y)
        loss.backward()
        optimizer.step()
        return loss

    return net, step


X, LABELS = weft.ones(8, 6), weft.tensor([0, 1, 2, 3] * 2)
SHARDED = {"x": ROWS, "y": Sharding.of("data")}


def test_values_are_checked_as_by_the_whole_step():
    def work(world):
        step = shard_step(classifier(debug_nans=True)[1], MESH, SHARDED,
                          example_inputs=(X, LABELS), communicator=world)
        assert np.isfinite(float(step(X, LABELS)))
        with pytest.raises(IndexRangeError, match="a label is out of range"):
            step(X, LABELS + weft.tensor([0] * 7 + [1]))  # a label of one rank
        with pytest.raises(AnomalyError, match="made a NaN"):
            step(X * float("inf"), LABELS)

    run_local(2, work)


def test_steps_and_arguments_that_cannot_be_cut_are_refused():
    with pytest.raises(InvalidInputError, match="on the same device"):
        shard_step(classifier(device="sim:0")[1], MESH, SHARDED, example_inputs=(X, LABELS))
    with pytest.raises(InvalidInputError, match="computed with gradients"):
        shard_step(classifier()[1], MESH, SHARDED,
                   example_inputs=(X.clone().requires_grad_() * 2, LABELS))
    net, step = classifier()
    net.to("sim:0")
    with pytest.raises(InvalidInputError, match="host memory"):
        shard_step(step, MESH, SHARDED, example_inputs=(X.to("sim:0"), LABELS.to("sim:0")))


def test_state_is_cut_like_the_parameter_of_its_whole_name():
    class Outer(nn.Module):
        def __init__(self, inner: Any) -> None:
            super().__init__()
            self.w, self.inner = nn.Linear(6, 6, bias=False), inner

        def forward(self, x):
            found = self.w(x)
            return found if self.inner is None else self.inner(found)

    net = Outer(Outer(None))
    optimizer = momentum(net.parameters())

    @weft.train_step
    def step(x):
        optimizer.zero_grad()
        (net(x) ** 2).mean().backward()
        optimizer.step()

    columns = Sharding.of(None, "data")
    wanted = {"w.weight": ROWS, "inner.w.weight": columns}
    found = shard_step(step, MESH, wanted, example_inputs=(X,)).plan.inputs
    assert [s for name, s in found.items() if name.endswith("inner.w.weight")] == [columns] * 2
