"""A cost model that learns from measurements: gradient boosting over the features of loops.

It predicts how many times as fast as the cost model's choice a point is. Samples of other kernels
and other machines count as well, since the features describe loops and machines; those of a kernel
itself add what its features do not show. Without the extra ``weft[tune]`` points are ranked by the
machine model alone.
"""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.support.dataclass import dataclass
from weft.tune.store import Sample

LEAST_SAMPLES = 24  # fewer say less than the machine model
MOST_SAMPLES = 20_000  # the latest; training takes a second
RETRAIN_AFTER = 16  # new samples
MISSING = ("the learned cost model needs lightgbm (pip install weft[tune]); "
           "points are ranked by the machine model alone")
_PARAMETERS = {"objective": "regression", "num_leaves": 15, "min_data_in_leaf": 4,
               "learning_rate": 0.15, "feature_fraction": 0.8, "verbosity": -1, "num_threads": 1,
               "deterministic": True, "force_row_wise": True}
_ROUNDS = 80


def has_learning() -> bool:
    """Whether the library that learns is installed."""
    return importlib.util.find_spec("lightgbm") is not None


@dataclass(frozen=True, slots=True)
class Example:
    """The features and the prediction of a point, known before it is measured."""

    features: Sequence[float]
    reference: Sequence[float]  # those of the cost model's choice
    predicted_gain: float  # by the machine model

    @property
    def row(self) -> list[float]:
        """The features, how they differ from those of the reference, and the prediction."""
        return [*self.features, *(a - b for a, b in zip(self.features, self.reference,
                                                        strict=True)),
                math.log2(self.predicted_gain)]


class LearnedModel:
    """Ranks points by what was measured; by the machine model until there are enough samples."""

    def __init__(self, seed: int = 0) -> None:
        self._seed = seed
        self._rows: list[list[float]] = []
        self._gains: list[float] = []
        self._trained_with = 0
        self._booster: Any = None
        self.can_learn = has_learning()

    @property
    def is_trained(self) -> bool:
        """Whether predictions come from samples."""
        return self._booster is not None

    def add(self, example: Example, gain: float) -> None:
        """Learn the measured gain of a point."""
        if example.features:
            self._rows.append(example.row)
            self._gains.append(math.log2(max(gain, 1e-3)))

    def add_samples(self, samples: Sequence[Sample]) -> None:
        """Learn from earlier runs: of other kernels, and of other machines."""
        kernels: dict[tuple[str, str, int], list[Sample]] = {}
        for sample in samples:
            if sample.status == "ok" and sample.features:
                kernels.setdefault((sample.cpu, sample.kernel, sample.threads), []).append(sample)
        for found in kernels.values():
            # The choice of the cost model is the point without values in brackets.
            plain = next((s for s in found if "[" not in s.implementation), found[0])
            for sample in found:
                if sample.seconds and sample.baseline and (
                        len(sample.features) == len(plain.features)):
                    predicted = 2.0 ** (plain.features[0] - sample.features[0])
                    self.add(Example(sample.features, plain.features, predicted),
                             sample.baseline / sample.seconds)

    def gains(self, examples: Sequence[Example]) -> list[float]:
        """How many times as fast as the cost model's choice each point is expected to be."""
        self._train()
        if self._booster is None or not all(example.features for example in examples):
            return [example.predicted_gain for example in examples]
        width = len(self._rows[0])
        rows = [example.row for example in examples]
        if not rows or any(len(row) != width for row in rows):
            return [example.predicted_gain for example in examples]
        found = self._booster.predict(np.asarray(rows))
        return [float(2.0 ** value) for value in found]

    def _train(self) -> None:
        new = len(self._rows) - self._trained_with
        if not self.can_learn or len(self._rows) < LEAST_SAMPLES or (
                new < RETRAIN_AFTER and self._booster is not None):
            return
        import lightgbm

        width = len(self._rows[-1])
        kept = [(row, gain) for row, gain in zip(self._rows, self._gains, strict=True)
                if len(row) == width][-MOST_SAMPLES:]
        rows, gains = (np.asarray(part) for part in zip(*kept, strict=True))
        # Which points are fast matters more than how slow the others are.
        weights = np.clip(2.0 ** gains, 0.2, 2.0)
        data = lightgbm.Dataset(rows, gains, weight=weights)
        self._booster = lightgbm.train({**_PARAMETERS, "seed": self._seed}, data, _ROUNDS)
        self._trained_with = len(self._rows)
