"""Pipelines and linear layers over ranks compute what one rank does."""

import numpy as np
import pytest

import weft
from tests.unit.distributed import training
from weft import nn
from weft.distributed import ColumnParallelLinear, Pipeline, RowParallelLinear, run_local
from weft.distributed.pipeline import bubble, schedule, schedule_table, timetable
from weft.support.errors import DistributedError, OptionError


def stages():
    whole = training.network("transformer")
    first = nn.Sequential(whole.embedding)
    return [first, nn.Sequential(whole.block), Head(whole.head)], whole


class Head(nn.Module):
    def __init__(self, head):
        super().__init__()
        self.head = head

    def forward(self, x):
        return self.head(x).mean(1)


def test_a_pipeline_has_the_gradients_of_one_rank():
    x, y = training.batch("transformer", 0)
    parts, whole = stages()
    loss = training.loss_of(whole, x, y)
    loss.backward()
    expected = [[p.grad.numpy() for p in part.parameters()] for part in parts]

    def work(world):
        part = stages()[0][world.rank]
        pipeline = Pipeline(part, 4, nn.functional.cross_entropy)
        value = pipeline.step(x if pipeline.is_first else None, y if pipeline.is_last else None)
        return [p.grad.numpy() for p in part.parameters()], value, pipeline.most_kept

    found = run_local(3, work)
    for (gradients, _, _), wanted in zip(found, expected, strict=True):
        for a, b in zip(gradients, wanted, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)
    assert abs(found[2][1] - loss.item()) < 1e-6
    assert [kept for _, _, kept in found] == [3, 2, 1]


def test_the_schedule():
    assert schedule(1, 2, 3) == [("F", 0), ("B", 0), ("F", 1), ("B", 1), ("F", 2), ("B", 2)]
    assert schedule(0, 3, 4)[:6] == [("F", 0), ("F", 1), ("F", 2), ("B", 0), ("F", 3), ("B", 1)]
    for p, m in ((2, 2), (3, 6), (4, 8)):
        rows = timetable(p, m)
        idle = sum(a is None for row in rows for a in row) / (p * len(rows[0]))
        assert idle == pytest.approx(bubble(p, m))
    assert schedule_table(2, 2).splitlines() == [
        "stage 0  F0  F1   .   .  B0  B0   .  B1  B1 ",
        "stage 1   .  F0  B0  B0  F1  B1  B1   .   . ",
        "bubble: 33.3% of the table; (p - 1) / (m + p - 1) = 33.3%"]


def test_bad_batches():
    with pytest.raises(OptionError, match="micro-batches"):
        Pipeline(nn.Linear(2, 2), 0, nn.functional.mse_loss)
    with pytest.raises(DistributedError, match="do not divide"):
        run_local(1, lambda world: Pipeline(nn.Linear(2, 2), 3, nn.functional.mse_loss).step(
            np.zeros((4, 2)), np.zeros((4, 2))))


@pytest.mark.parametrize("size", [1, 2])
def test_linear_layers_over_ranks(size):
    def layers():
        weft.manual_seed(3)
        return nn.Linear(6, 8), nn.Linear(8, 4), nn.Linear(4, 4)

    x = np.random.default_rng(0).standard_normal((5, 6)).astype(np.float32)
    first, second, third = layers()
    given = weft.tensor(x, requires_grad=True)
    expected = third(nn.functional.gelu(second(nn.functional.gelu(first(given)))))
    (expected ** 2).sum().backward()

    def work(world):
        first, second, third = layers()
        column, row = ColumnParallelLinear(first), RowParallelLinear(second)
        last = ColumnParallelLinear(third, gather=True)
        mine = weft.tensor(x, requires_grad=True)
        found = last(nn.functional.gelu(row(nn.functional.gelu(column(mine)))))
        (found ** 2).sum().backward()
        return [t.numpy() for t in (found.detach(), mine.grad, column.weight.grad,
                                    row.weight.grad, row.bias.grad, last.weight.grad)]

    for rank, found in enumerate(run_local(size, work)):
        wanted = [expected.detach().numpy(), given.grad.numpy(),
                  np.split(first.weight.grad.numpy(), size)[rank],
                  np.split(second.weight.grad.numpy(), size, 1)[rank], second.bias.grad.numpy(),
                  np.split(third.weight.grad.numpy(), size)[rank]]
        for a, b in zip(found, wanted, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
