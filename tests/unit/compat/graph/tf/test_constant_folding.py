"""What TensorFlow's ``constant_folding_test`` checks, case by case.

Its ``Send`` nodes are here the fields of the result, which are fetched; its predicate ``consider``
is the option ``skip``, by the name of the operator. ``BroadcastGradientArgs``, an operator with two
results, is here ``split``.
"""

from __future__ import annotations

import numpy as np
import pytest

from tests.unit.transform.effect_operators import Effects, recording
from tests.unit.transform.helpers import op_calls
from weft import op
from weft.ir import IRModule, infer_type
from weft.ir.expr import Constant, Expr, Function, Tuple, TupleGetItem, const
from weft.transform import FoldConstant, GraphOptimizer

A = np.array([[1, 0], [0, 1]], np.float32)
B = np.array([[1, 2], [3, 4]], np.float32)
C = np.array([[0, 1], [1, 0]], np.float32)


@pytest.fixture(scope="module")
def effects():
    with recording() as found:
        yield found


def graph(*fetched: Expr) -> IRModule:
    return infer_type(IRModule.from_expr(Function((), Tuple(fetched))))


def fetched_of(mod: IRModule) -> tuple[Expr, ...]:
    body = mod["main"].body
    assert isinstance(body, Tuple)
    return body.fields


def simple() -> IRModule:
    """Two products with a shared operand; the second is of another operator than the first."""
    return graph(op.nn.matmul(const(A), const(B)), op.nn.dense(const(B), const(C)))


@pytest.mark.parametrize("pass_", [FoldConstant(), GraphOptimizer()], ids=lambda p: p.name)
def test_basic(pass_):
    first, second = fetched_of(pass_(simple()))
    assert isinstance(first, Constant)
    np.testing.assert_array_equal(first.data, [[1, 2], [3, 4]])
    assert isinstance(second, Constant)
    np.testing.assert_array_equal(second.data, [[2, 1], [4, 3]])


@pytest.mark.parametrize("pass_", [FoldConstant(skip=("nn.dense",)),
                                   GraphOptimizer(skip=("nn.dense",))], ids=lambda p: p.name)
def test_consider_function(pass_):
    after = pass_(simple())
    first, second = fetched_of(after)
    assert isinstance(first, Constant)
    assert not isinstance(second, Constant)
    assert op_calls(after) == ["nn.dense"]


def test_two_outputs():
    halves = op.split(const(np.arange(3, dtype=np.int32)), indices_or_sections=(2,), axis=0)
    fetched = [op.copy(TupleGetItem(halves, index)) for index in range(2)]
    after = FoldConstant()(graph(*fetched))
    first, second = fetched_of(after)
    assert isinstance(first, Constant)
    np.testing.assert_array_equal(first.data, [0, 1])
    assert isinstance(second, Constant)
    np.testing.assert_array_equal(second.data, [2])


def test_two_outputs_fold_one_output():
    """The call that is not considered stays, and reads a constant."""
    halves = op.split(const(np.arange(3, dtype=np.int32)), indices_or_sections=(2,), axis=0)
    after = FoldConstant(skip=("negative",))(
        graph(op.copy(TupleGetItem(halves, 0)), op.negative(TupleGetItem(halves, 1))))
    first, second = fetched_of(after)
    assert isinstance(first, Constant)
    assert op_calls(after) == ["negative"]
    assert isinstance(second.args[0], Constant)
    np.testing.assert_array_equal(second.args[0].data, [2])


def test_stateful_nodes_stay(effects: Effects):
    """Of the set of foldable nodes rather than of the test: nodes with state are not in it."""
    recorded = effects.record(const(A), tag=1)
    after = GraphOptimizer()(graph(op.add(recorded, op.add(const(A), const(B)))))
    assert op_calls(after) == ["test.record", "add"]
    assert effects.of(after, []) == [1]


def test_control_edges_of_constants_go_with_them(effects: Effects):
    """A fold does not lose an effect that ran before it."""
    guarded = op.annotation.barrier(const(A), effects.record(const(B), tag=2))
    after = GraphOptimizer()(graph(op.add(guarded, const(C))))
    assert effects.of(after, []) == [2]
    pure = op.annotation.barrier(const(A), op.exp(const(B)))
    (result,) = fetched_of(GraphOptimizer()(graph(op.add(pure, const(C)))))
    assert isinstance(result, Constant)
