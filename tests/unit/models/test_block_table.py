"""The block table against a model in which each slot has a list of tokens of its own."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from weft.models.block_table import BlockTable

SLOTS, PER_ROW, SIZE = 3, 4, 4
CAPACITY = PER_ROW * SIZE
ACTION = st.one_of(
    st.tuples(st.just("append"), st.integers(0, SLOTS - 1), st.integers(1, 9)),
    st.tuples(st.just("copy"), st.integers(0, SLOTS - 1), st.integers(0, SLOTS - 1)),
    st.tuples(st.just("truncate"), st.integers(0, SLOTS - 1), st.integers(0, CAPACITY)),
)


class Caches:
    """One number per token, in the blocks that the table gives."""

    def __init__(self) -> None:
        self.table = BlockTable(SLOTS, PER_ROW, SIZE)
        self.memory = np.full((self.table.blocks, SIZE), -1)

    def append(self, slot: int, tokens: list[int]) -> None:
        for source, target in self.table.reserve(slot, len(tokens)):
            self.memory[target] = self.memory[source]
        start = int(self.table.lengths[slot])
        for position, token in enumerate(tokens, start):
            self.memory[self.table.rows[slot, position // SIZE], position % SIZE] = token
        self.table.lengths[slot] += len(tokens)

    def read(self, slot: int) -> list[int]:
        return [int(self.memory[self.table.rows[slot, p // SIZE], p % SIZE])
                for p in range(self.table.lengths[slot])]


@settings(max_examples=200, deadline=None)
@given(actions=st.lists(ACTION, max_size=25), data=st.data())
def test_slots_behave_like_separate_lists(actions: list[tuple[Any, ...]], data: st.DataObject
                                          ) -> None:
    caches, lists = Caches(), [[] for _ in range(SLOTS)]
    fresh = iter(range(10_000))
    for kind, slot, argument in actions:
        if kind == "append":
            tokens = [next(fresh) for _ in range(min(argument, CAPACITY - len(lists[slot])))]
            if tokens:
                caches.append(slot, tokens)
                lists[slot] += tokens
        elif kind == "copy":
            length = data.draw(st.integers(0, len(lists[slot])))
            caches.table.share(slot, argument, length)
            lists[argument] = lists[slot][:length]
        else:
            length = min(argument, len(lists[slot]))
            caches.table.truncate(slot, length)
            del lists[slot][length:]
        assert [caches.read(s) for s in range(SLOTS)] == lists
    for slot in range(SLOTS):
        caches.table.truncate(slot, 0)
    assert caches.table.used_blocks == 0


def test_equal_beginnings_share_blocks() -> None:
    caches = Caches()
    caches.append(0, list(range(10)))
    caches.table.share(0, 1, 10)
    assert caches.table.used_blocks == 3
    caches.append(1, [99])  # the last block is copied, the two full ones stay shared
    assert caches.table.used_blocks == 4
    assert caches.read(0) == list(range(10))
    assert caches.read(1) == [*range(10), 99]
