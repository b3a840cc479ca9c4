"""``PagedDecoder``: a program with paged key and value caches as its state, as a ``Decoder``.

It needs the runtime alone: a compiled program, or one from an artifact.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from weft.models.block_table import BlockTable
from weft.models.decoder import check_append, check_copy, check_slot, check_truncate
from weft.runtime.executable import Executable
from weft.support.errors import ArtifactError, InvalidInputError

# Tokens that take as long to compute as all weights take to read.
CALL_TOKENS = 32
# The entry points of its artifacts.
DECODE, ENCODE = "decode", "encode"


class PagedDecoder:
    """``batch`` sequences of up to ``capacity`` tokens, which are decoded at the same time.

    Sequences with equal beginnings share blocks of ``block_size`` tokens. The caches are state of
    the program, which it updates in place.
    """

    def __init__(self, executable: Executable, *, vocab_size: int, capacity: int, batch: int,
                 block_size: int) -> None:
        self.executable = executable
        self._vocab_size = vocab_size
        self._capacity = capacity
        self._blocks = table_of(capacity, batch, block_size)
        self._numbers = np.arange(batch)
        self._caches = list(executable.state.values())

    @staticmethod
    def of_artifact(entries: Mapping[str, Executable], facts: Mapping[str, Any]) -> PagedDecoder:
        """The decoder that an artifact holds, with empty caches."""
        return PagedDecoder(entries[DECODE], **sizes_of(facts))

    def facts(self) -> dict[str, Any]:
        """What an artifact says of the decoder, beside its programs."""
        return {"vocab_size": self.vocab_size, "capacity": self.capacity, "batch": self.slots,
                "block_size": self._blocks.block_size}

    @property
    def vocab_size(self) -> int:
        return self._vocab_size

    @property
    def capacity(self) -> int:
        return self._capacity

    @property
    def slots(self) -> int:
        return len(self._blocks.lengths)

    @property
    def cache_bytes(self) -> int:
        """Bytes of all key and value caches."""
        return sum(cache.nbytes for cache in self._caches)

    def length(self, slot: int) -> int:
        check_slot(self, slot)
        return int(self._blocks.lengths[slot])

    def prefill(self, slots: Sequence[int], ids: Sequence[np.ndarray]) -> np.ndarray:
        self._check_append(slots, ids)
        logits = np.empty((len(slots), self.vocab_size), np.float32)
        for rows in batches_of([len(tokens) for tokens in ids]):
            tokens, counts = padded([ids[row] for row in rows])
            last = np.arange(len(rows)) * tokens.shape[1] + counts - 1
            logits[rows] = self._run([slots[row] for row in rows], tokens, counts, last)
        return logits

    def score(self, slots: Sequence[int], ids: Sequence[np.ndarray]) -> list[np.ndarray]:
        self._check_append(slots, ids)
        found: dict[int, np.ndarray] = {}
        for rows in batches_of([len(tokens) for tokens in ids]):
            tokens, counts = padded([ids[row] for row in rows])
            every = np.flatnonzero(np.arange(tokens.shape[1]) < counts[:, None])
            logits = self._run([slots[row] for row in rows], tokens, counts, every)
            found.update(zip(rows, np.split(logits, np.cumsum(counts)[:-1]), strict=True))
        return [found[row] for row in range(len(slots))]

    def step(self, slots: Sequence[int], ids: np.ndarray) -> np.ndarray:
        # Weights evict the caches at every step: what runs between two programs runs cold, so few
        # functions are called.
        if not self._may_step(slots, ids):
            self._check_append(slots, list(ids.reshape(-1, 1)))
        blocks, count = self._blocks, len(slots)
        for slot in slots:
            copies = blocks.reserve(slot, 1)
            if copies:
                self._copy_blocks(copies)
        index = np.array(slots, np.int64)
        start = blocks.lengths[index]
        lengths = start + 1
        logits = self.executable(ids.astype(np.int64).reshape(count, 1), start.reshape(count, 1),
                                 start, lengths, self._numbers[:count], blocks.rows[index],
                                 *self._more_inputs(index))
        blocks.lengths[index] = lengths
        return logits

    def _may_step(self, slots: Sequence[int], ids: np.ndarray) -> bool:
        """Whether each slot can take one token; of errors, ``_check_append`` says what is wrong."""
        most, vocab, lengths = self.slots, self.vocab_size, self._blocks.lengths
        return (ids.ndim == 1 and ids.dtype.kind in "iu" and len(ids) == len(set(slots))
                and all(0 <= slot < most and lengths[slot] < self._capacity for slot in slots)
                and all(0 <= token < vocab for token in ids.tolist()))

    def copy(self, source: int, target: int, length: int) -> None:
        check_copy(self, source, target, length)
        self._blocks.share(source, target, length)

    def truncate(self, slot: int, length: int) -> None:
        check_truncate(self, slot, length)
        self._blocks.truncate(slot, length)

    def free(self, slot: int) -> None:
        self.truncate(slot, 0)

    def cached(self, slot: int) -> list[np.ndarray]:
        """Copies of what a slot holds of each cache, [heads, tokens, head dim]."""
        length = self.length(slot)
        blocks = self._blocks.rows[slot][:-(-length // self._blocks.block_size)]
        return [cache[blocks].swapaxes(0, 1).reshape(cache.shape[1], -1, cache.shape[3])[:, :length]
                for cache in self._caches]

    def restore(self, slot: int, length: int, arrays: Sequence[np.ndarray], *, where: Any = None
                ) -> None:
        """Fill a slot with what ``cached`` gave; ``InvalidInputError`` for what does not fit."""
        check_slot(self, slot)
        wanted = [((cache.shape[1], length, cache.shape[3]), cache.dtype) for cache in self._caches]
        found = [(array.shape, array.dtype) for array in arrays]
        if length > self._capacity or found != wanted:
            raise InvalidInputError("the caches have other sizes or another dtype", where=where,
                                    expected=f"{len(wanted)} arrays like {wanted[:1]}",
                                    got=f"{len(found)} arrays like {found[:1]}")
        self.free(slot)
        self._copy_blocks(self._blocks.reserve(slot, length))
        size = self._blocks.block_size
        for number, block in enumerate(self._blocks.rows[slot][:-(-length // size)]):
            for cache, array in zip(self._caches, arrays, strict=True):
                part = array[:, number * size:(number + 1) * size]
                cache[block][:, :part.shape[1]] = part
        self._blocks.lengths[slot] = length

    def _check_append(self, slots: Sequence[int], ids: Sequence[np.ndarray]) -> None:
        check_append(self, slots, ids)

    def _run(self, slots: Sequence[int], ids: np.ndarray, counts: np.ndarray, rows: np.ndarray
             ) -> np.ndarray:
        """Append the first ``counts[i]`` tokens of ``ids`` [slots, tokens], int64.

        Returns the logits of the tokens ``rows``. The tokens behind them are padding. Their keys
        and values are written behind those of the sequence, where no token sees them and the next
        ones overwrite them, or nowhere if the sequence has no block there.
        """
        width, blocks = ids.shape[1], self._blocks
        index = np.array(slots, np.int64)
        for slot, count in zip(slots, counts.tolist(), strict=True):
            self._copy_blocks(blocks.reserve(slot, count))
        start = blocks.lengths[index]
        positions = np.minimum(start[:, None] + np.arange(width), self._capacity - 1)
        logits = self.executable(np.ascontiguousarray(ids), positions, start, start + width, rows,
                                 blocks.rows[index], *self._more_inputs(index))
        blocks.lengths[index] = start + counts
        return logits

    def _more_inputs(self, index: np.ndarray) -> tuple[np.ndarray, ...]:
        """What the program reads of the slots ``index`` beside tokens and caches."""
        del index
        return ()

    def _copy_blocks(self, copies: Sequence[tuple[int, int]]) -> None:
        for source, target in copies:
            for cache in self._caches:
                cache[target] = cache[source]


def table_of(capacity: int, batch: int, block_size: int) -> BlockTable:
    """The blocks of ``batch`` sequences of up to ``capacity`` tokens."""
    size = min(block_size, capacity)
    return BlockTable(batch, -(-capacity // size), size)


def batches_of(lengths: Sequence[int]) -> list[list[int]]:
    """Rows in batches that are padded to their longest row, by the least total cost.

    A batch costs its tokens with padding, and ``CALL_TOKENS``: a call reads all weights. Neighbours
    in the order of lengths share batches, so the best partition is found by dynamic programming.
    """
    if len(set(lengths)) <= 1:
        return [list(range(len(lengths)))] if lengths else []
    order = sorted(range(len(lengths)), key=lambda row: lengths[row])
    best: list[tuple[float, int]] = [(0.0, 0)]  # cost of the first n rows, and their last batch
    for end in range(1, len(order) + 1):
        longest = lengths[order[end - 1]]
        best.append(min((best[first][0] + (end - first) * longest + CALL_TOKENS, first)
                        for first in range(end)))
    found, end = [], len(order)
    while end:
        first = best[end][1]
        found.append(sorted(order[first:end]))
        end = first
    return found[::-1]


def padded(ids: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Rows of tokens as int64 [rows, most tokens], padded with token 0, and their lengths."""
    counts = np.array([len(tokens) for tokens in ids], np.int64)
    padded = np.zeros((len(ids), int(counts.max())), np.int64)
    for row, tokens in zip(padded, ids, strict=True):
        row[:len(tokens)] = tokens
    return padded, counts


def sizes_of(facts: Mapping[str, Any]) -> dict[str, int]:
    """The sizes of the description of a decoder; ``ArtifactError`` for others."""
    names = ("vocab_size", "capacity", "batch", "block_size")
    sizes = {name: facts.get(name) for name in names}
    if any(not isinstance(size, int) or isinstance(size, bool) or size < 1
           for size in sizes.values()):
        raise ArtifactError("a damaged description of a decoder", got=sizes)
    return sizes  # type: ignore[return-value]
