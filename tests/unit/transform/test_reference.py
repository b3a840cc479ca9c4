from __future__ import annotations

import numpy as np
import pytest

from tests.unit.transform.helpers import parse_program
from weft import op
from weft.ir.expr import Function, If, Let, RefCreate, RefRead, RefWrite, Tuple, Var, const, var
from weft.ir.module import IRModule
from weft.support.errors import InvalidInputError
from weft.transform.analysis.reference import evaluate

X = np.array([-1.0, 2.0], np.float32)


def test_shared_nodes_tuples_and_projections():
    mod = parse_program("""
        def @main(%x: Tensor[(2,), float32]) {
          %0 = exp(%x);
          %1 = (%0, negative(%0));
          add(%1.0, %1.1)
        }""")
    assert (evaluate(mod, [X]) == 0).all()


def test_inputs_by_name_and_their_mistakes():
    x, y = var("x", (2,)), var("y", (2,))
    fn = Function((x, y), op.subtract(x, y))
    assert (evaluate(fn, {"y": X, "x": X}) == 0).all()
    with pytest.raises(InvalidInputError, match="wrong number"):
        evaluate(fn, [X])
    with pytest.raises(InvalidInputError, match="do not match"):
        evaluate(fn, {"x": X, "z": X})


def test_only_the_chosen_branch_runs():
    x = var("x", (2,))
    ref, seen = Var("ref"), Var("seen")
    write = RefWrite(ref, const(1.0))
    chosen = If(const(np.array(False)), Tuple((write, x)), Tuple((Tuple(()), op.negative(x))))
    body = Let(ref, RefCreate(const(0.0)), Let(seen, chosen, Tuple((RefRead(ref), seen))))
    value, (_, result) = evaluate(Function((x,), body), [X])
    assert value == 0
    assert (result == -X).all()


def test_closures_and_recursion():
    mod = parse_program("""
        def @down(%n: Tensor[(), int32]) -> Tensor[(), int32] {
          if (less(%n, 1)) { %n } else { @down(subtract(%n, 1)) }
        }
        def @main(%n: Tensor[(), int32]) -> Tensor[(), int32] {
          let %f = fn (%k: Tensor[(), int32]) { @down(add(%k, %n)) };
          %f(%n)
        }""")
    assert evaluate(mod, [np.int32(5000)]) == 0


def test_a_chain_of_many_calls_needs_no_recursion():
    x = var("x", (2,))
    y = x
    for _ in range(20_000):
        y = op.negative(y)
    assert (evaluate(IRModule.from_expr(Function((x,), y)), [X]) == X).all()
