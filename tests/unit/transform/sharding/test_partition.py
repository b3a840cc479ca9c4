"""A sharded program gives the bits of the whole one, whatever its sharding."""

from __future__ import annotations

from typing import Any

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
from weft.ir.expr import Call, Constant, Function, Tuple, var
from weft.ir.op import Op
from weft.ir.sharding import Link, Mesh, Sharding
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


def random_plan(rng: np.random.Generator) -> tuple[Function, Partitioned]:
    fn, mesh = random_program(rng), MESHES[rng.integers(len(MESHES))]
    given = [random_sharding(rng, shape_of(p), mesh) if rng.random() < 0.8 else None
             for p in fn.params]
    values = {n: random_sharding(rng, shape_of(n), mesh) for n in post_order(fn.body)
              if isinstance(n, (Call, Constant)) and rng.random() < 0.3}
    return fn, partition(fn, mesh, given, values=values)


@pytest.mark.sample(0.15)
@pytest.mark.parametrize("seed", range(200))
def test_random_programs_with_random_shardings(seed: int) -> None:
    rng = np.random.default_rng(seed)
    fn, made = random_plan(rng)
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


def test_a_sum_that_is_cut_is_a_reduce_scatter() -> None:
    fn, (first, second) = two_layers()
    made = partition(fn, Mesh({"model": 4}), [None], results=[Sharding.of(None, "model")], values={
        first: Sharding.of("model", None), second: Sharding.of(None, "model")})
    assert operators(made.function) == [
        "nn.dense", "nn.relu", "nn.dense", "collective.reduce_scatter"]
    assert made.bytes_received == (8 * 16 * 4) * 3 / 4
    assert [d.nbytes for d in made.decisions if d.nbytes] == [made.bytes_received]


def test_a_tensor_is_gathered_once_for_all_its_uses() -> None:
    x = var("x", (4, 8))
    made = partition(typed((x,), Tuple((op.cumsum(x, axis=1), op.argsort(x, axis=1)))),
                     Mesh({"a": 2}), [Sharding.of(None, "a")])
    assert operators(made.function).count("collective.all_gather") == 1


def test_plans_of_a_mesh_with_links_avoid_the_slow_ones() -> None:
    x, y = var("x", (8, 4)), var("y", (8, 4))
    fn, axes = typed((x, y), op.add(x, y)), {"a": 2, "b": 2}
    for slow, other in (("a", "b"), ("b", "a")):
        mesh = Mesh(axes, {slow: Link(1e6, 1e-5), other: Link(1e9, 1e-6)})
        made = partition(fn, mesh, [Sharding.of("a", None), Sharding.of("b", None)])
        assert made.results == (Sharding.of(slow, None),)
        assert {a for d in made.decisions for c in d.collectives for a in c.attrs.axes} == {other}


def test_data_parallel_layers_need_none() -> None:
    fn, _ = two_layers()
    made = partition(fn, Mesh({"data": 4}), [Sharding.of("data", None)])
    assert operators(made.function) == ["nn.dense", "nn.relu", "nn.dense"]
    assert made.bytes_received == 0


def test_a_scanned_axis_is_gathered_with_the_reason() -> None:
    x = var("x", (4, 8))
    made = partition(typed((x,), op.cumsum(x, axis=1)), Mesh({"a": 2}), [Sharding.of(None, "a")])
    assert operators(made.function) == ["collective.all_gather", "cumsum"]
    assert made.decisions[0].whole == "the operator needs it whole"


def test_a_normalised_axis_exchanges_reduced_values_where_they_are_fewer() -> None:
    x = var("x", (4, 8))
    made = partition(typed((x,), op.nn.softmax(x)), Mesh({"a": 2}), [Sharding.of(None, "a")])
    assert operators(made.function) == [
        "max", "collective.all_reduce", "subtract", "exp", "sum", "collective.all_reduce",
        "divide", "multiply"]
    assert made.bytes_received == 2 * (4 * 4)
    assert {d.within.op.name for d in made.decisions if d.within} == {"nn.softmax"}
    x = var("x", (8, 2))
    made = partition(typed((x,), op.nn.softmax(x)), Mesh({"a": 2}), [Sharding.of(None, "a")])
    assert operators(made.function) == ["collective.all_gather", "nn.softmax"]


def test_a_loss_over_cut_examples_exchanges_one_number() -> None:
    x, y = var("x", (8, 4)), var("y", (8, 4))
    fn = typed((x, y), op.nn.cross_entropy_with_logits(op.nn.log_softmax(x), y))
    made = partition(fn, Mesh({"a": 4}), [Sharding.of("a", None)] * 2)
    assert made.bytes_received == 2 * 4 * 3 / 4


def test_a_mean_over_two_mesh_axes_is_one_all_reduce() -> None:
    x = var("x", (4, 8))
    made = partition(typed((x,), op.mean(x)), Mesh({"a": 2, "b": 2}), [Sharding.of("a", "b")])
    assert operators(made.function) == ["sum", "collective.all_reduce", "divide"]


def image_program(**attrs: Any) -> Function:
    x = var("x", (1, 2, 8, 8))
    kernel = Constant(numbers(np.random.default_rng(0), 3, 2, 3, 3))
    return typed((x,), op.nn.conv2d(x, kernel, **attrs))


def test_a_convolution_exchanges_the_borders_of_its_parts() -> None:
    made = partition(image_program(padding=(1, 1)), Mesh({"a": 4}),
                     [Sharding.of(None, None, "a", None)])
    assert operators(made.function) == [
        "strided_slice", "collective.permute", "strided_slice", "collective.permute",
        "concatenate", "nn.conv2d"]
    assert made.results == (Sharding.of(None, None, "a", None),)
    assert made.bytes_received == 2 * (2 * 8) * 4
    strided = partition(image_program(padding=(1, 1), strides=(2, 2)), Mesh({"a": 2}),
                        [Sharding.of(None, None, "a", None)])
    assert strided.bytes_received == (2 * 8) * 4


@pytest.mark.parametrize(("mesh", "attrs", "why"), [
    (Mesh({"a": 4}), {"padding": (4, 4), "dilation": (4, 4)},
     "a part is narrower than the windows' borders"),
    (Mesh({"a": 2}), {}, "its windows are not as many as fit equal parts")], ids=["wide", "valid"])
def test_windows_that_no_halo_serves_are_gathered_with_the_reason(
        mesh: Mesh, attrs: dict[str, Any], why: str) -> None:
    made = partition(image_program(**attrs), mesh, [Sharding.of(None, None, "a", None)])
    assert operators(made.function) == ["collective.all_gather", "nn.conv2d"]
    assert made.decisions[0].whole == why


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
    with pytest.raises(OptionError, match="no axis 'b'"):
        Mesh({"a": 2}, {"b": Link()})
    with pytest.raises(OptionError, match="bandwidth above 0"):
        Link(0.0)
    with pytest.raises(OptionError, match="cuts two dimensions"):
        Sharding.of("a", "a")
    x = var("x", ("n", 6))
    with pytest.raises(PassError, match="known sizes"):
        _partition_of(typed((x,), op.nn.relu(x)), Sharding.of(None, "a"))
