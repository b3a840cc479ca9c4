"""A padded program that is cut over a mesh gives the bits of the program without padding."""

from __future__ import annotations

import numpy as np
import pytest

from tests.unit.transform.sharding import programs
from tests.unit.transform.sharding.programs import numbers, random_program, shape_of
from tests.unit.transform.sharding.test_partition import operators, typed
from weft import op
from weft.ir.expr import Call, Constant, Expr, Function, const, var
from weft.ir.sharding import Mesh, Sharding
from weft.ir.visitor import post_order
from weft.support.errors import PassError
from weft.transform.analysis.reference import evaluate
from weft.transform.sharding.pad_axes import partition_padded
from weft.transform.sharding.partition import Partitioned
from weft.transform.sharding.unroll import unrolled

MESHES = (Mesh({"a": 3}), Mesh({"a": 4}), Mesh({"a": 2, "b": 2}))
P = Sharding.of


def padded(fn: Function, mesh: Mesh, *given: Sharding | None) -> Partitioned:
    return partition_padded(fn, mesh, given, values={}, results=None)


def assert_same(fn: Function, made: Partitioned, inputs: list[np.ndarray]) -> None:
    for whole, joined in zip(evaluate(fn, inputs), evaluate(unrolled(made), inputs), strict=True):
        np.testing.assert_array_equal(whole, joined)


def any_sharding(rng: np.random.Generator, ndim: int, mesh: Mesh) -> Sharding:
    made = Sharding.replicated(ndim)
    for axis in mesh.axes:
        dim = int(rng.integers(ndim))
        made = made.with_dim(dim, (*made.dims[dim], axis))
    return made


def padded_anyhow(rng: np.random.Generator, fn: Function, mesh: Mesh) -> Partitioned | None:
    given = [any_sharding(rng, 2, mesh) if rng.random() < 0.7 else None for _ in fn.params]
    values = {n: any_sharding(rng, 2, mesh) for n in post_order(fn.body)
              if isinstance(n, (Call, Constant)) and rank_of(n) == 2 and rng.random() < 0.15}
    try:
        return partition_padded(fn, mesh, given, values=values, results=None)
    except PassError as error:
        if "with padding" not in str(error):
            raise
        return None


def rank_of(x: Expr) -> int:
    return len(getattr(x.checked_type, "shape", ()))


