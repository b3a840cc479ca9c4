"""Continuous batching: the tokens of requests are those of single runs, whatever runs beside."""

from __future__ import annotations

import functools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.generation.tiny_decoder import TinyDecoder, greedy
from weft.generation import Sampling, Session
from weft.support.errors import InvalidInputError, OptionError, WeftError

PROMPT = st.lists(st.integers(0, 10), min_size=1, max_size=9)


@settings(max_examples=60, deadline=None)
@given(requests=st.lists(st.tuples(PROMPT, st.integers(1, 8), st.integers(0, 5), st.booleans()),
                         min_size=1, max_size=8),
       slots=st.integers(1, 4), chunk=st.none() | st.integers(1, 4), share=st.booleans())
def test_tokens_are_those_of_single_runs(
    requests: list[tuple[list[int], int, int, bool]], slots: int, chunk: int | None, share: bool,
) -> None:
    """Requests join at different steps, wait for slots, and share prefixes of each other."""
    session = Session(TinyDecoder(slots=slots), prefill_chunk=chunk, share_prefixes=share)
    made = []
    for key, (prompt, count, delay, random) in enumerate(requests):
        for _ in range(delay):
            session.step()
        sampling = Sampling(temperature=1.2) if random else Sampling()
        made.append(session.submit(prompt, max_new_tokens=count, sampling=sampling, key=key))
    session.run()
    for key, (request, (prompt, count, _, random)) in enumerate(zip(made, requests, strict=True)):
        if random:
            alone = Session(TinyDecoder(slots=1))
            expected = alone.submit(prompt, max_new_tokens=count, key=key,
                                    sampling=Sampling(temperature=1.2))
            alone.run()
            assert request.tokens == expected.tokens
        else:
            assert request.tokens == greedy(TinyDecoder(), prompt, count)
        assert request.finish_reason == "length"


def test_requests_join_and_leave_between_steps() -> None:
    decoder = TinyDecoder(slots=2)
    session = Session(decoder)
    first = session.submit([1, 2], max_new_tokens=6)
    session.step()
    second = session.submit([3], max_new_tokens=2)
    third = session.submit([4, 5, 6], max_new_tokens=3)
    session.step()
    assert (session.running, session.waiting) == (2, 1)
    session.step()  # the second request ends here
    session.step()
    assert second.finished
    assert third.tokens
    assert session.waiting == 0
    session.run()
    assert (len(first.tokens), len(third.tokens)) == (6, 3)
    assert ("step", 2) in decoder.calls


def test_a_shared_prefix_is_copied_from_a_running_request() -> None:
    decoder = TinyDecoder()
    session = Session(decoder)
    prefix = [1, 2, 3, 4, 5, 6]
    requests = [session.submit([*prefix, last], max_new_tokens=3) for last in (7, 8, 9)]
    session.run()
    # 7 tokens for the first request; the others copy 6 and read one.
    assert sum(n for kind, n in decoder.calls if kind == "prefill") == 7 + 1 + 1
    assert sorted(length for *_, length in decoder.copies) == [6, 6]
    for request, last in zip(requests, (7, 8, 9), strict=True):
        assert request.tokens == greedy(decoder, [*prefix, last], 3)


@pytest.mark.parametrize("running", [True, False])
def test_an_equal_prompt_reads_its_last_token_again(running: bool) -> None:
    decoder = TinyDecoder()
    session = Session(decoder)
    session.submit([1, 2, 3], max_new_tokens=9 if running else 1)
    session.step()
    decoder.calls.clear()
    second = session.submit([1, 2, 3], max_new_tokens=2)
    session.run()
    assert [n for kind, n in decoder.calls if kind == "prefill"] == [1]
    assert second.tokens == greedy(decoder, [1, 2, 3], 2)


def test_an_idle_slot_continues_the_conversation_that_it_holds() -> None:
    decoder = TinyDecoder()
    session = Session(decoder)
    first = session.submit([1, 2, 3], max_new_tokens=4)
    session.run()
    decoder.calls.clear()
    second = session.submit([1, 2, 3, *first.tokens, 5], max_new_tokens=2)
    session.run()
    assert decoder.calls[0] == ("prefill", 2)  # the last token and the new one
    assert not decoder.copies
    assert second.tokens == greedy(decoder, [1, 2, 3, *first.tokens, 5], 2)


def test_a_long_prompt_does_not_hold_up_the_others() -> None:
    session = Session(TinyDecoder(), prefill_chunk=2)
    short = session.submit([1], max_new_tokens=8)
    session.step()
    session.submit([2] * 10, max_new_tokens=1)
    for _ in range(4):
        assert [request for request, _ in session.step()] == [short]


def test_cancelled_requests_free_their_slots() -> None:
    session = Session(TinyDecoder(slots=1))
    running = session.submit([1], max_new_tokens=20)
    waiting = session.submit([2], max_new_tokens=2)
    last = session.submit([3], max_new_tokens=2)
    session.step()
    session.cancel(running)
    session.cancel(waiting)
    session.run()
    assert running.finish_reason == waiting.finish_reason == "cancelled"
    assert (len(running.tokens), len(waiting.tokens)) == (1, 0)
    assert last.tokens == greedy(TinyDecoder(), [3], 2)


