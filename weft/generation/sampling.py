"""Sampling: from logits to the next token. Pure functions, vectorised over the rows of a batch.

The filters and their order are those of transformers: repetition penalty (Keskar et al., 2019),
temperature, top-k (Fan et al., 2018), top-p (Holtzman et al., 2020), min-p (Nguyen et al., 2024).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from weft.support.dataclass import dataclass
from weft.support.errors import OptionError

# Candidates that top-p sorts before it resorts to sorting the vocabulary.
FEW = 1024
# Elements of a block in the search for a random token of the whole vocabulary.
BLOCK = 256


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """How the next token is chosen. Without a temperature, the most likely token (greedy)."""

    temperature: float | None = None
    top_k: int | None = None
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0

    def __post_init__(self) -> None:
        _check("temperature", self.temperature, "a number > 0",
               self.temperature is None or _is_inside(self.temperature, 0, np.inf),
               help="leave the temperature out for greedy decoding")
        _check("top_k", self.top_k, "an integer >= 1", self.top_k is None
               or (isinstance(self.top_k, (int, np.integer)) and self.top_k >= 1))
        _check("top_p", self.top_p, "0 < top_p <= 1",
               self.top_p == 1 or _is_inside(self.top_p, 0, 1))
        _check("min_p", self.min_p, "0 <= min_p < 1",
               self.min_p == 0 or _is_inside(self.min_p, 0, 1))
        _check("repetition_penalty", self.repetition_penalty, "a number > 0",
               _is_inside(self.repetition_penalty, 0, np.inf))
        if self.greedy and (self.top_k, self.top_p, self.min_p) != (None, 1.0, 0.0):
            raise OptionError("top_k, top_p and min_p need a temperature", got=self,
                              help="temperature=1.0 samples from the distribution of the model")

    @property
    def greedy(self) -> bool:
        return self.temperature is None


def _is_inside(value: object, low: float, high: float) -> bool:
    return isinstance(value, (int, float, np.number)) and bool(low < value < high)


def _check(name: str, value: object, expected: str, valid: bool, help: str | None = None) -> None:
    if not valid:
        raise OptionError(f"invalid {name}", expected=expected, got=value, help=help)


GREEDY = Sampling()


class RandomStream:
    """The random numbers of one request: Philox4x64 (Salmon et al., 2011) with the request's key.

    Each request has its own stream, so its tokens do not depend on the requests beside it.
    """

    def __init__(self, key: int, index: int = 0) -> None:
        if not 0 <= key < 2**64:
            raise OptionError("key out of range", expected="0 to 2**64 - 1", got=key)
        self._bits = np.random.Philox(key=np.array([key, index], np.uint64))

    def uniform(self) -> float:
        """The next number, from 0 to 1 - 2**-53."""
        return (self._bits.random_raw() >> 11) * 2.0**-53


def penalize(logits: np.ndarray, seen: np.ndarray, penalty: float) -> np.ndarray:
    """Logits [vocab] in which the tokens ``seen`` are less likely for a penalty above 1."""
    if penalty == 1.0:
        return logits
    found = logits[seen]
    logits = logits.copy()
    logits[seen] = np.where(found < 0, found * penalty, found / penalty)
    return logits


@dataclass(frozen=True)
class Candidates:
    """Tokens that may follow, per row: ``ids`` [rows, n] and their ``weights`` [rows, n].

    Weights are proportional to the probabilities. ``ids`` is ``None`` if the columns are the
    vocabulary.
    """

    ids: np.ndarray | None
    weights: np.ndarray

    def choose(self, uniform: np.ndarray) -> np.ndarray:
        """One token per row for numbers [rows] that are uniform in [0, 1): inverse transform."""
        column = np.array([_draw(row, u) for row, u in zip(self.weights, uniform, strict=True)])
        return column if self.ids is None else self.ids[np.arange(len(column)), column]

    def dense(self, vocab_size: int) -> np.ndarray:
        """The probabilities of all tokens, float64 [rows, vocab_size]."""
        found = self.weights.astype(np.float64)
        found /= found.sum(axis=-1, keepdims=True)
        if self.ids is None:
            return found
        full = np.zeros((len(self.ids), vocab_size))
        np.put_along_axis(full, self.ids, found, axis=-1)
        return full


def _draw(weights: np.ndarray, uniform: float) -> int:
    """An index of ``weights`` [n], in proportion to them.

    A long vector is first searched in blocks, whose sums cost less than all prefix sums.
    """
    if len(weights) <= 2 * BLOCK:
        return _search(np.cumsum(weights, dtype=np.float64), uniform)[0]
    sums = np.add.reduceat(weights, np.arange(0, len(weights), BLOCK))
    block, rest = _search(np.cumsum(sums, dtype=np.float64), uniform)
    inside = np.cumsum(weights[block * BLOCK:(block + 1) * BLOCK], dtype=np.float64)
    return block * BLOCK + _search(inside, rest)[0]


def _search(sums: np.ndarray, uniform: float) -> tuple[int, float]:
    """The interval of prefix sums that holds ``uniform`` of the total, and its position in it."""
    target = uniform * sums[-1]
    index = int(np.searchsorted(sums, target, side="right"))
    if index == len(sums):  # the product was rounded up to the total
        index = int(np.searchsorted(sums, sums[-1], side="left"))
    low = sums[index - 1] if index else 0.0
    return index, float((target - low) / (sums[index] - low))


def candidates(logits: np.ndarray, sampling: Sampling) -> Candidates:
    """The distribution of the next token for logits [rows, vocab] after all filters."""
    scale = np.float32(1 / (sampling.temperature or 1.0))
    vocab_size = logits.shape[-1]
    if sampling.top_k is None and sampling.top_p == 1.0:
        return Candidates(None, _min_p(_powers(logits * scale), sampling.min_p))
    if sampling.top_k is not None:
        kept = _largest(logits, min(sampling.top_k, vocab_size))
        weights = _powers(np.take_along_axis(logits, kept, axis=-1).astype(np.float64) * scale)
        totals = weights.sum(axis=-1, keepdims=True)
    else:
        powers = _powers(logits * scale)
        totals = powers.sum(axis=-1, keepdims=True, dtype=np.float64)
        kept, weights = _nucleus(logits, powers, totals, sampling.top_p)
    # A token is kept if the likelier ones have less than top_p together.
    before = np.cumsum(weights, axis=-1) - weights
    weights = np.where(before < sampling.top_p * totals, weights, 0.0)
    return Candidates(kept, _min_p(weights, sampling.min_p))


def _powers(scores: np.ndarray) -> np.ndarray:
    """The exponentials of scores [rows, n], of which the largest becomes 1."""
    shifted = scores - scores.max(axis=-1, keepdims=True)
    return np.exp(shifted, out=shifted)


def _min_p(weights: np.ndarray, least: float) -> np.ndarray:
    if least == 0.0:
        return weights
    return np.where(weights >= least * weights.max(axis=-1, keepdims=True), weights, 0.0)


def _largest(values: np.ndarray, k: int) -> np.ndarray:
    """The columns of the ``k`` largest values of each row, in descending order of value."""
    if k < values.shape[-1]:
        found = np.sort(np.argpartition(values, -k, axis=-1)[:, -k:], axis=-1)
    else:
        found = np.broadcast_to(np.arange(k), values.shape)
    chosen = np.take_along_axis(values, found, axis=-1)
    return np.take_along_axis(found, np.argsort(-chosen, axis=-1, kind="stable"), axis=-1)


def _nucleus(logits: np.ndarray, powers: np.ndarray, totals: np.ndarray, top_p: float
             ) -> tuple[np.ndarray, np.ndarray]:
    """Columns and weights, in descending order, that hold ``top_p`` of the total in every row."""
    for count in (min(FEW, powers.shape[-1]), powers.shape[-1]):
        kept = _largest(logits, count)
        weights = np.take_along_axis(powers, kept, axis=-1).astype(np.float64)
        if np.all(weights.sum(axis=-1, keepdims=True) >= top_p * totals):
            break
    return kept, weights


def choose_tokens(
    logits: np.ndarray, sampling: Sequence[Sampling], streams: Sequence[RandomStream],
    seen: Sequence[np.ndarray],
) -> np.ndarray:
    """The next token of each row, int64 [rows], for logits [rows, vocab].

    Row i uses ``sampling[i]`` and one number of ``streams[i]`` unless it is greedy; ``seen[i]``
    holds the tokens that the repetition penalty counts. The token of a row depends on this row
    alone.
    """
    if any(s.repetition_penalty != 1.0 for s in sampling):
        logits = np.stack([penalize(row, known, s.repetition_penalty)
                           for row, known, s in zip(logits, seen, sampling, strict=True)])
    tokens = np.empty(len(logits), np.int64)
    groups: dict[Sampling, list[int]] = {}
    for row, params in enumerate(sampling):
        groups.setdefault(params, []).append(row)
    for params, rows in groups.items():
        chosen = logits if len(rows) == len(logits) else logits[rows]
        if params.greedy:
            tokens[rows] = chosen.argmax(axis=-1)
        else:
            uniform = np.array([streams[row].uniform() for row in rows])
            tokens[rows] = candidates(chosen, params).choose(uniform)
    return tokens
