"""Which models run in batches, and what their inputs must be."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

import weft
from tests.unit.serving.doubles import Rows
from weft.runtime.manifest import TensorSpec
from weft.serving import Limits, TensorModel
from weft.support.errors import InvalidInputError, UnsupportedModelError


def compiled(text: str, **options):
    return weft.compile(weft.parse(text), **options)


def softmax_along(axis: int):
    return compiled(f"def @main(%x: Tensor[(n, 4), float32]) {{ nn.softmax(%x, axis={axis}) }}")


class Mixed(Rows):
    """Each row of the result has a little of the other rows."""

    def run(self, names, feeds):
        return [y + 0.01 * y.mean() for y in super().run(names, feeds)]


def test_a_model_whose_rows_are_independent_runs_in_batches():
    model = TensorModel("m", softmax_along(1))
    assert model.batch_axis.symbol == "n"
    requests = [np.random.default_rng(i).standard_normal((i + 1, 4)).astype(np.float32)
                for i in range(3)]

    async def run():
        found = await asyncio.gather(*(model.infer({"x": x}) for x in requests))
        await model.close()
        return found

    for x, (y,) in zip(requests, asyncio.run(run()), strict=True):
        np.testing.assert_array_equal(y, model.module(x))


@pytest.mark.parametrize(("module", "reason"), [
    (lambda: softmax_along(0), "depends on other rows"),
    (Mixed, "depends on other rows"),
    (lambda: Rows(first=4), "one symbolic size"),
    (lambda: Rows("n"), "another axis"),
    (lambda: compiled("def @main(%x: Tensor[(n{8..%8}, 4), float32]) { nn.relu(%x) }"),
     "never 1"),
], ids=["reduced", "mixed", "fixed", "square", "range"])
def test_other_models_run_one_by_one(module, reason):
    model = TensorModel("m", module())
    assert model.batch_axis.symbol is None
    assert reason in model.batch_axis.reason


def test_batching_can_be_turned_off_and_vouched_for():
    assert TensorModel("m", Rows(), batching=False).batch_axis.symbol is None
    assert TensorModel("m", Rows(), limits=Limits(max_batch=1)).batch_axis.symbol is None
    assert TensorModel("m", Mixed(), batching=True).batch_axis.symbol == "n"


def test_the_range_of_the_rows_bounds_a_batch():
    module = compiled("def @main(%x: Tensor[(n{1..16}, 4), float32]) { nn.relu(%x) }")
    model = TensorModel("m", module)
    assert model.batcher.limits.max_batch == 16


@pytest.mark.parametrize(("feeds", "message"), [
    ({}, "missing inputs: 'x'"),
    ({"x": np.zeros((1, 3), np.float32), "z": np.zeros(1)}, "unknown inputs: 'z'"),
    ({"x": np.zeros((1, 3))}, "wrong datatype"),
    ({"x": np.zeros((1, 4), np.float32)}, "wrong shape"),
    ({"x": np.zeros((3,), np.float32)}, "wrong shape"),
], ids=["missing", "unknown", "dtype", "size", "rank"])
def test_inputs_that_do_not_fit(feeds, message):
    with pytest.raises(InvalidInputError, match=message):
        TensorModel("m", Rows(), batching=False).check(feeds)


def test_a_symbol_has_one_size():
    module = Rows()
    module.inputs += (TensorSpec("z", "float32", ("n",)),)
    model = TensorModel("m", module, batching=False)
    with pytest.raises(InvalidInputError, match="sizes of 'n' differ"):
        model.check({"x": np.zeros((2, 3), np.float32), "z": np.zeros(3, np.float32)})


def test_models_that_cannot_be_served():
    module = Rows()
    module.outputs = (TensorSpec("y", "float8_e5m2", ("n", 3)),)
    with pytest.raises(UnsupportedModelError, match="datatype"):
        TensorModel("m", module)
    stateful = compiled("def @main(%x: Tensor[(2,), float32], %s: Tensor[(2,), float32]) "
                        "{ (add(%x, %s), add(%x, %s)) }", state={"output1": "s"})
    with pytest.raises(UnsupportedModelError, match="state"):
        TensorModel("m", stateful)
