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

    def counted(body, values, replace=module._with_values):
        sizes.append(module._size(body))
        return replace(body, values)

    monkeypatch.setattr(module, "_with_values", counted)
    copied = []
    for count in (64, 256):
        sizes.clear()
        loop_partition(joined(count))
        copied.append(sum(sizes))
    assert copied[1] < 8 * copied[0]  # 16 times if each cut copied the rest


@pytest.mark.parametrize("axis", [0, 1])
def test_many_inputs_are_joined_in_order(axis):
    count = 30
    arrays = [np.full((2, 3), k, np.float32) for k in range(count)]
    params = ", ".join(f"%x{k}: Tensor[(2, 3), float32]" for k in range(count))
    args = ", ".join(f"%x{k}" for k in range(count))
    model = weft.parse(f"def @main({params}) {{ concatenate(({args}), axis={axis}) }}")
    np.testing.assert_array_equal(weft.compile(model)(*arrays), np.concatenate(arrays, axis))
