"""Programs of one device with explicit collectives: values, gradients and batches of them."""

from __future__ import annotations

import numpy as np
import pytest

import weft
from tests.unit.transform.sharding.programs import numbers, shape_of
from tests.unit.transform.sharding.test_partition import operators
from weft import op
from weft.distributed import Communicator, Mesh, Sharding, run_local, shard_map
from weft.ir import Expr, Function, IRModule, infer_expr
from weft.ir.expr import const, var
from weft.support.errors import OptionError
from weft.transform.analysis.reference import evaluate
from weft.transform.sharding.unroll import unrolled

P, MESH = Sharding.of, Mesh({"a": 2, "b": 2})
GROUP = {"axes": ("a",), "size": 2}
CUT, WHOLE = P("a", None), P(None, None)
# Attributes, and the shardings of operand and result, by operator.
EACH = {
    "all_reduce": ({}, CUT, WHOLE), "all_gather": ({}, CUT, WHOLE),
    "reduce_scatter": ({}, CUT, CUT), "all_to_all": ({"split": 1, "join": 0}, CUT, P(None, "a")),
    "permute": ({"wraps": False}, CUT, CUT), "broadcast": ({}, WHOLE, WHOLE),
    "local_part": ({}, WHOLE, CUT),
}


def collective(name: str) -> tuple[Function, Sharding, Sharding]:
    """A collective of squares on parts of (4, 6), with the shardings of operand and result."""
    attrs, before, after = EACH[name]
    x = var("x", (2, 6) if before == CUT else (4, 6))
    y = getattr(op.collective, name)(op.multiply(x, x), **GROUP, **attrs)
    return typed((x,), y), before, after


def typed(params: tuple, body: Expr) -> Function:
    fn = infer_expr(Function(params, body))
    assert isinstance(fn, Function)
    return fn


def whole_of(fn: Function, before: Sharding, *after: Sharding) -> IRModule:
    plan = shard_map(IRModule.from_expr(fn), MESH, [before], after)
    return unrolled(plan.part)


@pytest.mark.parametrize("name", EACH)
def test_the_gradient_is_that_of_the_copies(name: str) -> None:
    """The sum of weighted results, differentiated on one device and through all copies."""
    fn, before, after = collective(name)
    columns = np.arange(shape_of(fn.body)[1], dtype=np.float32)
    weights = op.multiply(fn.body, const(columns))
    loss = op.sum(op.multiply(weights, fn.body))
    if not after.is_replicated:
        loss = op.collective.all_reduce(loss, **GROUP)
    local = IRModule.from_expr(typed(fn.params, loss))
    own = weft.value_and_grad(local)["main"]
    x = numbers(np.random.default_rng(0), 4, 6)
    value, gradient = evaluate(whole_of(own, before, P(), before), [x])
    copies = weft.value_and_grad(whole_of(local["main"], before, P()))
    expected_value, expected = evaluate(copies, [x])
    np.testing.assert_array_equal(value, expected_value)
    np.testing.assert_array_equal(gradient, expected)


@pytest.mark.parametrize("name", EACH)
def test_a_batch_is_each_example(name: str) -> None:
    fn, before, after = collective(name)
    batched = weft.vmap(IRModule.from_expr(fn), axis_size=3)
    more = [Sharding(((), *s.dims)) for s in (before, after)]
    plan = shard_map(batched, MESH, more[:1], more[1:])
    assert operators(plan.local).count(f"collective.{name}") == 1
    x = numbers(np.random.default_rng(1), 3, 4, 6)
    one = whole_of(fn, before, after)
    np.testing.assert_array_equal(evaluate(unrolled(plan.part), [x]),
                                  np.stack([evaluate(one, [each]) for each in x]))


def test_ranks_run_it() -> None:
    plan = shard_map(weft.parse("""
        def @main(%x: Tensor[(2, 3), float32]) {
          let %next = collective.permute(%x, axes=["a"], size=2);
          (collective.all_gather(subtract(%x, %next), axes=["a", "b"], size=4),
           collective.broadcast(%next, axes=["b"], size=2))
        }"""), MESH, {"x": P(("a", "b"), None)}, [WHOLE, CUT])
    x = numbers(np.random.default_rng(0), 8, 3)

    def run(communicator: Communicator) -> list[np.ndarray]:
        module = plan.compile(communicator=communicator)
        return module.join(*module(*module.cut(x)))

    swapped = np.roll(x, 4, 0)
    for first, second in (*run_local(4, run), plan.compile()(x)):
        np.testing.assert_array_equal(first, x - swapped)
        np.testing.assert_array_equal(second, swapped.reshape(2, 2, 2, 3)[:, 0].reshape(4, 3))


def test_what_does_not_fit_is_refused() -> None:
    fn = IRModule.from_expr(collective("all_reduce")[0])
    with pytest.raises(OptionError, match="no input 'y'"):
        shard_map(fn, MESH, {"y": CUT}, [WHOLE])
    with pytest.raises(OptionError, match="number of in_shardings"):
        shard_map(fn, MESH, [], [WHOLE])
    with pytest.raises(OptionError, match="number of out_shardings"):
        shard_map(fn, MESH, [CUT], [])
    with pytest.raises(OptionError, match="for a part of 2"):
        shard_map(fn, MESH, [P("a")], [WHOLE])
    with pytest.raises(OptionError, match="a group of another size"):
        shard_map(fn, Mesh({"a": 4}), [CUT], [WHOLE])
    with pytest.raises(OptionError, match="no axis 'a'"):
        shard_map(fn, Mesh({"b": 2}), [None], [WHOLE])