@pytest.mark.parametrize("fail_after", range(1, 6))
def test_a_session_continues_after_an_error(fail_after: int) -> None:
    decoder = TinyDecoder(slots=2, fail_after=fail_after)
    session = Session(decoder)
    requests = [session.submit([1, 2, 3], max_new_tokens=2), session.submit([4], max_new_tokens=5),
                session.submit([5, 6], max_new_tokens=3)]
    with pytest.raises(RuntimeError):
        session.run()
    session.run()
    for request, prompt, count in zip(requests, ([1, 2, 3], [4], [5, 6]), (2, 5, 3), strict=True):
        assert request.tokens == greedy(decoder, prompt, count)


@pytest.mark.parametrize("fail_at", range(1, 9))
def test_an_error_of_a_callback_loses_no_token(fail_at: int) -> None:
    session = Session(TinyDecoder())
    seen: dict[int, list[int]] = {1: [], 2: []}

    def callback(name: int, token: int) -> None:
        seen[name].append(token)
        if sum(map(len, seen.values())) == fail_at:
            raise ValueError(token)

    requests = [session.submit([name], max_new_tokens=4, on_token=functools.partial(callback, name))
                for name in seen]
    with pytest.raises(ValueError, match=r"\d"):
        session.run()
    session.run()
    for request in requests:
        name = int(request.prompt[0])
        assert seen[name] == request.tokens == greedy(TinyDecoder(), [name], 4)


@pytest.mark.parametrize(("ids", "options", "message"), [
    ([], {"max_new_tokens": 3}, "the prompt is empty"),
    ([11], {"max_new_tokens": 3}, "a token is outside the vocabulary"),
    ([-1], {"max_new_tokens": 3}, "a token is outside the vocabulary"),
    ([1.5], {"max_new_tokens": 3}, "tokens are a vector of integers"),
    ([[1], [2, 3]], {"max_new_tokens": 3}, "a prompt is a vector of tokens"),
    ([1], {}, "the generation would have no end"),
    ([1], {"max_new_tokens": 0}, "invalid max_new_tokens"),
    ([1], {"max_new_tokens": -4}, "invalid max_new_tokens"),
    ([1], {"max_new_tokens": 2.5}, "invalid max_new_tokens"),
    ([1], {"max_length": "9"}, "invalid max_length"),
    ([1], {"max_new_tokens": 3, "eos_token_id": "a"},
     "a token of eos_token_id is outside the vocabulary"),
    ([1], {"max_new_tokens": 3, "stop_tokens": "ab"}, "stop_tokens are not tokens"),
    ([1], {"max_new_tokens": 3, "stop_tokens": 5}, "stop_tokens are not tokens"),
    ([1], {"max_new_tokens": 3, "stop_sequences": [[1, 2.5]]}, "stop_sequences are not tokens"),
    ([1, 2], {"max_length": 2}, "the prompt is as long as max_length"),
    ([1], {"max_new_tokens": 64}, "do not fit into the cache"),
    ([1] * 65, {"max_new_tokens": 1}, "do not fit into the cache"),
    ([1], {"max_new_tokens": 3, "eos_token_id": 11},
     "a token of eos_token_id is outside the vocabulary"),
    ([1], {"max_new_tokens": 3, "stop_tokens": [-1]}, "a token of stop_tokens is outside"),
    ([1], {"max_new_tokens": 3, "stop_sequences": [[1, 99]]}, "a token of stop_sequences is"),
    ([1], {"max_new_tokens": 3, "stop_sequences": [[]]}, "a stop sequence is empty"),
])
def test_bad_requests_are_refused_and_the_session_continues(
    ids: list[int], options: dict[str, object], message: str,
) -> None:
    session = Session(TinyDecoder())
    other = session.submit([1, 2], max_new_tokens=3)
    session.step()
    with pytest.raises(WeftError, match=message):
        session.submit(ids, **options)
    session.run()
    assert other.tokens == greedy(TinyDecoder(), [1, 2], 3)


def test_other_misuse_is_refused() -> None:
    with pytest.raises(OptionError, match="invalid prefill_chunk"):
        Session(TinyDecoder(), prefill_chunk=0)
    request = Session(TinyDecoder()).submit([1], max_new_tokens=3)
    with pytest.raises(InvalidInputError, match="has not finished"):
        request.result()


def test_a_full_cache_of_a_decoder_is_refused_before_it_changes() -> None:
    decoder = TinyDecoder(capacity=3)
    decoder.prefill([0], [np.array([1, 2])])
    with pytest.raises(InvalidInputError, match="the cache is full"):
        decoder.prefill([1, 0], [np.array([1]), np.array([1, 2])])
    assert (decoder.length(0), decoder.length(1)) == (2, 0)
    with pytest.raises(InvalidInputError, match="a slot is named twice"):
        decoder.step([0, 0], np.array([1, 2]))
    with pytest.raises(InvalidInputError, match="unknown slot"):
        decoder.step([9], np.array([1]))
    with pytest.raises(InvalidInputError, match="outside the cached sequence"):
        decoder.truncate(0, 3)
