"""Symbolic sizes: each has a plan, with the bits of one device."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import weft
from tests.unit.distributed.test_rank_module import results_of
from tests.unit.transform.sharding.programs import numbers
from weft.distributed import Mesh, Sharding, shard, shard_by_size
from weft.distributed.plan_by_size import PlanBySize
from weft.support.errors import InvalidInputError, OptionError, PassError

TEXT = """
def @main(%x: Tensor[(batch, 6), float32], %w: Tensor[(8, 6), float32]) {
  let %h = nn.relu(nn.dense(%x, %w));
  (reshape(%h, newshape=[2*batch, 4]), mean(%h, axis=[0]), sum(%h))
}"""
ROWS = {"x": Sharding.of("data", None)}


@pytest.mark.parametrize("pad", [False, True], ids=["divided", "padded"])
def test_each_size_has_the_bits_of_one_device(pad: bool) -> None:
    model, rng = weft.parse(TEXT), np.random.default_rng(0)
    plan = shard_by_size(model, Mesh({"data": 2}), ROWS, pad=pad)
    assert plan.symbols == ("batch",)
    run, one = plan.compile(), weft.compile(model)
    for batch in (4, 3, 8) if pad else (4, 8):
        arrays = [numbers(rng, batch, 6), numbers(rng, 8, 6)]
        whole = one(*arrays)
        for found in (run(*arrays), results_of(plan.of(*arrays), arrays)):
            for a, b in zip(whole, found, strict=True):
                np.testing.assert_allclose(a, b, rtol=1e-6)
            np.testing.assert_array_equal(whole[0], found[0])
    assert plan.at(batch=4) is plan.at(batch=4)
    assert run.at(*arrays) is run.at(*arrays)


def test_sizes_are_cut_side_by_side_and_each_once() -> None:
    model = weft.parse(TEXT)
    mesh, both, made = Mesh({"data": 2}), threading.Barrier(2), []

    def make(shapes):
        made.append(shapes["x"])
        if len(made) <= 2:  # of several threads
            both.wait(30)
        return shard(model, mesh, ROWS, inputs=shapes)

    plans = PlanBySize(shard_by_size(model, mesh, ROWS).module, make)
    with ThreadPoolExecutor(4) as pool:
        four, same, eight = pool.map(lambda size: plans.at(batch=size), (4, 4, 8))
    assert four is same
    assert four is not eight
    assert sorted(made) == [(4, 6), (8, 6)]


def test_sizes_that_do_not_fit_are_refused() -> None:
    model = weft.parse(TEXT)
    plan = shard_by_size(model, Mesh({"data": 2}), ROWS)
    with pytest.raises(OptionError, match=r"do not divide dimension 0(.|\n)*tensor 'x'"):
        plan.at(batch=3)
    with pytest.raises(OptionError, match="a number for each symbolic size"):
        plan.at()
    with pytest.raises(InvalidInputError, match="another number of inputs"):
        plan.of(np.zeros((4, 6), "f"))
    with pytest.raises(PassError, match="shard_by_size"):
        shard(model, Mesh({"data": 2}), ROWS)
