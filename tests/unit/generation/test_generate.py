"""``weft.generate`` over a small NumPy model: prompts, stops, streams, beams, drafts."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import weft
from tests.unit.generation.tiny_decoder import TinyDecoder, greedy
from weft.generation import Generation, Session, stream
from weft.support.errors import InvalidInputError, OptionError, WeftError


def test_one_prompt_gives_one_generation() -> None:
    decoder = TinyDecoder()
    found = weft.generate(decoder, [1, 2, 3], max_new_tokens=5)
    assert found.tokens.tolist() == greedy(decoder, [1, 2, 3], 5)
    assert found.sequence.tolist() == [1, 2, 3, *found.tokens]
    assert found.finish_reason == "length"
    assert [decoder.length(slot) for slot in range(4)] == [0, 0, 0, 0]


@pytest.mark.parametrize("ids", [np.array([[1, 2], [3, 4]]), [[1, 2], [3, 4]], [[1], [2, 3, 4]],
                                 [np.array([5, 6])], []])
def test_several_prompts_give_a_list(ids: object) -> None:
    decoder = TinyDecoder()
    found = weft.generate(decoder, ids,
                          max_new_tokens=4) if len(ids) else []  # type: ignore[arg-type]
    assert [g.tokens.tolist() for g in found] == [greedy(decoder, p, 4) for p in ids]


def test_sampling_is_reproducible_by_key_and_independent_of_the_batch() -> None:
    prompts = [[1, 2], [1, 2], [7], [3, 4, 5]]
    options = {"max_new_tokens": 6, "temperature": 1.5, "top_p": 0.9}
    one = [g.tokens.tolist() for g in weft.generate(TinyDecoder(), prompts, key=3, **options)]
    two = [g.tokens.tolist() for g in weft.generate(TinyDecoder(slots=1), prompts, key=3,
                                                    **options)]
    other = [g.tokens.tolist() for g in weft.generate(TinyDecoder(), prompts, key=4, **options)]
    assert one == two != other
    assert one[0] != one[1]  # equal prompts have different random numbers
    assert one[0] == weft.generate(TinyDecoder(), prompts[0], key=3, **options).tokens.tolist()


def test_stop_conditions() -> None:
    decoder = TinyDecoder()
    tokens = greedy(decoder, [1, 2], 12)
    cut = next(i for i in range(2, 12) if tokens[i] not in tokens[:i])

    def run(**stop: object) -> Generation:
        return weft.generate(decoder, [1, 2], max_new_tokens=12, **stop)  # type: ignore[arg-type]

    assert run(eos_token_id=tokens[cut]).finish_reason == "eos"
    assert run(eos_token_id=tokens[cut]).tokens.tolist() == tokens[:cut + 1]
    assert run(stop_tokens=[tokens[cut]]).finish_reason == "stop_token"
    found = run(stop_sequences=[(9, 9, 9, 9, 9), tokens[cut - 1:cut + 1]])
    assert found.finish_reason == "stop_sequence"
    assert found.tokens.tolist() == tokens[:cut + 1]
    assert len(weft.generate(decoder, [1, 2], max_length=5).tokens) == 3


def test_tokens_are_streamed() -> None:
    decoder, events = TinyDecoder(), []
    found = weft.generate(decoder, [[1], [2, 3]], max_new_tokens=3,
                          on_token=lambda i, token: events.append((i, token)))
    for i, generation in enumerate(found):
        assert [token for j, token in events if i == j] == generation.tokens.tolist()
    tokens = stream(decoder, [1], max_new_tokens=60)
    assert list(itertools.islice(tokens, 4)) == greedy(decoder, [1], 4)
    tokens.close()  # type: ignore[attr-defined]
    assert decoder.length(0) == 0


def _likelihood(decoder: TinyDecoder, prompt: list[int], tokens: tuple[int, ...]) -> float:
    total, known = 0.0, list(prompt)
    for token in tokens:
        logits = decoder.logits(known).astype(np.float64)
        total += logits[token] - np.log(np.exp(logits).sum())
        known.append(token)
    return total


def test_beams_as_wide_as_the_tree_find_the_likeliest_sequence() -> None:
    decoder = TinyDecoder(vocab_size=4, slots=16)
    wide = TinyDecoder(vocab_size=16, slots=16)
    with pytest.raises(OptionError, match="invalid number of beams"):
        weft.generate(decoder, [1], max_new_tokens=3, num_beams=16)
    found = weft.generate(wide, [1, 2], max_new_tokens=2, num_beams=16)
    best = max(itertools.product(range(16), repeat=2),
               key=lambda tokens: _likelihood(wide, [1, 2], tokens))
    assert tuple(found.tokens) == best
    assert found.score == pytest.approx(_likelihood(wide, [1, 2], best) / 2, abs=1e-5)
    greedy_score = _likelihood(decoder, [1], tuple(greedy(decoder, [1], 6)))
    beam = weft.generate(decoder, [1], max_new_tokens=6, num_beams=4)
    assert _likelihood(decoder, [1], tuple(beam.tokens)) >= greedy_score


@settings(max_examples=40, deadline=None)
@given(prompts=st.lists(st.lists(st.integers(0, 10), min_size=1, max_size=6), min_size=1,
                        max_size=5),
       count=st.integers(1, 12), proposed=st.integers(1, 5), noise=st.sampled_from([0.0, 0.3, 3.0]),
       penalty=st.sampled_from([1.0, 1.7]))
def test_greedy_speculation_gives_the_tokens_of_the_target(
    prompts: list[list[int]], count: int, proposed: int, noise: float, penalty: float,
) -> None:
    target, draft = TinyDecoder(slots=3), TinyDecoder(slots=3, noise=noise)
    options = {"max_new_tokens": count, "repetition_penalty": penalty, "eos_token_id": 4}
    expected = weft.generate(TinyDecoder(), prompts, **options)
    found = weft.generate(target, prompts, assistant_model=draft, draft_tokens=proposed, **options)
    assert [g.tokens.tolist() for g in found] == [g.tokens.tolist() for g in expected]
    assert [g.finish_reason for g in found] == [g.finish_reason for g in expected]


def test_a_perfect_draft_saves_steps_of_the_target() -> None:
    target = TinyDecoder()
    weft.generate(target, [1, 2], max_new_tokens=21, assistant_model=TinyDecoder(), draft_tokens=4)
    assert len(target.calls) == 1 + 4


def test_speculative_samples_have_the_distribution_of_the_target() -> None:
    """Chi-squared over pairs of tokens; 0.999 quantile for 24 degrees of freedom."""
    target = TinyDecoder(vocab_size=5, slots=500)
    draft = TinyDecoder(vocab_size=5, slots=500, noise=1.0)
    draws = 4000
    # The draft model proposes the second token; the first and the third are the target's.
    found = weft.generate(target, [[1]] * draws, max_new_tokens=3, temperature=1.5,
                          assistant_model=draft,
                          draft_tokens=3, key=11)
    counts = np.zeros((5, 5))
    for generation in found:
        counts[tuple(generation.tokens[:2])] += 1
    first = _probabilities(target, [1])
    expected = draws * np.stack([first[t] * _probabilities(target, [1, t]) for t in range(5)])
    assert ((counts - expected) ** 2 / expected).sum() < 51.2


def _probabilities(decoder: TinyDecoder, tokens: list[int]) -> np.ndarray:
    powers = np.exp(decoder.logits(tokens).astype(np.float64) / 1.5)
    return powers / powers.sum()


@pytest.mark.parametrize(("options", "message"), [
    ({"temperature": 0.0}, "invalid temperature"),
    ({"temperature": 1.0, "top_p": 1.2}, "invalid top_p"),
    ({"temperature": "hot"}, "invalid temperature"),
    ({"temperature": 1.0, "top_k": 2.5}, "invalid top_k"),
    ({"temperature": float("nan")}, "invalid temperature"),
    ({"num_beams": 0}, "invalid number of beams"),
    ({"num_beams": 1.5}, "invalid number of beams"),
    ({"num_beams": 5}, "slots of the decoder"),
    ({"num_beams": 12}, "tokens in the vocabulary"),
    ({"num_beams": 2, "temperature": 1.0}, "cannot be combined with a temperature"),
    ({"eos_token_id": 11}, "outside the vocabulary"),
    ({"key": -1}, "key out of range"),
    ({"assistant_model": TinyDecoder(vocab_size=7)}, "vocab_size of the draft model"),
    ({"assistant_model": TinyDecoder(capacity=8)}, "capacity of the draft model"),
    ({"assistant_model": TinyDecoder(), "draft_tokens": 0}, "invalid number of draft tokens"),
])
def test_bad_options_are_refused(options: dict[str, object], message: str) -> None:
    decoder = TinyDecoder()
    with pytest.raises(WeftError, match=message):
        weft.generate(decoder, [1, 2], **{"max_new_tokens": 3, **options})  # type: ignore[arg-type]
    assert weft.generate(decoder, [1], max_new_tokens=2).tokens.tolist() == greedy(decoder, [1], 2)


def test_bad_modules_and_prompts_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="generate takes a decoder"):
        weft.generate(object(), [1], max_new_tokens=1)  # type: ignore[arg-type]
    for ids in ("hello", 7, [[1], []], [[[1]]]):
        with pytest.raises(InvalidInputError, match=r"prompt|tokens"):
            weft.generate(TinyDecoder(), ids, max_new_tokens=1)  # type: ignore[arg-type]


def test_a_session_may_follow_a_generation_on_the_same_decoder() -> None:
    decoder = TinyDecoder()
    weft.generate(decoder, [1, 2], max_new_tokens=3)
    session = Session(decoder)
    request = session.submit([1, 2], max_new_tokens=3)
    session.run()
    assert request.tokens == greedy(decoder, [1, 2], 3)


def test_old_names_of_arguments_warn() -> None:
    decoder = TinyDecoder()
    wanted = weft.generate(decoder, [1], max_new_tokens=4, num_beams=2, eos_token_id=4)
    with (pytest.warns(DeprecationWarning, match=r"generate\(eos=\) is now generate\(eos_token_id"),
          pytest.warns(DeprecationWarning, match=r"beams=\) is now generate\(num_beams")):
        found = weft.generate(decoder, [1], max_new_tokens=4, beams=2, eos=4)  # type: ignore[call-arg]
    assert found.tokens.tolist() == wanted.tokens.tolist()
