"""Memory of results is used again, and never while somebody can see it."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from weft.runtime.manifest import TensorSpec
from weft.runtime.outputs import KEPT, SMALLEST, Blocks, OutputMemory, no_blocks, output_maker

FLOATS = SMALLEST // 4
F32 = np.dtype(np.float32)


def memory_of(shape: tuple[int, ...], blocks: Blocks | None = None) -> OutputMemory:
    blocks = no_blocks() if blocks is None else blocks
    return OutputMemory(TensorSpec("y", "float32", shape), blocks)


def address(array: np.ndarray) -> int:
    return array.__array_interface__["data"][0]


@pytest.mark.parametrize("shape", [(FLOATS,), (3, FLOATS), (1 << 20,)])
def test_memory_comes_back_when_the_result_is_gone(shape) -> None:
    memory = memory_of(shape)
    first = memory.make()
    assert first.shape == shape
    assert first.dtype == F32
    assert first.flags.c_contiguous
    assert first.flags.writeable
    assert address(first) % 64 == 0
    first_address = address(first)
    del first
    assert address(memory.make()) == first_address


@pytest.mark.parametrize("view", [
    lambda a: a[3:], lambda a: a.reshape(2, -1).T, lambda a: a.view(np.uint8), memoryview,
    np.asarray, np.from_dlpack, lambda a: a[-1:],
])
def test_a_view_keeps_the_memory(view) -> None:
    memory = memory_of((FLOATS,))
    first = memory.make()
    first[:] = 7
    first_address = address(first)
    kept = view(first)
    del first
    others = [memory.make() for _ in range(KEPT + 2)]
    assert first_address not in map(address, others)
    assert len({address(o) for o in others}) == len(others)
    assert np.asarray(kept).view(np.float32).ravel()[-1] == 7


def test_results_that_are_held_do_not_fill_the_queue() -> None:
    memory = memory_of((FLOATS,))
    held = [memory.make() for _ in range(KEPT + 3)]
    assert len({address(h) for h in held}) == len(held)
    first_address = address(memory.make())
    assert address(memory.make()) == first_address


def test_sizes_share_memory() -> None:
    blocks = no_blocks()
    sizes = [FLOATS * 100 + 16 * n for n in range(40)]
    used = {address(memory_of((size,), blocks).make()) for size in reversed(sizes)}
    assert len(used) == 1
    assert len(blocks) == 1


@pytest.mark.parametrize("size", [FLOATS * 9, FLOATS * 140])
def test_a_small_result_does_not_hold_much_memory_and_a_large_one_has_its_own(size: int) -> None:
    blocks = no_blocks()
    first = memory_of((FLOATS * 100,), blocks).make()
    first_address = address(first)
    del first
    other = memory_of((size,), blocks).make()
    assert address(other) != first_address
    assert other.base is not None
    assert other.base.nbytes < 2 * other.nbytes + (4 << 20)


def test_small_results_are_plain_arrays() -> None:
    assert output_maker(TensorSpec("y", "float32", (4, 4)), None)().flags.owndata
    assert output_maker(TensorSpec("y", "float32", (0, 4)), None)().shape == (0, 4)


def test_threads_never_share_a_result() -> None:
    memory = memory_of((FLOATS,))
    wrong: list[int] = []

    def work(number: int) -> None:
        for _ in range(300):
            mine = memory.make()
            mine[::997] = number
            if not (mine[::997] == number).all():
                wrong.append(number)

    workers = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not wrong
