"""Text from tokens, stop strings, and continuous batching of the requests of an event loop."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.generation.tiny_decoder import TinyDecoder, greedy
from weft.generation import Sampling, Stopping
from weft.generation.sampling import GREEDY, RandomStream
from weft.serving import Limits, RefusedError, TextScheduler
from weft.serving.observer import Observer
from weft.serving.text_model import StopStrings, TextStream
from weft.support.errors import InvalidInputError


class Bytes:
    """Tokens are the bytes of UTF-8."""

    def decode(self, tokens) -> str:
        return bytes(tokens).decode("utf-8", "replace")


@given(st.text(max_size=20))
def test_parts_of_a_text_are_whole_characters(text):
    stream = TextStream(Bytes())
    parts = [stream.feed(byte) for byte in text.encode("utf-8", "replace")]
    whole = "".join(parts) + stream.finish()
    assert whole == text.encode("utf-8", "replace").decode()
    assert all("\ufffd" not in part for part in parts if "\ufffd" not in text)


def test_bytes_that_are_no_text_are_not_held_back():
    stream = TextStream(Bytes())
    parts = [stream.feed(0xc3) for _ in range(20)]
    assert sum(map(len, parts)) == 16
    assert len("".join(parts) + stream.finish()) == 20


def test_an_incomplete_character_at_the_end_is_shown():
    stream = TextStream(Bytes())
    assert [stream.feed(byte) for byte in "aé".encode()[:2]] == ["a", ""]
    assert stream.finish() == "\ufffd"


@given(st.lists(st.text("ab", max_size=3), max_size=8),
       st.lists(st.text("ab", min_size=1, max_size=3), max_size=3))
def test_a_stop_string_ends_the_text_however_it_is_cut(parts, strings):
    stop = StopStrings(strings)
    found = "".join(map(stop.feed, parts)) + stop.finish()
    whole = "".join(parts)
    if not stop.found:
        assert found == whole
        assert not any(s in whole for s in strings)
    else:
        assert whole.startswith(found)
        assert any(whole[len(found):].startswith(s) for s in strings)
        assert not any(s in found for s in strings)


def stopping(count: int, **options) -> Stopping:
    return Stopping(max_new_tokens=count, **options)


def begin(scheduler, prompt, count, sampling=GREEDY, seed=0):
    return scheduler.submit(prompt, sampling=sampling, stopping=stopping(count),
                            stream=RandomStream(seed))


async def all_tokens(job) -> list[int]:
    return [token async for token in job.tokens()]


def test_requests_together_give_what_each_gives_alone():
    prompts = [[1, 2, 3], [4], [5, 6], [7, 8, 9, 10], [2, 2], [3]]

    async def run():
        scheduler = TextScheduler(TinyDecoder(slots=2), prefill_chunk=2)
        jobs = [begin(scheduler, prompt, 6) for prompt in prompts]
        assert scheduler.waiting == 4
        found = await asyncio.gather(*map(all_tokens, jobs))
        await scheduler.close()
        return found, [job.finish_reason for job in jobs]

    found, reasons = asyncio.run(run())
    assert found == [greedy(TinyDecoder(), prompt, 6) for prompt in prompts]
    assert set(reasons) == {"length"}


def test_a_seed_gives_the_same_tokens_beside_any_others():
    async def run(others: int):
        scheduler = TextScheduler(TinyDecoder())
        jobs = [begin(scheduler, [3], 9, Sampling(temperature=1.0), seed) for seed in range(others)]
        job = begin(scheduler, [1, 2], 8, Sampling(temperature=1.0), 7)
        found = await asyncio.gather(*map(all_tokens, [job, *jobs]))
        await scheduler.close()
        return found[0]

    assert asyncio.run(run(0)) == asyncio.run(run(5))


def test_a_request_joins_while_another_runs_and_a_cancelled_one_gives_its_slot_back():
    async def run():
        scheduler = TextScheduler(TinyDecoder(slots=1, capacity=4096))
        long = begin(scheduler, [1], 4000)
        stream = long.tokens()
        await anext(stream)
        second = begin(scheduler, [5, 6], 4)
        long.cancel()
        long.cancel()  # a second time does nothing
        found = await all_tokens(second)
        rest = [token async for token in stream]
        await scheduler.close()
        return found, len(rest), long.finish_reason

    found, rest, reason = asyncio.run(run())
    assert found == greedy(TinyDecoder(), [5, 6], 4)
    assert rest < 3999
    assert reason == "cancelled"


def test_an_error_of_the_decoder_reaches_its_requests_and_later_ones_are_served():
    async def run():
        scheduler = TextScheduler(TinyDecoder(fail_after=3))
        with pytest.raises(RuntimeError, match="on fire"):
            await all_tokens(begin(scheduler, [1], 20))
        later = await all_tokens(begin(scheduler, [4, 5], 3))
        await scheduler.close()
        return later

    assert asyncio.run(run()) == greedy(TinyDecoder(), [4, 5], 3)


def test_a_full_queue_and_a_stopping_server_refuse():
    async def run():
        scheduler = TextScheduler(TinyDecoder(slots=1), limits=Limits(max_queue=2))
        jobs = [begin(scheduler, [1], 5) for _ in range(3)]
        with pytest.raises(RefusedError) as full:
            begin(scheduler, [1], 5)
        done = asyncio.create_task(scheduler.close())
        await asyncio.sleep(0)
        with pytest.raises(RefusedError) as stopped:
            begin(scheduler, [1], 5)
        found = await asyncio.gather(*map(all_tokens, jobs))  # what was accepted is answered
        await done
        return full.value.status, stopped.value.status, [len(tokens) for tokens in found]

    assert asyncio.run(run()) == (429, 503, [5, 5, 5])


def test_requests_that_cannot_be_served_are_refused_at_once():
    async def run():
        scheduler = TextScheduler(TinyDecoder(capacity=8))
        for prompt in ([], [99], [1] * 6):
            with pytest.raises(InvalidInputError):
                begin(scheduler, prompt, 5)
        assert scheduler.waiting == 0

    asyncio.run(run())


def test_tokens_are_reported():
    class Notes(Observer):
        seen = ()

        def tokens(self, model, prompt, generated):
            self.seen += ((model, prompt, generated),)

    async def run():
        notes = Notes()
        scheduler = TextScheduler(TinyDecoder(), name="m", observer=notes)
        await all_tokens(begin(scheduler, [1, 2], 3))
        await scheduler.close()
        return notes.seen

    assert asyncio.run(run()) == (("m", 2, 3),)