@pytest.mark.sample(0.15)
@pytest.mark.parametrize("seed", range(200))
def test_random_programs_of_odd_sizes(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sums of small whole numbers are exact, so their order does not matter."""
    rng = np.random.default_rng(seed)
    monkeypatch.setattr(programs, "ROWS", 10)
    monkeypatch.setattr(programs, "COLUMNS", 14)
    made = None
    while made is None:  # another program, where an operator is refused
        fn, mesh = random_program(rng, calls=4), MESHES[seed % 3]
        made = padded_anyhow(rng, fn, mesh)
    assert_same(fn, made, [numbers(rng, *shape_of(p)) for p in fn.params])


def test_rows_flow_to_the_outputs_without_a_mask() -> None:
    rng = np.random.default_rng(0)
    x, w = var("x", (7, 6)), Constant(numbers(rng, 5, 6))
    fn = typed((x,), op.nn.relu(op.nn.dense(x, w)))
    made = padded(fn, Mesh({"a": 4}), P("a", None))
    assert operators(made.function) == ["nn.dense", "nn.relu"]
    assert [shape_of(p) for p in made.function.params] == [(2, 6)]
    assert_same(fn, made, [numbers(rng, 7, 6)])


REDUCTIONS = {
    "sum": lambda x: op.sum(x, axis=(0,)),
    "max": lambda x: op.max(op.subtract(x, const(9.0)), axis=(0,)),
    "min": lambda x: op.min(op.add(x, const(9.0)), axis=(0,)),
    "prod": lambda x: op.prod(x, axis=(0,)),
    "mean": lambda x: op.floor(op.mean(x, axis=0)),
    "integer max": lambda x: op.max(op.cast(op.subtract(x, const(9.0)), dtype="int8"), axis=(0,)),
    "softmax": lambda x: op.ceil(op.nn.softmax(op.multiply(x, const(128.0)), axis=0)),
    "squares": lambda x: op.nn.dense(op.transpose(x, axes=(1, 0)), op.transpose(x, axes=(1, 0))),
}


@pytest.mark.parametrize("kind", REDUCTIONS)
def test_a_reduction_does_not_see_the_padding(kind: str) -> None:
    """The last row, which padding repeats, is the one that a reduction would see."""
    x = var("x", (7, 3))
    fn = typed((x,), REDUCTIONS[kind](op.add(x, const(1.0))))
    made = padded(fn, Mesh({"a": 4}), P("a", None))
    assert shape_of(made.function.params[0]) == (2, 3)
    rng = np.random.default_rng(1)
    inputs = numbers(rng, 7, 3)
    inputs[-1] = (1, 2, 3)
    assert_same(fn, made, [inputs])


def test_padding_that_is_infinite_is_masked() -> None:
    x, w = var("x", (3, 5)), var("w", (4, 5))
    fn = typed((x, w), op.nn.dense(op.divide(const(1.0), x), w))
    made = padded(fn, Mesh({"a": 2}), P(None, "a"), None)
    inputs = [np.full((3, 5), 0.5, np.float32), numbers(np.random.default_rng(0), 4, 5)]
    assert "where" in operators(made.function)
    assert_same(fn, made, inputs)


@pytest.mark.parametrize("stride", [1, 2])
def test_windows_read_the_padding_of_the_operator(stride: int) -> None:
    rng = np.random.default_rng(0)
    x, w = var("x", (1, 3, 10, 4)), Constant(numbers(rng, 2, 3, 3, 3))
    fn = typed((x,), op.nn.conv2d(x, w, strides=(stride, 1), padding=(1, 1)))
    made = padded(fn, Mesh({"a": 4}), P(None, None, "a", None))
    assert_same(fn, made, [numbers(rng, 1, 3, 10, 4)])
    channels = padded(fn, Mesh({"a": 2}), P(None, "a", None, None))
    assert "collective.all_reduce" in operators(channels.function)
    assert_same(fn, channels, [numbers(rng, 1, 3, 10, 4)])


def test_a_constant_is_padded_by_the_neutral_element() -> None:
    rng = np.random.default_rng(0)
    x, w = var("x", (4, 7)), Constant(numbers(rng, 5, 7))
    fn = typed((x,), op.nn.dense(x, w))
    made = partition_padded(fn, Mesh({"a": 2}), [None], values={w: P(None, "a")}, results=None)
    assert [a.shape for a in made.weights if a.ndim == 2 and a.dtype == np.float32] == [(5, 8)]
    assert_same(fn, made, [numbers(rng, 4, 7)])


def test_results_are_cut_as_wanted() -> None:
    x = var("x", (5, 7))
    fn = typed((x,), op.negative(x))
    made = partition_padded(fn, Mesh({"a": 2, "b": 2}), [P("a", None)], values={},
                            results=[P("a", "b")])
    assert made.results == (P("a", "b"),)
    assert_same(fn, made, [numbers(np.random.default_rng(0), 5, 7)])


@pytest.mark.parametrize(("body", "message"), [
    (lambda x: op.cumsum(x, axis=0), "cumsum cannot take dimension 0 of operand 0 with padding"),
    (lambda x: op.argmax(x, axis=(0,)), "argmax cannot take dimension 0 of operand 0"),
    (lambda x: op.any(op.less(x, const(1.0)), axis=(0,)), "its reduction has no all-reduce"),
    (lambda x: op.reshape(x, newshape=(6, 7)), "reshape cannot take dimension 0 of operand 0"),
], ids=["cumsum", "argmax", "any", "reshape"])
def test_other_uses_are_refused_by_name(body: object, message: str) -> None:
    x = var("x", (7, 6))
    with pytest.raises(PassError, match=message):
        padded(typed((x,), body(x)), Mesh({"a": 2}), P("a", None))  # type: ignore[operator]
