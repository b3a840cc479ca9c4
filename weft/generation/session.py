"""``Session``: continuous batching. Requests join and leave between the steps of one decoder.

Iteration-level scheduling as in Orca (Yu et al., OSDI 2022) and vLLM: a step reads a chunk of each
new prompt and one token of each other sequence.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from weft.generation.constraint import Constraint, constrained
from weft.generation.request import OnToken, Request, new_request
from weft.generation.sampling import GREEDY, RandomStream, Sampling, choose_tokens
from weft.generation.slots import Cached, SlotTable, shared_prefix
from weft.generation.stopping import FinishReason, Stopping
from weft.models.decoder import Decoder, check_count
from weft.support.deprecation import renamed_arguments


class Session:
    """Decodes many requests with one ``Decoder``, which it owns while requests are unfinished.

        session = Session(decoder)
        request = session.submit([1, 2, 3], max_new_tokens=20)
        session.run()
        request.tokens

    A request waits until a slot of the decoder is idle, first come, first served.
    ``share_prefixes`` copies the caches of equal beginnings instead of computing them again;
    ``prefill_chunk`` is the largest number of tokens of a prompt that one step reads, so that a
    long prompt does not hold up the others. A call that raises leaves the session usable. One
    thread at a time may use a session.
    """

    def __init__(self, decoder: Decoder, *, share_prefixes: bool = True,
                 prefill_chunk: int | None = None) -> None:
        if prefill_chunk is not None:
            check_count("prefill_chunk", prefill_chunk)
        self.decoder = decoder
        self._share = share_prefixes
        self._chunk = prefill_chunk or decoder.capacity
        self._table = SlotTable(decoder, share_prefixes=share_prefixes)
        self._waiting: deque[Request] = deque()
        self._running: dict[Request, int] = {}
        self._unreported: deque[tuple[Request, int]] = deque()

    @property
    def waiting(self) -> int:
        """Number of requests that wait for a slot."""
        return len(self._waiting)

    @property
    def running(self) -> int:
        """Number of requests that have a slot."""
        return len(self._running)

    @renamed_arguments(eos="eos_token_id")
    def submit(
        self, ids: Sequence[int] | np.ndarray, *, max_new_tokens: int | None = None,
        max_length: int | None = None, eos_token_id: int | None = None,
        stop_tokens: Iterable[int] = (), stop_sequences: Iterable[Sequence[int]] = (),
        sampling: Sampling = GREEDY, key: int = 0, on_token: OnToken | None = None,
        source: Any = None, constraint: Constraint | None = None,
    ) -> Request:
        """Add a request; it starts at the next ``step``. ``on_token`` is called with each token.

        ``source`` is what the encoder of an encoder-decoder reads; requests with the same array as
        source share what the encoder makes of it.

        Raises ``InvalidInputError`` and ``OptionError`` for requests that cannot be served.
        """
        stopping = Stopping.make(
            self.decoder.vocab_size, max_new_tokens=max_new_tokens, max_length=max_length,
            eos_token_id=eos_token_id, stop_tokens=stop_tokens, stop_sequences=stop_sequences)
        return self.add(new_request(self.decoder, ids, sampling=sampling, stopping=stopping,
                                    stream=RandomStream(key), on_token=on_token,
                                    source=source, constraint=constraint))

    def add(self, request: Request) -> Request:
        """Add a request that ``new_request`` made."""
        self._waiting.append(request)
        return request

    def cancel(self, request: Request) -> None:
        """End a request now, with the tokens that it has."""
        if request in self._running:
            self._finish(request, "cancelled")
        elif request in self._waiting:
            self._waiting.remove(request)
            request.finish_reason = "cancelled"

    def adopt(self, slot: int, tokens: np.ndarray) -> None:
        """Start prompts from what the decoder holds already: ``tokens`` in an idle slot."""
        self._table.adopt(slot, tokens)

    def run(self) -> None:
        """Step until all requests have finished."""
        while self._waiting or self._running or self._unreported:
            self.step()

    def stream(self) -> Iterator[tuple[Request, int]]:
        """Step until all requests have finished; gives each token as it is generated."""
        while self._waiting or self._running:
            yield from self.step()

    def clear(self) -> None:
        """Cancel all requests and empty the caches."""
        for request in (*self._waiting, *self._running):
            self.cancel(request)
        self._table.clear()

    def step(self) -> list[tuple[Request, int]]:
        """One iteration; the new tokens, each with its request."""
        try:
            self._admit()
            reading = [r for r in self._running if not r.tokens]
            events = self._decode([r for r in self._running if r.tokens])
            events += self._prefill(reading)
        except BaseException:
            self._restore()
            raise
        for request, _ in events:
            if request.finished:
                self._release(request)
        self._unreported.extend(events)
        while self._unreported:  # a callback that raises leaves the others for the next step
            request, token = self._unreported.popleft()
            if request.on_token is not None:
                request.on_token(token)
        return events

    def _admit(self) -> None:
        """Give idle slots to waiting requests."""
        while self._waiting and len(self._table):
            request = self._waiting[0]
            prompt, source = request.prompt, request.source
            cached = [(slot, self._cached(r, slot)) for r, slot in self._running.items()]
            start = self._table.best_start(Cached(prompt, source), cached)
            if self._share and any(shared_prefix(prompt[:-1], r.prompt) > start.length
                                   for r in self._running if not r.tokens and r.source is source):
                return  # that request is about to compute a longer prefix of this one
            slot = self._table.acquire(start, source)
            self._running[self._waiting.popleft()] = slot

    def _prefill(self, requests: list[Request]) -> list[tuple[Request, int]]:
        if not requests:
            return []
        slots = [self._running[r] for r in requests]
        read = [self.decoder.length(slot) for slot in slots]
        chunks = [r.prompt[n:n + self._chunk] for r, n in zip(requests, read, strict=True)]
        logits = self.decoder.prefill(slots, chunks)
        complete = [row for row, r in enumerate(requests)
                    if read[row] + len(chunks[row]) == len(r.prompt)]
        if not complete:
            return []
        return _choose([requests[row] for row in complete], logits[complete])

    def _decode(self, requests: list[Request]) -> list[tuple[Request, int]]:
        if not requests:
            return []
        last = np.array([r.tokens[-1] for r in requests], np.int64)
        return _choose(requests, self.decoder.step([self._running[r] for r in requests], last))

    def _finish(self, request: Request, reason: FinishReason) -> None:
        request.finish_reason = reason
        self._release(request)

    def _release(self, request: Request) -> None:
        slot = self._running.pop(request)
        self._table.release(slot, self._cached(request, slot))

    def _cached(self, request: Request, slot: int) -> Cached:
        return Cached(request.known[:self.decoder.length(slot)], request.source)

    def _restore(self) -> None:
        """After an error: caches hold at most the known tokens but the last, and no more."""
        for request, slot in list(self._running.items()):
            most = len(request.known) - 1
            if self.decoder.length(slot) > most:
                self.decoder.truncate(slot, most)
            if request.finished:
                self._release(request)


def _choose(requests: list[Request], logits: np.ndarray) -> list[tuple[Request, int]]:
    logits = constrained(logits, [r.constraint for r in requests])
    chosen = choose_tokens(logits, [r.sampling for r in requests], [r.stream for r in requests],
                           [r.known for r in requests])
    events = [(request, int(token)) for request, token in zip(requests, chosen, strict=True)]
    for request, token in events:
        request.append(token)
    return events
