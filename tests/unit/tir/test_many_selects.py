"""Loops over the selections of many tensors become one loop for each, in time that is linear."""

from __future__ import annotations

import numpy as np
import pytest

import weft
from weft import te
from weft.tir import all_exprs
from weft.tir import expr as x
from weft.tir.transform import loop_partition as module
from weft.tir.transform.loop_partition import loop_partition
from weft.tir.transform.many_selects import SelectCut, halves_of
from weft.tir.transform.vectorize_loop import vectorize_loop
from weft.tir.visitor import height
from weft.topi.transform import concatenate


def joined(count):
    """The loops of a concatenation of ``count`` tensors of 1, 2 and 3 rows."""
    parts = [te.placeholder((1 + k % 3, 3), name=f"x{k}") for k in range(count)]
    result = concatenate(parts, 0)
    return te.lower(te.create_schedule(result), [*parts, result], name="f")


def selects(func):
    return [e for e in all_exprs(func.body) if type(e) is x.Call and e.name == "if_then_else"]


@pytest.mark.parametrize("count", [2, 9, 40])
def test_each_tensor_has_a_loop_without_selections(count):
    before = joined(count)
    assert len(selects(before)) == count - 1
    after = loop_partition(before)
    assert selects(after) == []
    text = str(after)
    positions = [text.index(f"x{k}[", text.index(":\n")) for k in range(count)]
    assert positions == sorted(positions)


def test_the_middle_is_taken_first_so_that_little_is_copied(monkeypatch):
    sizes = []

    def counted(body, values, replace=module.with_values):
        sizes.append(module._size(body))
        return replace(body, values)

    monkeypatch.setattr(module, "with_values", counted)
    copied = []
    for count in (64, 256):
        sizes.clear()
        loop_partition(joined(count))
        copied.append(sum(sizes))
    assert copied[1] < 8 * copied[0]  # 16 times if each cut copied the rest


@pytest.mark.sample(0.5)
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("other", [3, 40, 1024], ids=["few", "rows", "parallel"])
def test_many_inputs_of_different_sizes_are_joined_in_order(axis, other):
    count = 30
    shapes = [(1 + k % 5, other) if axis == 0 else (other, 1 + 5 * k % 23) for k in range(count)]
    arrays = [np.full(shape, k, np.float32) for k, shape in enumerate(shapes)]
    params = ", ".join(f"%x{k}: Tensor[{shape}, float32]" for k, shape in enumerate(shapes))
    args = ", ".join(f"%x{k}" for k in range(count))
    model = weft.parse(f"def @main({params}) {{ tanh(concatenate(({args}), axis={axis})) }}")
    np.testing.assert_allclose(weft.compile(model)(*arrays),
                               np.tanh(np.concatenate(arrays, axis)), rtol=1e-5)


@pytest.mark.parametrize("holds_first", [True, False])
def test_halves(holds_first):
    first, second, third = (SelectCut(x.Var(name), holds_first, always, never)
                            for name, always, never in [("a", 2, 3), ("b", 5, 5), ("c", 9, 8)])
    middle, before, after = halves_of([third, first, second])
    assert middle == 5
    assert before == {cut.predicate: x.TRUE if holds_first else x.FALSE
                      for cut in (second, third)}
    assert after == {cut.predicate: x.FALSE if holds_first else x.TRUE
                     for cut in (first, second)}


def test_masks_of_nested_conditions_on_one_element_are_flat():
    """Taking columns of many tensors: each condition reads the same position."""
    count = 24
    parts = [te.placeholder((4, 2), name=f"x{k}") for k in range(count)]
    where = te.placeholder((16,), "int64", name="where")
    columns = concatenate(parts, 1)
    taken = te.compute((4, 16), lambda i, j: columns[i, where[j]], name="taken")
    schedule = te.create_schedule(taken)
    schedule[columns].compute_inline()
    schedule[taken].vectorize(schedule[taken].axis[1])
    func = vectorize_loop(te.lower(schedule, [*parts, where, taken], name="f"))
    masks = {load.buffer.name: load.predicate for load in all_exprs(func.body)
             if type(load) is x.BufferLoad}
    assert masks["where"] is None
    assert masks["x0"] is not None
    heights: dict[x.PrimExpr, int] = {}
    assert max(height(mask, heights) for mask in masks.values() if mask is not None) < 3 * count
