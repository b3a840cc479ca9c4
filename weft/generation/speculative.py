"""Speculative decoding: a small draft model proposes tokens that the target model verifies.

The tokens have exactly the distribution of the target model (Leviathan et al., ICML 2023, and Chen
et al., 2023); with greedy decoding they are the tokens of the target model.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from weft.generation.request import Request, encode
from weft.generation.sampling import Candidates, RandomStream, Sampling, candidates, penalize
from weft.models.decoder import Decoder, EncoderDecoder, check_count
from weft.support.dataclass import dataclass
from weft.support.errors import OptionError


@dataclass(frozen=True)
class Speculation:
    """``draft`` proposes up to ``tokens`` tokens per step of the target model."""

    draft: Decoder
    tokens: int = 4

    def check(self, target: Decoder) -> None:
        """``OptionError`` if the draft model cannot serve ``target``."""
        check_count("number of draft tokens", self.tokens)
        for name in ("vocab_size", "capacity", "slots"):
            ours, wanted = getattr(self.draft, name), getattr(target, name)
            if ours < wanted or (name == "vocab_size" and ours != wanted):
                raise OptionError(
                    f"{name} of the draft model does not fit the target model", got=ours,
                    expected=wanted if name == "vocab_size" else f"at least {wanted}")
        if isinstance(self.draft, EncoderDecoder) != isinstance(target, EncoderDecoder):
            raise OptionError("only one of the draft model and the target model has an encoder",
                              help="both read the same sources")


@dataclass
class _Proposal:
    """Proposed tokens with the distributions [vocab] that they were drawn from."""

    tokens: list[int]
    distributions: list[np.ndarray]


def decode_speculatively(target: Decoder, requests: Sequence[Request], plan: Speculation) -> None:
    """Finish all requests, at most one per slot of ``target``; request i uses slot i of both."""
    plan.check(target)
    try:
        for decoder in (target, plan.draft):
            for slot, request in enumerate(requests):
                encode(decoder, slot, request.source)
        slots = list(range(len(requests)))
        logits = target.prefill(slots, [r.prompt for r in requests])
        for request, row in zip(requests, logits, strict=True):
            _emit(request, int(_draw(_distribution(row, request, []), request)))
        while active := [slot for slot in slots if not requests[slot].finished]:
            _round(target, requests, active, plan)
    finally:
        for decoder in (target, plan.draft):
            for slot in range(len(requests)):
                decoder.free(slot)


def _round(target: Decoder, requests: Sequence[Request], active: list[int], plan: Speculation
           ) -> None:
    """Propose, verify, and drop what was refused from the caches."""
    proposals = _propose(requests, active, plan)
    fed = [np.array([requests[slot].tokens[-1], *proposals[slot].tokens], np.int64)
           for slot in active]
    for slot, logits in zip(active, target.score(active, fed), strict=True):
        request, proposal = requests[slot], proposals[slot]
        for token in _verify(logits, request, proposal):
            _emit(request, token)
            if request.finished:
                break
        for decoder in (target, plan.draft):
            decoder.truncate(slot, min(decoder.length(slot), len(request.known) - 1))


def _propose(requests: Sequence[Request], active: list[int], plan: Speculation
             ) -> dict[int, _Proposal]:
    draft = plan.draft
    proposals = {slot: _Proposal([], []) for slot in active}
    # The last token of a request comes from the target model in any case.
    wanted = {slot: min(plan.tokens, requests[slot].limit - len(requests[slot].tokens) - 1)
              for slot in active}
    for number in range(max(wanted.values())):
        slots = [slot for slot in active if wanted[slot] > number]
        unread = [np.append(requests[slot].known, proposals[slot].tokens)[draft.length(slot):]
                  .astype(np.int64) for slot in slots]
        single = all(len(tokens) == 1 for tokens in unread)
        logits = (draft.step(slots, np.concatenate(unread)) if single
                  else draft.prefill(slots, unread))
        for slot, row in zip(slots, logits, strict=True):
            request, proposal = requests[slot], proposals[slot]
            found = _distribution(row, request, proposal.tokens)
            proposal.tokens.append(_draw(found, request))
            proposal.distributions.append(found)
    return proposals


def _verify(logits: np.ndarray, request: Request, proposal: _Proposal) -> list[int]:
    """The accepted tokens and one of the target model, for logits [proposed + 1, vocab]."""
    accepted: list[int] = []
    for row, token, q in zip(logits, proposal.tokens, proposal.distributions, strict=False):
        p = _distribution(row, request, accepted)
        if not _accepts(p, q, token, request.sampling, request.stream):
            rest = np.maximum(p - q, 0.0)
            return [*accepted, _draw(rest, request)]
        accepted.append(token)
    return [*accepted, _draw(_distribution(logits[-1], request, accepted), request)]


def _accepts(p: np.ndarray, q: np.ndarray, token: int, sampling: Sampling, stream: RandomStream
             ) -> bool:
    if sampling.greedy:
        return bool(p[token] > 0)
    return stream.uniform() * q[token] < p[token]


def _distribution(logits: np.ndarray, request: Request, after: Sequence[int]) -> np.ndarray:
    """The probabilities [vocab] of the token after the known tokens and ``after``."""
    sampling = request.sampling
    seen = np.append(request.known, after).astype(np.int64)
    logits = penalize(logits, seen, sampling.repetition_penalty)
    if sampling.greedy:
        chosen = np.zeros(len(logits))
        chosen[logits.argmax()] = 1.0
        return chosen
    return candidates(logits[None], sampling).dense(len(logits))[0]


def _draw(weights: np.ndarray, request: Request) -> int:
    """A token drawn in proportion to ``weights`` [vocab]."""
    if request.sampling.greedy:
        return int(weights.argmax())
    uniform = np.array([request.stream.uniform()])
    return int(Candidates(None, weights[None]).choose(uniform)[0])


def _emit(request: Request, token: int) -> None:
    request.append(token)
    if request.on_token is not None:
        request.on_token(token)
