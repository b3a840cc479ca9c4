"""Beam search with the scores and the end conditions of transformers' ``generate``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field

import numpy as np

from weft.generation.request import Generation, Request, encode
from weft.generation.sampling import penalize
from weft.generation.stopping import FinishReason
from weft.models.decoder import Decoder
from weft.support.dataclass import dataclass
from weft.support.errors import OptionError


@dataclass(frozen=True, kw_only=True)
class BeamSearch:
    """``num_beams`` sequences are kept per step; scores are divided by length^``length_penalty``.

    With ``early_stopping`` the search ends as soon as ``num_beams`` sequences have ended; without,
    it goes on while a running sequence may still get a better score at its present length.
    """

    num_beams: int
    length_penalty: float = 1.0
    early_stopping: bool = False

    def check(self, decoder: Decoder) -> None:
        """``OptionError`` if the decoder cannot hold or extend that many sequences."""
        for limit, what in ((decoder.vocab_size, "tokens in the vocabulary"),
                            (decoder.slots, "slots of the decoder")):
            count = self.num_beams
            if not isinstance(count, (int, np.integer)) or not 1 <= count <= limit:
                raise OptionError("invalid number of beams", expected=f"1 to {limit} ({what})",
                                  got=count)


@dataclass(frozen=True)
class _Beam:
    """A running sequence: its new tokens, the sum of their log probabilities, and its slot."""

    tokens: tuple[int, ...]
    score: float
    slot: int


@dataclass
class _Finished:
    """The best sequences that have ended, best first."""

    most: int
    found: list[tuple[float, tuple[int, ...], FinishReason]] = field(default_factory=list)

    def add(self, score: float, tokens: tuple[int, ...], reason: FinishReason) -> None:
        self.found.append((score, tokens, reason))
        self.found.sort(key=lambda f: -f[0])
        del self.found[self.most:]

    @property
    def full(self) -> bool:
        return len(self.found) == self.most

    @property
    def worst(self) -> float:
        return self.found[-1][0]


def beam_search(decoder: Decoder, request: Request, search: BeamSearch) -> list[Generation]:
    """The ``search.num_beams`` best continuations of a request, best first.

    Uses the first ``search.num_beams`` slots of the decoder, whose caches are lost.
    """
    search.check(decoder)
    slots = range(search.num_beams)
    try:
        for slot in slots:
            decoder.free(slot)
        encode(decoder, 0, request.source)
        logits = decoder.prefill([0], [request.prompt])
        finished = _Finished(search.num_beams)
        beams = _expand([_Beam((), 0.0, 0)], logits, request, search, finished)
        while beams and not _done(beams, finished, search):
            beams = _in_slots(decoder, beams, slots)
            last = np.array([beam.tokens[-1] for beam in beams], np.int64)
            logits = decoder.step([beam.slot for beam in beams], last)
            beams = _expand(beams, logits, request, search, finished)
    finally:
        for slot in slots:
            decoder.free(slot)
    return [Generation(request.prompt, np.array(tokens, np.int64), reason, score)
            for score, tokens, reason in finished.found]


def _expand(beams: Sequence[_Beam], logits: np.ndarray, request: Request, search: BeamSearch,
            finished: _Finished) -> list[_Beam]:
    """The best continuations; those that end go to ``finished``. Slots are those of the parents."""
    scores = np.stack([_log_probabilities(row, beam, request) + beam.score
                       for row, beam in zip(logits, beams, strict=True)])
    vocab, stopping = scores.shape[1], request.stopping
    enders = (len(stopping.stop_tokens) + len(stopping.stop_sequences)
              + (stopping.eos_token_id is not None))
    count = min(scores.size, max(2, 1 + enders) * search.num_beams)
    flat = scores.ravel()
    best = np.argpartition(flat, -count)[-count:]
    best = best[np.lexsort((best, -flat[best]))]
    running: list[_Beam] = []
    for rank, index in enumerate(best):
        parent = beams[int(index) // vocab]
        tokens = (*parent.tokens, int(index) % vocab)
        reason = stopping.reason(tokens, request.limit)
        if reason is None:
            running.append(_Beam(tokens, float(flat[index]), parent.slot))
        elif rank < search.num_beams:
            finished.add(float(flat[index]) / len(tokens) ** search.length_penalty, tokens, reason)
    return running[:search.num_beams]


def _log_probabilities(logits: np.ndarray, beam: _Beam, request: Request) -> np.ndarray:
    shifted = logits.astype(np.float64)
    shifted -= shifted.max()
    found = shifted - np.log(np.exp(shifted).sum())
    seen = np.concatenate([request.prompt, np.array(beam.tokens, np.int64)])
    return penalize(found, seen, request.sampling.repetition_penalty)


def _done(beams: Sequence[_Beam], finished: _Finished, search: BeamSearch) -> bool:
    if not finished.full:
        return False
    if search.early_stopping:
        return True
    reachable = beams[0].score / len(beams[0].tokens) ** search.length_penalty
    return reachable <= finished.worst


def _in_slots(decoder: Decoder, beams: Sequence[_Beam], slots: Sequence[int]) -> list[_Beam]:
    """The beams, each with a slot of its own that holds the cache of its parent.

    The first child of a parent keeps the slot; the others get copies in slots without children.
    """
    unused = [slot for slot in slots if slot not in {beam.slot for beam in beams}]
    taken: set[int] = set()
    placed = []
    for beam in beams:
        slot = beam.slot
        if slot in taken:
            slot = unused.pop()
            decoder.copy(beam.slot, slot, decoder.length(beam.slot))
        taken.add(slot)
        placed.append(_Beam(beam.tokens, beam.score, slot))
    return placed
