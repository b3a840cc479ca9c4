"""Constants of the same bytes are one."""

from __future__ import annotations

import numpy as np

from weft.compiler.program.constants import ConstantPool


def test_equal_bytes_are_one_whatever_their_shape() -> None:
    pool = ConstantPool()
    rows = np.arange(12, dtype=np.float32).reshape(3, 4)
    other = rows + 1
    small = np.zeros(2, np.float32)
    given = [rows, other, small, rows.copy(), rows.reshape(12), other.reshape(4, 3), rows.T,
             rows.view(np.int32), small.astype(np.float64), small]
    assert [pool.number_of(a) for a in given] == [0, 1, 2, 0, 0, 1, 3, 0, 4, 2]
    assert pool.arrays[0] is rows
    assert len(pool.arrays) == 5


def test_arrays_of_a_size_of_their_own_are_not_read() -> None:
    class Unreadable(np.ndarray):
        def reshape(self, *_: object, **__: object) -> np.ndarray:  # type: ignore[override]
            raise AssertionError("read")

    pool = ConstantPool()
    lone = np.zeros(5, np.float32).view(Unreadable)
    assert pool.number_of(lone) == 0
    assert pool.number_of(np.zeros(6, np.float32)) == 1
