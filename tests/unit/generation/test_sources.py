"""Sessions of encoder-decoders: which sequences share what the encoder made of a source."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import weft
from tests.unit.generation.tiny_decoder import TinyDecoder, greedy
from tests.unit.generation.tiny_encoder_decoder import TinyEncoderDecoder
from weft.generation import Session, stream
from weft.models import Decoder, EncoderDecoder
from weft.models.paged_encoder_decoder import NONE, SourceTable
from weft.support.errors import InvalidInputError, OptionError

SOURCES = [np.array(source) for source in ([3, 4, 5], [6], [7, 8])]


def wanted(source: np.ndarray, prompt: list[int], count: int) -> list[int]:
    return greedy(TinyDecoder(), [*source.tolist(), *prompt], count)


def test_protocols() -> None:
    assert isinstance(TinyEncoderDecoder(), EncoderDecoder)
    assert isinstance(TinyDecoder(), Decoder)
    assert not isinstance(TinyDecoder(), EncoderDecoder)


@settings(max_examples=60, deadline=None)
@given(requests=st.lists(st.tuples(st.integers(0, 2), st.lists(st.integers(0, 3), min_size=1,
                                                               max_size=4),
                                   st.integers(1, 6), st.integers(0, 4)), min_size=1, max_size=8),
       slots=st.integers(1, 3), share=st.booleans())
def test_tokens_are_those_of_single_runs(
    requests: list[tuple[int, list[int], int, int]], slots: int, share: bool,
) -> None:
    session = Session(TinyEncoderDecoder(slots), share_prefixes=share)
    made = []
    for source, prompt, count, delay in requests:
        for _ in range(delay):
            session.step()
        made.append(session.submit(prompt, source=SOURCES[source], max_new_tokens=count))
    session.run()
    for request, (source, prompt, count, _) in zip(made, requests, strict=True):
        assert request.tokens == wanted(SOURCES[source], prompt, count)


@pytest.mark.parametrize("running", [True, False])
def test_a_source_is_encoded_once(running: bool) -> None:
    decoder = TinyEncoderDecoder()
    session = Session(decoder)
    for prompt in ([1], [1, 2], [5]):
        session.submit(prompt, source=SOURCES[0], max_new_tokens=3)
        if not running:
            session.run()
    session.run()
    assert decoder.encoded == [(3, 4, 5)]


@pytest.mark.parametrize(("ids", "source", "expected"), [
    (None, [3, 4, 5], [(0, [1])]),
    (None, SOURCES, [(0, [1]), (1, [1]), (2, [1])]),
    (None, np.array([[3, 4, 5]]), [(0, [1])]),
    ([9, 2], SOURCES[:2], [(0, [9, 2]), (1, [9, 2])]),
    ([[9], [2]], [3, 4, 5], [(0, [9]), (0, [2])]),
    ([[9], [2]], SOURCES[:2], [(0, [9]), (1, [2])]),
])
def test_prompts_and_sources_pair_up(ids: Any, source: Any, expected: list[tuple[int, list[int]]]
                                     ) -> None:
    found = weft.generate(TinyEncoderDecoder(), ids, source=source, max_new_tokens=4)
    found = found if isinstance(found, list) else [found]
    assert [g.tokens.tolist() for g in found] == [
        wanted(SOURCES[number], prompt, 4) for number, prompt in expected]


def test_beams_drafts_and_streams() -> None:
    source = SOURCES[0]
    tokens = wanted(source, [1], 5)
    assert list(stream(TinyEncoderDecoder(), source=source, max_new_tokens=5)) == tokens
    drafted = weft.generate(TinyEncoderDecoder(), source=source, max_new_tokens=5,
                            assistant_model=TinyEncoderDecoder())
    assert drafted.tokens.tolist() == tokens
    with pytest.raises(OptionError, match="only one of the draft model and the target model"):
        weft.generate(TinyEncoderDecoder(), source=source, max_new_tokens=5,
                      assistant_model=TinyDecoder())
    beams = weft.generate(TinyEncoderDecoder(), source=source, max_new_tokens=5, num_beams=3)
    alone = weft.generate(TinyDecoder(), [*source.tolist(), 1], max_new_tokens=5, num_beams=3)
    assert beams.tokens.tolist() == alone.tokens.tolist()


def test_wrong_sources_are_refused() -> None:
    decoder = TinyEncoderDecoder()
    for ids, source, message in (
        (None, None, "an encoder-decoder needs a source"),
        (None, [[3], [11]], "outside the vocabulary"),
        ([[1], [2]], SOURCES, "the numbers of prompts and of sources differ"),
        (None, 5, "a source is an array or a sequence"),
    ):
        with pytest.raises(InvalidInputError, match=message):
            weft.generate(decoder, ids, source=source, max_new_tokens=2)
    assert not decoder.encoded
    with pytest.raises(InvalidInputError, match="this decoder has no encoder"):
        weft.generate(TinyDecoder(), [1], source=[3], max_new_tokens=2)
    with pytest.raises(InvalidInputError, match="there is no prompt"):
        weft.generate(TinyDecoder(), max_new_tokens=2)
    with pytest.raises(InvalidInputError, match="a stream has one prompt"):
        next(stream(decoder, source=SOURCES, max_new_tokens=2))


@settings(max_examples=100, deadline=None)
@given(actions=st.lists(st.tuples(st.sampled_from(["allocate", "share", "release"]),
                                  st.integers(0, 3), st.integers(0, 3)), max_size=30))
def test_source_numbers_are_never_shared_by_accident(actions: list[tuple[str, int, int]]) -> None:
    table, lengths = SourceTable(4), dict[int, int]()
    for count, (kind, slot, other) in enumerate(actions):
        if kind == "allocate":
            table.allocate(slot, count)
            lengths[slot] = count
        elif kind == "share":
            table.share(slot, other)
            lengths.pop(other, None) if slot not in lengths else lengths.update(
                {other: lengths[slot]})
        else:
            table.release(slot)
            lengths.pop(slot, None)
        for known in range(4):
            number = int(table.of[known])
            assert (number == NONE) == (known not in lengths)
            assert number == NONE or table.lengths[number] == lengths[known]
