"""Cutting the operands of every operator as its index maps say gives the parts of its result."""

from __future__ import annotations

import numpy as np
import pytest

from tests.unit.op.harness import (
    CaseId,
    all_cases,
    case_of,
    each_named,
    make_call,
    make_inputs,
    reference_outputs,
)
from tests.unit.transform.sharding.cutting import cut_call, fewest_parts, joined
from weft import op
from weft.ir.dynamic import needs_values
from weft.ir.expr import Call, Expr, var
from weft.ir.op import OPS, get_op
from weft.ir.typing.infer import infer_expr
from weft.transform.sharding.index_maps import Factor, IndexMaps, index_maps
from weft.transform.sharding.windows import Window


def cases() -> list[CaseId]:
    return [id_ for id_ in all_cases()
            if OPS.get(id_[0]).reference is not None and not needs_values(get_op(id_[0]))]


@pytest.mark.sample(0.05)
@pytest.mark.parametrize("name", sorted({name for name, _ in cases()}))
def test_every_factor_of_every_operator(name: str) -> None:
    for number in range(len(OPS.get(name).cases)):
        with each_named(name, number):
            one = case_of((name, number))
            arrays = make_inputs(OPS.get(name), one)
            call = make_call(OPS.get(name), one, arrays)
            tolerance = 1e-2 if "16" in str(call.checked_type) else 1e-4
            for factor in index_maps(call).factors:
                parts = fewest_parts(factor)
                local = cut_call(call, factor, parts)
                if local is None:
                    continue
                for whole, found in zip(reference_outputs(call, arrays),
                                        joined(call, local, arrays, factor, parts), strict=True):
                    np.testing.assert_allclose(
                        found.astype(np.float64), whole.astype(np.float64),
                        rtol=tolerance, atol=tolerance / 10)


def maps_of(expr: Expr) -> IndexMaps:
    call = infer_expr(expr)
    assert isinstance(call, Call)
    return index_maps(call)


def test_records_state_the_axes_of_loops_that_are_written_by_hand() -> None:
    assert maps_of(op.cumsum(x(4, 6), axis=1)).factors == (Factor(((0, 0),), ((0, 0),), 4),)
    (found,) = maps_of(op.linalg.cholesky(x(4, 3, 3))).factors
    assert found.operands == ((0, 0),)
    assert maps_of(op.unique(x(4))).blocked == {(0, 0): "its loops are written by hand"}


def x(*shape: int) -> Expr:
    return var("x", shape)


def test_a_product_is_cut_in_three_ways() -> None:
    found = maps_of(op.nn.dense(x(4, 6), x(8, 6)))
    assert set(found.factors) == {
        Factor(((0, 0),), ((0, 0),), 4), Factor(((1, 0),), ((0, 1),), 8),
        Factor(((0, 1), (1, 1)), (), 6, "sum")}


def test_a_reshape_is_cut_at_the_first_dimension_of_each_group() -> None:
    found = maps_of(op.reshape(x(6, 4, 10), newshape=(24, 2, 5)))
    assert set(found.factors) == {Factor(((0, 0),), ((0, 0),), 6), Factor(((0, 2),), ((0, 1),), 2)}


def test_a_softmax_says_why_its_axis_is_whole() -> None:
    found = maps_of(op.nn.softmax(x(4, 6)))
    assert found.factors == (Factor(((0, 0),), ((0, 0),), 4),)
    assert found.blocked == {(0, 1): "it is reduced and kept"}


def test_windows_need_a_halo() -> None:
    found = maps_of(op.nn.conv2d(x(2, 4, 8, 8), x(6, 4, 3, 5), padding=(1, 2), strides=(2, 1)))
    rows, columns = (f.windows for f in found.factors if f.windows)
    assert rows == (Window(0, 2, stride=2, low=-1, high=1, fill=0.0),)
    assert (rows[0].before, rows[0].after) == (1, 0)
    assert columns == (Window(0, 3, stride=1, low=-2, high=2, fill=0.0),)
    pooled = maps_of(op.nn.max_pool2d(x(2, 4, 8, 8), pool_size=(3, 3), padding=(1, 1)))
    assert {f.windows[0].fill for f in pooled.factors if f.windows} == {-np.inf}


def test_windows_positions_and_tables_block() -> None:
    pooled = maps_of(op.nn.max_pool2d(x(2, 4, 8, 8), pool_size=(3, 3)))
    assert {f.operands[0][1] for f in pooled.factors} == {0, 1}
    assert set(pooled.blocked.values()) == {"its windows are not as many as fit equal parts"}
    taken = maps_of(op.take(x(6, 4), infer_expr(op.cast(x(8), dtype="int32")), axis=0))
    assert {f.operands for f in taken.factors} == {((1, 0),), ((0, 1),)}
    assert maps_of(op.nn.pad(x(4, 4), 0.0, pad_width=((1, 1), (1, 1)))).factors == ()
