"""Collectives begin as soon as their operand is there, and are waited for as late as possible."""

from __future__ import annotations

import numpy as np
import pytest

from tests.unit.transform.sharding.test_partition import random_plan, typed
from weft import op
from weft.ir.expr import Constant, Function, Tuple, var
from weft.ir.op import Op
from weft.ir.sharding import Mesh, Sharding
from weft.transform.sharding.blocks import Compute, Start, calls_behind
from weft.transform.sharding.partition import partition
from weft.transform.sharding.steps import block_of, steps_of


def names(fn: Function) -> list[str]:
    found = []
    for step in steps_of(fn):
        calls = step.calls if isinstance(step, Compute) else (step.call,)
        texts = [c.op.name.removeprefix("collective.") for c in calls if isinstance(c.op, Op)]
        found.append(f"{type(step).__name__.lower()} {' '.join(texts)}")
    return found


def test_a_gradient_is_summed_while_the_next_one_is_computed() -> None:
    x, first, second = var("x", (64, 4)), var("v", (4, 4)), var("w", (4, 4))
    one = op.nn.relu(op.nn.dense(x, first))
    fn = typed((x, first, second), Tuple((
        op.sum(op.multiply(one, x), axis=0), op.sum(op.nn.dense(one, second), axis=0))))
    made = partition(fn, Mesh({"a": 2}), [Sharding.of("a", None), None, None])
    assert names(made.function) == [
        "compute nn.dense nn.relu multiply sum", "start all_reduce", "compute nn.dense sum",
        "start all_reduce", "wait all_reduce", "wait all_reduce"]
    assert list(calls_behind(block_of(made.function)).values()) == [2, 0]


def test_what_waits_for_nothing_runs_before_a_wait() -> None:
    x, y = var("x", (8, 4)), var("y", (8, 4))
    total = op.sum(x, axis=0)
    fn = typed((x, y), Tuple((op.exp(total), op.tanh(y))))
    made = partition(fn, Mesh({"a": 2}), [Sharding.of("a", None), None])
    assert names(made.function) == ["compute sum", "start all_reduce", "compute tanh",
                                    "wait all_reduce", "compute exp"]


@pytest.mark.sample(0.1)
@pytest.mark.parametrize("seed", range(100))
def test_every_call_has_one_step_that_its_operands_precede(seed: int) -> None:
    made = random_plan(np.random.default_rng(seed))[1]
    ready = set(made.function.params)
    for step in steps_of(made.function):
        if isinstance(step, Compute):
            assert ready.issuperset(step.inputs)
            assert len(step.function.params) == len(step.inputs)
            ready.update(step.outputs)
        elif isinstance(step, Start):
            operand = step.call.args[0]
            assert isinstance(operand, Constant) or operand in ready
        else:
            ready.add(step.call)
