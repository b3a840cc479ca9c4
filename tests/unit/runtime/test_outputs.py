"""Memory of results is used again, and never while somebody can see it."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from weft.runtime.manifest import TensorSpec
from weft.runtime.outputs import KEPT, SMALLEST, OutputMemory, output_maker

FLOATS = SMALLEST // 4
F32 = np.dtype(np.float32)


def address(array: np.ndarray) -> int:
    return array.__array_interface__["data"][0]


@pytest.mark.parametrize("shape", [(FLOATS,), (3, FLOATS), (1 << 20,)])
def test_memory_comes_back_when_the_result_is_gone(shape) -> None:
    memory = OutputMemory(TensorSpec("y", "float32", shape))
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
    memory = OutputMemory(TensorSpec("y", "float32", (FLOATS,)))
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
    memory = OutputMemory(TensorSpec("y", "float32", (FLOATS,)))
    held = [memory.make() for _ in range(KEPT + 3)]
    assert len({address(h) for h in held}) == len(held)
    first_address = address(memory.make())
    assert address(memory.make()) == first_address


def test_small_results_are_plain_arrays() -> None:
    assert output_maker(TensorSpec("y", "float32", (4, 4)))().flags.owndata
    assert output_maker(TensorSpec("y", "float32", (0, 4)))().shape == (0, 4)


def test_threads_never_share_a_result() -> None:
    memory = OutputMemory(TensorSpec("y", "float32", (FLOATS,)))
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
