"""Compiled decoders against a NumPy reference: prefill, steps, copies, all in one cache."""

from __future__ import annotations

import functools
import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import weft
from tests.unit.models import numpy_decoder
from tests.unit.models.small_decoders import ARCHITECTURES, random_weights
from weft.generation import Session
from weft.models import CompiledDecoder, Decoder
from weft.models.paged_decoder import CALL_TOKENS, batches_of
from weft.support.errors import InvalidInputError, OptionError

CAPACITY = 24


@functools.cache
def decoder_of(name: str) -> CompiledDecoder:
    return CompiledDecoder(ARCHITECTURES[name], random_weights(name), capacity=CAPACITY, batch=3,
                           block_size=4)


@functools.cache
def tokens_of(seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 23, 14)


def expected(name: str, ids: np.ndarray) -> np.ndarray:
    return numpy_decoder.logits(ARCHITECTURES[name], random_weights(name), ids)


def check(found: np.ndarray, wanted: np.ndarray) -> None:
    np.testing.assert_allclose(found, wanted, atol=2e-5 * max(1, abs(wanted).max()))


@pytest.mark.sample(0.2, 1)
@pytest.mark.slow
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_logits_are_those_of_the_reference(name: str) -> None:
    """A part by prefill, tokens by steps, and a slot that continues a copy of the other."""
    decoder, ids = decoder_of(name), tokens_of()
    assert isinstance(decoder, Decoder)
    for slot in range(3):
        decoder.free(slot)
    wanted = expected(name, ids)
    check(decoder.prefill([2], [ids[:6]])[0], wanted[5])
    decoder.copy(2, 0, 5)
    other = np.array([*ids[:5], 7, 8])
    check(decoder.step([2], ids[6:7])[0], wanted[6])
    check(decoder.step([0], other[5:6])[0], expected(name, other)[5])
    both = decoder.step([0, 2], np.array([other[6], ids[7]]))
    check(both[0], expected(name, other)[6])
    check(both[1], wanted[7])
    decoder.truncate(2, 6)
    check(decoder.score([2], [ids[6:12]])[0], wanted[6:12])


@pytest.mark.sample(0.4, 1)
@pytest.mark.slow
@pytest.mark.parametrize("name", ["layer_norm", "rms_norm", "mixture"])
def test_rows_of_different_lengths_are_padded(name: str) -> None:
    """Up to the capacity, after cached tokens, and with a beginning that two slots share."""
    decoder, ids = decoder_of(name), np.random.default_rng(3).integers(0, 23, (3, CAPACITY))
    for slot in range(3):
        decoder.free(slot)
    decoder.prefill([0], [ids[0, :6]])
    decoder.copy(0, 1, 5)
    ids[1, :5] = ids[0, :5]
    wanted = [expected(name, row) for row in ids]
    found = decoder.prefill([2, 0, 1], [ids[2, :20], ids[0, 6:9], ids[1, 5:6]])
    for logits, (row, last) in zip(found, ((2, 19), (0, 8), (1, 5)), strict=True):
        check(logits, wanted[row][last])
    scores = decoder.score([1, 0, 2], [ids[1, 6:], ids[0, 9:10], ids[2, 20:]])
    for logits, (row, span) in zip(scores, ((1, slice(6, None)), (0, slice(9, 10)),
                                            (2, slice(20, None))), strict=True):
        check(logits, wanted[row][span])
    assert [decoder.length(slot) for slot in range(3)] == [10, CAPACITY, CAPACITY]


@given(lengths=st.lists(st.integers(1, 200), max_size=7))
def test_batches_cost_least(lengths: list[int]) -> None:
    def cost(batches: list[list[int]]) -> int:
        return sum(len(b) * max(lengths[row] for row in b) + CALL_TOKENS for b in batches)

    found = batches_of(lengths)
    assert sorted(itertools.chain(*found)) == list(range(len(lengths)))
    order = sorted(range(len(lengths)), key=lambda row: lengths[row])
    for cuts in itertools.product([False, True], repeat=max(len(lengths) - 1, 0)):
        batches: list[list[int]] = [order[:1]] if order else []
        for row, cut in zip(order[1:], cuts, strict=True):
            batches.append([row]) if cut else batches[-1].append(row)
        assert cost(found) <= cost(batches)


@pytest.mark.slow
def test_results_in_16_bits_are_close() -> None:
    decoder = CompiledDecoder(ARCHITECTURES["rms_norm"], random_weights("rms_norm"), capacity=16,
                              dtype="bfloat16")
    ids = tokens_of()[:5]
    wanted = expected("rms_norm", ids)
    np.testing.assert_allclose(decoder.score([0], [ids])[0], wanted, atol=0.1 * abs(wanted).max())


@pytest.mark.slow
def test_a_session_gives_the_tokens_of_the_reference() -> None:
    decoder = decoder_of("rms_norm")
    session = Session(decoder)
    requests = [session.submit(prompt, max_new_tokens=4) for prompt in ([3], [4], [5], [3])]
    session.run()
    for request in requests:
        known = request.known
        wanted = expected("rms_norm", known[:-1]).argmax(-1)
        assert request.tokens == wanted[len(request.prompt) - 1:].tolist()
    session.clear()


@pytest.mark.slow
def test_bad_calls_leave_the_decoder_as_it_was() -> None:
    decoder, ids = decoder_of("rms_norm"), tokens_of()
    decoder.free(1)
    decoder.prefill([1], [ids[:6]])
    for error, call in (
        ("the cache is full", lambda: decoder.prefill([1], [np.zeros(CAPACITY - 5, np.int64)])),
        ("outside the vocabulary", lambda: decoder.step([1], np.array([23]))),
        ("outside the cached sequence", lambda: decoder.truncate(1, 7)),
        ("unknown slot", lambda: decoder.copy(1, 3, 2)),
    ):
        with pytest.raises(InvalidInputError, match=error):
            call()
    check(decoder.step([1], ids[6:7])[0], expected("rms_norm", ids[:7])[6])
    decoder.free(1)


def test_bad_sizes_are_refused() -> None:
    make = functools.partial(CompiledDecoder, ARCHITECTURES["rms_norm"],
                             random_weights("rms_norm"))
    for sizes in ({"capacity": 0}, {"batch": 0}, {"block_size": -1}, {"batch": 1.5}):
        with pytest.raises(OptionError, match=f"invalid {next(iter(sizes))}"):
            make(**sizes)
    with pytest.raises(weft.WeftError, match="lacks the weight"):
        CompiledDecoder(ARCHITECTURES["rms_norm"], random_weights("layer_norm"), capacity=8)
