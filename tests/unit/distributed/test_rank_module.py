"""Ranks that each run the local program of a plan give the bits of one device."""

from __future__ import annotations

import numpy as np
import pytest

import weft
from tests.unit.transform.sharding.programs import numbers, shape_of
from tests.unit.transform.sharding.test_partition import random_plan
from weft.distributed import Communicator, Mesh, Sharding, run_local, shard
from weft.distributed.plan import ShardingPlan
from weft.distributed.rank_module import RankModule
from weft.ir import IRModule
from weft.support.errors import DistributedError, InvalidInputError
from weft.transform.analysis.reference import evaluate

P = Sharding.of
BLOCK = """
def @main(%x: Tensor[(8, 16), float32], %wq: Tensor[(16, 16), float32],
          %wk: Tensor[(16, 16), float32], %wv: Tensor[(16, 16), float32],
          %wo: Tensor[(16, 16), float32], %up: Tensor[(32, 16), float32],
          %down: Tensor[(16, 32), float32]) {
  let %q = transpose(reshape(nn.dense(%x, %wq), newshape=[8, 4, 4]), axes=[1, 0, 2]);
  let %k = transpose(reshape(nn.dense(%x, %wk), newshape=[8, 4, 4]), axes=[1, 0, 2]);
  let %v = transpose(reshape(nn.dense(%x, %wv), newshape=[8, 4, 4]), axes=[1, 2, 0]);
  let %p = nn.softmax(nn.batch_matmul(%q, %k, transpose_b=True));
  let %a = reshape(transpose(nn.batch_matmul(%p, %v, transpose_b=True), axes=[1, 0, 2]),
                   newshape=[8, 16]);
  let %h = add(%x, nn.dense(%a, %wo));
  add(%h, nn.dense(nn.relu(nn.dense(%h, %up)), %down))
}"""
COLUMNS, ROWS = P("model", None), P(None, "model")
TENSOR_PARALLEL = {"wq": COLUMNS, "wk": COLUMNS, "wv": COLUMNS, "wo": ROWS, "up": COLUMNS,
                   "down": ROWS}


def run_plan(communicator: Communicator, plan: ShardingPlan, arrays: list[np.ndarray]
             ) -> list[np.ndarray]:
    module = plan.compile(communicator=communicator)
    found = module(*module.cut(*arrays))
    return module.join(*(found if isinstance(found, tuple) else (found,)))


def results_of(plan: ShardingPlan, arrays: list[np.ndarray]) -> list[np.ndarray]:
    found = run_local(plan.mesh.size, run_plan, plan, arrays, deterministic=True)
    for other in found[1:]:
        for a, b in zip(found[0], other, strict=True):
            np.testing.assert_array_equal(a, b)
    return found[0]


@pytest.mark.sample(0.05)
@pytest.mark.parametrize("seed", range(20))
def test_random_programs_on_ranks(seed: int) -> None:
    rng = np.random.default_rng(seed)
    fn, part = random_plan(rng)
    arrays = [numbers(rng, *shape_of(p)) for p in fn.params]
    found = results_of(ShardingPlan(IRModule.from_expr(fn), part), arrays)
    for whole, joined in zip(evaluate(fn, arrays), found, strict=True):
        np.testing.assert_array_equal(whole, joined)


def test_a_tensor_parallel_block_has_two_all_reduces() -> None:
    model, rng = weft.parse(BLOCK), np.random.default_rng(0)
    plan = shard(model, Mesh({"model": 2}), TENSOR_PARALLEL)
    assert [str(s) for s in plan.steps if "start" in str(s)] == ["start collective.all_reduce"] * 2
    assert plan.bytes_received == 2 * (8 * 16 * 4)
    arrays = [rng.normal(size=shape_of(p)).astype(np.float32) for p in plan.module["main"].params]
    (found,) = results_of(plan, arrays)
    np.testing.assert_allclose(found, weft.compile(model)(*arrays), rtol=2e-4, atol=2e-4)
    np.testing.assert_array_equal(found, plan.compile()(*arrays))


def test_a_data_parallel_training_step_learns_like_one_device() -> None:
    step = weft.value_and_grad(weft.parse("""
        def @main(%x: Tensor[(8, 4), float32], %y: Tensor[(8, 6), float32],
                  %w: Tensor[(6, 4), float32]) {
          let %d = subtract(nn.dense(%x, %w), %y);
          mean(multiply(%d, %d))
        }"""), with_respect_to="w")
    plan = shard(step, Mesh({"data": 2}), {"x": P("data", None), "y": P("data", None)},
                 outputs=[None, Sharding.replicated(2)])
    rng, one = np.random.default_rng(0), weft.compile(step)
    x, y = (rng.normal(size=(8, n)).astype(np.float32) for n in (4, 6))

    def losses(communicator: Communicator) -> list[float]:
        module, w, found = plan.compile(communicator=communicator), np.zeros((6, 4), "f"), []
        for _ in range(5):
            loss, gradient = module(*module.cut(x, y, w))
            w = w - np.float32(0.1) * gradient
            found.append(float(loss))
        return found

    first, second = run_local(2, losses)
    assert first == second
    w, expected = np.zeros((6, 4), "f"), []
    for _ in range(5):
        loss, gradient = one(x, y, w)
        w = w - np.float32(0.1) * gradient
        expected.append(float(loss))
    np.testing.assert_allclose(first, expected, rtol=1e-5)


def test_a_profile_has_the_bytes_of_each_step() -> None:
    plan = shard(weft.parse(BLOCK), Mesh({"model": 2}), TENSOR_PARALLEL)

    def profile(communicator: Communicator) -> float:
        module = plan.compile(communicator=communicator)
        zeros = [np.zeros(shape_of(p), "f") for p in plan.local.params]
        times = module.profile(*zeros)
        assert [t.step for t in times] == module.steps
        return sum(t.nbytes for t in times)

    assert run_local(2, profile) == [plan.bytes_received] * 2


def test_wrong_ranks_and_parts_are_refused() -> None:
    plan = shard(weft.parse(BLOCK), Mesh({"model": 2}), TENSOR_PARALLEL)
    with pytest.raises(DistributedError, match="a rank for each of its places"):
        run_local(1, lambda c: RankModule(plan.part, c))

    def call(communicator: Communicator) -> None:
        module = plan.compile(communicator=communicator)
        with pytest.raises(InvalidInputError, match="takes its part of 'wq'"):
            module(*(np.zeros(s, "f") for s in ((8, 16), *[(16, 16)] * 4, (32, 16), (16, 32))))
        with pytest.raises(InvalidInputError, match="number of inputs"):
            module()

    run_local(2, call)


def test_ranks_take_padded_parts() -> None:
    model = weft.parse("""
    def @main(%x: Tensor[(7, 5), float32], %w: Tensor[(3, 5), float32]) {
      (nn.relu(nn.dense(%x, %w)), sum(%x, axis=[0, 1]))
    }""")
    plan = shard(model, Mesh({"a": 2, "b": 2}), {"x": P("a", "b"), "w": P(None, "b")}, pad=True)
    rng = np.random.default_rng(0)
    arrays = [numbers(rng, 7, 5), numbers(rng, 3, 5)]
    whole, ranks = plan.compile()(*arrays), results_of(plan, arrays)
    for wanted, one, many in zip(evaluate(model["main"], arrays), whole, ranks, strict=True):
        np.testing.assert_array_equal(wanted, one)
        np.testing.assert_array_equal(wanted, many)
