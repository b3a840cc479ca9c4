"""Aligned memory, and who uses it when."""

from __future__ import annotations

import numpy as np
import pytest

from weft.runtime.arena import ALIGNMENT, AlignedBlock, Pool, address_of, aligned_bytes


@pytest.mark.parametrize("size", [0, 1, 63, 64, 1000, (2 << 20) - 1, 2 << 20, (5 << 20) + 3])
def test_blocks_are_aligned_and_whole(size: int) -> None:
    block = AlignedBlock(size)
    assert block.address % ALIGNMENT == 0
    assert block.array.nbytes == block.nbytes == size
    block.array[:] = 7
    assert int(block.array.sum(dtype=np.int64)) == 7 * size


@pytest.mark.parametrize("size", [0, 100, 3 << 20])
@pytest.mark.parametrize("alignment", [16, 128, 4096, 4 << 20])
def test_blocks_may_have_a_larger_alignment(size: int, alignment: int) -> None:
    for _ in range(4):
        block = AlignedBlock(size, alignment)
        assert block.address % max(alignment, ALIGNMENT) == 0
        assert block.array.nbytes == size


def test_the_view_keeps_the_memory() -> None:
    views = [AlignedBlock(3 << 20).array for _ in range(3)]
    for number, view in enumerate(views):
        view[:] = number
    assert [int(v[-1]) for v in views] == [0, 1, 2]


def test_aligned_bytes_copies_only_what_it_must() -> None:
    block = AlignedBlock(256)
    block.array[:] = np.arange(256)
    assert aligned_bytes(block) is block.array
    assert np.shares_memory(aligned_bytes(block.array), block.array)
    moved = aligned_bytes(block.array[1:])
    assert address_of(moved) % ALIGNMENT == 0
    np.testing.assert_array_equal(moved, np.arange(1, 256))
    assert aligned_bytes(b"").size == 0
    assert aligned_bytes(np.float32([[1, 2], [3, 4]]).T).view(np.float32).tolist() == [1, 3, 2, 4]


def test_a_pool_makes_what_is_in_use_at_once() -> None:
    made: list[list[int]] = []

    def make() -> list[int]:
        made.append([])
        return made[-1]

    pool = Pool(make)
    first, second = pool.take(), pool.take()
    assert first is not second
    pool.give_back(first)
    assert pool.take() is first
    assert len(made) == 2


@pytest.mark.parametrize("size", [1 << 47, 1 << 70])
def test_more_than_there_is(size: int) -> None:
    with pytest.raises(MemoryError):
        AlignedBlock(size)
