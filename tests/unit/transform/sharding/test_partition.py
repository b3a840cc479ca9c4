"""A sharded program gives the bits of the whole one, whatever its sharding."""

from __future__ import annotations

import numpy as np
import pytest

from tests.unit.transform.sharding.programs import (
    MESHES,
    numbers,
    random_program,
    random_sharding,
    shape_of,
)
from weft import op
from weft.ir.expr import Call, Constant, Function, var
from weft.ir.op import Op
from weft.ir.sharding import Mesh, Sharding
from weft.ir.typing.infer import infer_expr
from weft.ir.visitor import post_order
from weft.support.errors import OptionError, PassError
from weft.transform.analysis.reference import evaluate
from weft.transform.sharding.partition import Partitioned, partition
from weft.transform.sharding.unroll import unrolled


def operators(fn: Function) -> list[str]:
    return [n.op.name for n in post_order(fn.body) if isinstance(n, Call) and isinstance(n.op, Op)]


def typed(params: tuple, body: object) -> Function:
    fn = infer_expr(Function(params, body))
    assert isinstance(fn, Function)
    return fn


@pytest.mark.sample(0.15)
@pytest.mark.parametrize("seed", range(200))
def test_random_programs_with_random_shardings(seed: int) -> None:
    rng = np.random.default_rng(seed)
    fn, mesh = random_program(rng), MESHES[rng.integers(len(MESHES))]
    given = [random_sharding(rng, shape_of(p), mesh) if rng.random() < 0.8 else None
             for p in fn.params]
    values = {n: random_sharding(rng, shape_of(n), mesh) for n in post_order(fn.body)
              if isinstance(n, (Call, Constant)) and rng.random() < 0.3}
    made = partition(fn, mesh, given, values=values)
    inputs = [numbers(rng, *shape_of(p)) for p in fn.params]
    for whole, joined in zip(evaluate(fn, inputs), evaluate(unrolled(made), inputs), strict=True):
        np.testing.assert_array_equal(whole, joined)


def two_layers() -> tuple[Function, list[Constant]]:
    rng = np.random.default_rng(0)
    x, first, second = var("x", (8, 16)), Constant(numbers(rng, 32, 16)), Constant(
        numbers(rng, 16, 32))
    return typed((x,), op.nn.dense(op.nn.relu(op.nn.dense(x, first)), second)), [first, second]


def test_tensor_parallel_layers_need_one_all_reduce() -> None:
    fn, (first, second) = two_layers()
    mesh = Mesh({"data": 2, "model": 4})
    made = partition(fn, mesh, [Sharding.of("data", None)], values={
        first: Sharding.of("model", None), second: Sharding.of(None, "model")})
    assert operators(made.function) == ["nn.dense", "nn.relu", "nn.dense", "collective.all_reduce"]
    assert [shape_of(p) for p in made.function.params] == [(4, 16), (8, 16), (16, 8)]
    assert made.results == (Sharding.of("data", None),)
    assert made.bytes_received == 2 * (4 * 16 * 4) * 3 / 4


def test_data_parallel_layers_need_none() -> None:
    fn, _ = two_layers()
    made = partition(fn, Mesh({"data": 4}), [Sharding.of("data", None)])
    assert operators(made.function) == ["nn.dense", "nn.relu", "nn.dense"]
    assert made.bytes_received == 0


def test_a_normalised_axis_is_gathered_with_the_reason() -> None:
    x = var("x", (4, 8))
    made = partition(typed((x,), op.nn.softmax(x)), Mesh({"a": 2}), [Sharding.of(None, "a")])
    assert operators(made.function) == ["collective.all_gather", "nn.softmax"]
    assert made.decisions[0].whole == "it is reduced and kept"


def test_an_axis_moves_by_an_all_to_all() -> None:
    x = var("x", (4, 8))
    made = partition(typed((x,), op.nn.relu(x)), Mesh({"a": 2}), [Sharding.of("a", None)],
                     results=[Sharding.of(None, "a")])
    assert operators(made.function) == ["nn.relu", "collective.all_to_all"]


def _partition_of(fn: Function, sharding: Sharding) -> Partitioned:
    return partition(fn, Mesh({"a": 3}), [sharding])


def test_what_does_not_fit_is_refused() -> None:
    fn, _ = two_layers()
    with pytest.raises(OptionError, match="do not divide dimension 0"):
        _partition_of(fn, Sharding.of("a", None))
    with pytest.raises(OptionError, match="2"):
        _partition_of(fn, Sharding.of("a"))
    with pytest.raises(OptionError, match="no axis 'b'"):
        _partition_of(fn, Sharding.of("b", None))
    with pytest.raises(OptionError, match="cuts two dimensions"):
        Sharding.of("a", "a")
    x = var("x", ("n", 6))
    with pytest.raises(PassError, match="known sizes"):
        _partition_of(typed((x,), op.nn.relu(x)), Sharding.of(None, "a"))
