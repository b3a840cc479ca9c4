"""``ReplicaDecoder``: a decoder in one of the ``Replicas``, whose end loses no sequence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.models.decoder import check_append, check_copy, check_slot, check_truncate
from weft.serving import replica_worker
from weft.serving.replica_worker import TextSource
from weft.serving.replicas import Replicas
from weft.support.errors import WorkerError

_TRIES = 8  # of a call whose process ends each time, also while it starts


class ReplicaDecoder:
    """Calls the decoder of a process, and knows the tokens that its caches hold.

    If the process ends, the one that follows reads the tokens of all sequences again, and goes on
    with the call.
    """

    def __init__(self, replicas: Replicas, worker: str, source: TextSource) -> None:
        self._replicas, self._worker, self._source = replicas, worker, source
        self._epoch: str | None
        self._epoch, facts = replicas.call_on(worker, replica_worker.open_text, source)
        self.vocab_size, self.capacity, self.slots = facts.vocab_size, facts.capacity, facts.slots
        self.cached_prompts = facts.cached_prompts
        self._tokens = [np.empty(0, np.int64) for _ in range(self.slots)]
        self._tokens[:len(self.cached_prompts)] = self.cached_prompts

    def length(self, slot: int) -> int:
        check_slot(self, slot)
        return len(self._tokens[slot])

    def prefill(self, slots: Sequence[int], ids: Sequence[np.ndarray]) -> np.ndarray:
        return self._append("prefill", slots, ids, ids)

    def score(self, slots: Sequence[int], ids: Sequence[np.ndarray]) -> list[np.ndarray]:
        return self._append("score", slots, ids, ids)

    def step(self, slots: Sequence[int], ids: np.ndarray) -> np.ndarray:
        return self._append("step", slots, [*ids[:, None]], ids)

    def copy(self, source: int, target: int, length: int) -> None:
        check_copy(self, source, target, length)
        self._call("copy", source, target, length)
        self._tokens[target] = self._tokens[source][:length]

    def truncate(self, slot: int, length: int) -> None:
        check_truncate(self, slot, length)
        self._call("truncate", slot, length)
        self._tokens[slot] = self._tokens[slot][:length]

    def free(self, slot: int) -> None:
        check_slot(self, slot)
        self._call("free", slot)
        self._tokens[slot] = self._tokens[slot][:0]

    def _append(self, method: str, slots: Sequence[int], tokens: Sequence[np.ndarray],
                ids: Any) -> Any:
        check_append(self, slots, tokens)
        found = self._call(method, list(slots), ids)
        for slot, more in zip(slots, tokens, strict=True):
            self._tokens[slot] = np.concatenate([self._tokens[slot], more])
        return found

    def _call(self, method: str, *args: Any) -> Any:
        """Call a method of the decoder, in the process that has its caches."""
        for left in reversed(range(_TRIES)):
            try:
                if self._epoch is None:
                    self._refill()
                known, found = self._replicas.call_on(
                    self._worker, replica_worker.call_text, self._source, self._epoch, method, args)
            except WorkerError:
                self._epoch = None
                if not left:
                    raise
            except BaseException:
                self._epoch = None  # what the caches hold now is unknown
                raise
            else:
                if known:
                    return found
                self._epoch = None  # another process, which has no caches
        raise WorkerError("a process ended again and again", where=f"replica {self._worker}")

    def _refill(self) -> None:
        """Let the process read the tokens of all sequences."""
        held = [slot for slot, tokens in enumerate(self._tokens) if len(tokens)]
        self._epoch = self._replicas.call_on(
            self._worker, replica_worker.refill_text, self._source, held,
            [self._tokens[slot] for slot in held])
