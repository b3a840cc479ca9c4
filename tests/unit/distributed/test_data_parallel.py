import numpy as np
import pytest

import weft
from tests.unit.distributed import training
from weft import nn, optim
from weft.distributed import DataParallel, run_local
from weft.distributed.buckets import Reducer
from weft.support.errors import DistributedError, InvalidInputError


def sgd(parameters):
    return optim.SGD(parameters, lr=0.1, momentum=0.9)


def train(world, kind, *, bucket_bytes=training.BUCKET, compiled=False, overlap=False):
    model = training.network(kind, seed=world.rank)  # rank 0's counts
    parallel = DataParallel(model, bucket_bytes=bucket_bytes)
    optimizer = sgd(parallel.parameters())
    step = parallel.train_step(lambda x, y: nn.functional.cross_entropy(parallel(x), y), optimizer,
                               overlap=overlap)
    losses = []
    for number in range(training.STEPS):
        x, y = (training.share(world, a) for a in training.batch(kind, number))
        if compiled:
            loss = step(x, y)
        else:
            optimizer.zero_grad()
            loss = training.loss_of(parallel, x, y)
            loss.backward()
            optimizer.step()
        losses.append(world.all_reduce(np.array([loss.item()]))[0] / world.size)
    return losses, training.values(model), len(parallel.reducer.buckets)


@pytest.mark.sample(0.5, 1)
@pytest.mark.parametrize(("kind", "size"), [("cnn", 2), ("transformer", 4)])
def test_ranks_have_the_curve_and_bits_of_one(kind, size):
    losses, expected = training.one_rank(kind, sgd, size)
    for found, parameters, buckets in run_local(size, train, kind, deterministic=True):
        assert buckets > 1
        np.testing.assert_array_equal(np.float32(found), np.float32(losses))
        for name, value in parameters.items():
            np.testing.assert_array_equal(value, expected[name], err_msg=name)


def test_the_curve_is_that_of_the_larger_batch():
    losses, expected = training.one_rank("cnn", sgd, 1)
    for found, parameters, _ in run_local(2, lambda world: train(world, "cnn", compiled=True)):
        np.testing.assert_allclose(found, losses, rtol=1e-5)
        for name, value in parameters.items():
            np.testing.assert_allclose(value, expected[name], rtol=1e-4, atol=1e-5, err_msg=name)


def test_an_overlapped_step_has_the_bits_of_the_whole_one(monkeypatch):
    """Buckets start while gradients of others are still to be computed."""
    (whole, values, _), _ = run_local(2, lambda w: train(w, "cnn", compiled=True),
                                      deterministic=True)
    missing = []
    start = Reducer._start

    def noted(self, bucket):
        missing.append(sum(b.missing for b in self.buckets))
        start(self, bucket)

    monkeypatch.setattr(Reducer, "_start", noted)
    (found, parameters, _), _ = run_local(
        2, lambda w: train(w, "cnn", compiled=True, overlap=True), deterministic=True)
    assert max(missing) > 0
    np.testing.assert_array_equal(found, whole)
    for name, value in parameters.items():
        np.testing.assert_array_equal(value, values[name], err_msg=name)


class Branches(nn.Module):
    def __init__(self):
        super().__init__()
        self.used = nn.Linear(2, 1)
        self.sometimes = nn.Linear(2, 1)
        self.never = nn.Linear(2, 1)

    def forward(self, x, *, both):
        return self.used(x) + self.sometimes(x) if both else self.used(x)


def test_parameters_without_use():
    def work(world):
        model = Branches()
        parallel = DataParallel(model, bucket_bytes=1)
        for _ in range(2):  # before and after the order is known
            parallel.zero_grad()
            parallel(weft.ones(1, 2), both=world.rank == 1).sum().backward()
        return model.used.weight.grad.numpy(), model.sometimes.weight.grad.numpy(), \
            model.never.weight.grad

    for used, sometimes, never in run_local(2, work):
        np.testing.assert_array_equal(used, [[1, 1]])
        np.testing.assert_array_equal(sometimes, [[0.5, 0.5]])
        assert never is None


def test_gradients_accumulate_without_exchange():
    def work(world):
        parallel = DataParallel(nn.Linear(2, 1, bias=False))
        weight = parallel.module.weight
        x = weft.ones(1, 2) * (world.rank + 1)
        with parallel.no_sync():
            parallel(x).sum().backward()
        alone = weight.grad.numpy().copy()
        parallel(10 * x).sum().backward()
        return alone, weight.grad.numpy()

    for rank, (alone, both) in enumerate(run_local(2, work)):
        np.testing.assert_array_equal(alone, [[rank + 1] * 2])
        np.testing.assert_array_equal(both, [[16.5, 16.5]])


def test_buffers_are_those_of_rank_0():
    def work(world):
        parallel = DataParallel(nn.BatchNorm1d(2))
        parallel(weft.ones(4, 2) * world.rank)
        parallel(weft.ones(4, 2))
        return parallel.module.running_mean.numpy()

    first, second = run_local(2, work)
    np.testing.assert_allclose(first, [0.1, 0.1])
    np.testing.assert_array_equal(first, second)


def test_bad_models_are_refused():
    with pytest.raises(InvalidInputError, match="without parameters"):
        DataParallel(nn.ReLU())
    with pytest.raises(DistributedError, match="rank 1 has another model"):
        run_local(2, lambda world: DataParallel(nn.Linear(2, 1 + world.rank)))
