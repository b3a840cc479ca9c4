"""``CompiledDecoder``: a compiled decoder program with its caches, as a ``Decoder``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.compiler.api import compile
from weft.compiler.dynamic_model import DynamicModel
from weft.ir.module import IRModule
from weft.models.architecture import Architecture, Weights
from weft.models.block_table import BlockTable
from weft.models.decoder import check_append, check_copy, check_slot, check_truncate
from weft.models.decoder_program import (
    CacheShape,
    SourceShape,
    cache_outputs,
    decoder_program,
)
from weft.support.errors import OptionError, TargetError

BLOCK_SIZE = 64


class CompiledDecoder:
    """A decoder-only language model, compiled for this machine, with paged key and value caches.

    ``batch`` sequences of up to ``capacity`` tokens can be decoded at the same time. Sequences with
    equal beginnings share blocks of ``block_size`` tokens. ``dtype`` is that of weights,
    activations and caches; logits are float32. ``knobs`` are those of ``weft.compile``.
    """

    def __init__(self, architecture: Architecture, weights: Weights, *, capacity: int = 1024,
                 batch: int = 1, dtype: str = "float32", block_size: int = BLOCK_SIZE,
                 **knobs: Any) -> None:
        self._build(architecture, weights, None, capacity=capacity, batch=batch, dtype=dtype,
                    block_size=block_size, **knobs)

    def _build(self, architecture: Architecture, weights: Weights, sources: SourceShape | None, *,
               capacity: int, batch: int, dtype: str, block_size: int, **knobs: Any) -> None:
        _check_sizes(architecture, capacity, batch, block_size)
        block_size = min(block_size, capacity)
        self.architecture = architecture
        self._capacity = capacity
        self._blocks = BlockTable(batch, -(-capacity // block_size), block_size)
        shape = CacheShape(self._blocks.blocks, block_size, self._blocks.rows.shape[1], dtype)
        program = decoder_program(architecture, weights, shape, dtype, sources)
        # The caches are state of the program, which it updates in place.
        self.executable = compiled(program, state=cache_outputs(architecture), **knobs)
        self._caches = list(self.executable.state.values())

    @property
    def vocab_size(self) -> int:
        return self.architecture.vocab_size

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
        for rows, tokens in _equal_lengths(ids):
            batch, count = tokens.shape
            last = np.arange(1, batch + 1, dtype=np.int64) * count - 1
            logits[rows] = self._run([slots[row] for row in rows], tokens, last)
        return logits

    def score(self, slots: Sequence[int], ids: Sequence[np.ndarray]) -> list[np.ndarray]:
        self._check_append(slots, ids)
        found: dict[int, np.ndarray] = {}
        for rows, tokens in _equal_lengths(ids):
            every = np.arange(tokens.size, dtype=np.int64)
            logits = self._run([slots[row] for row in rows], tokens, every)
            found.update(zip(rows, logits.reshape(*tokens.shape, -1), strict=True))
        return [found[row] for row in range(len(slots))]

    def step(self, slots: Sequence[int], ids: np.ndarray) -> np.ndarray:
        tokens = ids.reshape(-1, 1)
        self._check_append(slots, list(tokens))
        return self._run(slots, tokens, np.arange(len(slots), dtype=np.int64))

    def copy(self, source: int, target: int, length: int) -> None:
        check_copy(self, source, target, length)
        self._blocks.share(source, target, length)

    def truncate(self, slot: int, length: int) -> None:
        check_truncate(self, slot, length)
        self._blocks.truncate(slot, length)

    def free(self, slot: int) -> None:
        self.truncate(slot, 0)

    def _check_append(self, slots: Sequence[int], ids: Sequence[np.ndarray]) -> None:
        check_append(self, slots, ids)

    def _run(self, slots: Sequence[int], ids: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Append ``ids`` [slots, tokens], and return the logits of the tokens ``rows``."""
        count, blocks = ids.shape[1], self._blocks
        index = np.array(slots, np.int64)
        for slot in slots:
            self._copy_blocks(blocks.reserve(slot, count))
        start = blocks.lengths[index]
        lengths = start + count
        positions = start[:, None] + np.arange(count)
        ids = np.ascontiguousarray(ids, np.int64)
        logits = self.executable(ids, positions, start, lengths, rows, blocks.rows[index],
                                 *self._cross_inputs(index))
        blocks.lengths[index] = lengths
        return logits

    def _cross_inputs(self, index: np.ndarray) -> tuple[np.ndarray, ...]:
        """What the program reads of the sources of the slots ``index``; nothing without encoder."""
        del index
        return ()

    def _copy_blocks(self, copies: Sequence[tuple[int, int]]) -> None:
        for source, target in copies:
            for cache in self._caches:
                cache[target] = cache[source]


def compiled(program: IRModule, **knobs: Any) -> DynamicModel:
    """``program`` compiled for this machine; ``TargetError`` for another one."""
    made = compile(program, **knobs)
    if not isinstance(made, DynamicModel):
        raise TargetError("a decoder runs on the machine that compiles it",
                          got=made.options.target)
    return made


def _equal_lengths(ids: Sequence[np.ndarray]) -> list[tuple[list[int], np.ndarray]]:
    """Rows of equal length with their tokens, int64 [rows, tokens]."""
    groups: dict[int, list[int]] = {}
    for row, tokens in enumerate(ids):
        groups.setdefault(len(tokens), []).append(row)
    return [(rows, np.stack([ids[row] for row in rows]).astype(np.int64, copy=False))
            for rows in groups.values()]


def _check_sizes(architecture: Architecture, capacity: int, batch: int, block_size: int) -> None:
    for name, value in (("capacity", capacity), ("batch", batch), ("block_size", block_size)):
        if value < 1:
            raise OptionError(f"invalid {name}", expected="an integer >= 1", got=value)
    most = architecture.max_positions
    if most is not None and capacity > most:
        raise OptionError("the capacity exceeds the positions of the model",
                          expected=f"at most {most}", got=capacity)
