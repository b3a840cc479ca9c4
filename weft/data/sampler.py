"""Samplers: the order of the indices of an epoch, as a function of the epoch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Sized
from typing import Any

import numpy as np

from weft.data.sample_random import generator_for, seed_of
from weft.support.errors import DataError


class Sampler:
    """The indices of each epoch; a subclass defines ``order(epoch)``.

    Iteration gives the order of the epoch that ``set_epoch`` chose, 0 at first.
    """

    epoch = 0

    def order(self, epoch: int) -> np.ndarray:  # noqa: ARG002 - the interface
        """The indices of an epoch, int64. The same epoch always has the same order."""
        raise DataError(f"{type(self).__name__} defines no order")

    def set_epoch(self, epoch: int) -> None:
        """The epoch of the next iteration."""
        self.epoch = epoch

    def __iter__(self) -> Iterator[int]:
        return iter(self.order(self.epoch).tolist())

    def __len__(self) -> int:
        return len(self.order(self.epoch))


class SequentialSampler(Sampler):
    """0, 1, 2, .. in every epoch."""

    def __init__(self, data_source: Sized) -> None:
        self.data_source = data_source

    def order(self, epoch: int) -> np.ndarray:  # noqa: ARG002 - the interface
        return np.arange(len(self.data_source), dtype=np.int64)

    def __len__(self) -> int:
        return len(self.data_source)


class RandomSampler(Sampler):
    """A permutation of the indices, another one in each epoch.

    With ``replacement``, ``num_samples`` independent draws (the length of the dataset by default);
    without it, ``num_samples`` above the length continues with further permutations.
    """

    def __init__(self, data_source: Sized, replacement: bool = False,
                 num_samples: int | None = None, generator: Any = None, *, seed: int = 0) -> None:
        if num_samples is not None and num_samples <= 0:
            raise DataError("RandomSampler: num_samples is not positive", got=num_samples)
        self.data_source = data_source
        self.replacement = replacement
        self.num_samples = num_samples
        self.seed = seed_of(generator, seed)

    def order(self, epoch: int) -> np.ndarray:
        size, count = len(self.data_source), len(self)
        generator = generator_for(self.seed, epoch)
        if size == 0:
            return np.empty(0, np.int64)
        if self.replacement:
            return generator.integers(size, size=count)
        rounds = [generator.permutation(size) for _ in range(-(-count // size))]
        return np.concatenate(rounds)[:count]

    def __len__(self) -> int:
        return len(self.data_source) if self.num_samples is None else self.num_samples


class SubsetRandomSampler(Sampler):
    """A permutation of given indices."""

    def __init__(self, indices: Sequence[int] | np.ndarray, generator: Any = None, *,
                 seed: int = 0) -> None:
        self.indices = np.asarray(indices, np.int64)
        self.seed = seed_of(generator, seed)

    def order(self, epoch: int) -> np.ndarray:
        return generator_for(self.seed, epoch).permutation(self.indices)

    def __len__(self) -> int:
        return len(self.indices)


class WeightedRandomSampler(Sampler):
    """``num_samples`` draws from 0, 1, .. with probabilities in proportion to ``weights``."""

    def __init__(self, weights: Sequence[float] | np.ndarray, num_samples: int,
                 replacement: bool = True, generator: Any = None, *, seed: int = 0) -> None:
        self.weights = np.asarray(weights, np.float64)
        self.num_samples = num_samples
        self.replacement = replacement
        self.seed = seed_of(generator, seed)
        sound = np.isfinite(self.weights).all() and (self.weights >= 0).all()
        if self.weights.ndim != 1 or not sound or not self.weights.sum() > 0:
            raise DataError("WeightedRandomSampler: weights are finite, not negative, and not all "
                            "zero", expected="one weight per sample", got=self.weights.shape)
        if not replacement and num_samples > np.count_nonzero(self.weights):
            raise DataError("WeightedRandomSampler draws more samples than have a weight",
                            expected=f"at most {np.count_nonzero(self.weights)}", got=num_samples,
                            help="pass replacement=True")

    def order(self, epoch: int) -> np.ndarray:
        probabilities = self.weights / self.weights.sum()
        return generator_for(self.seed, epoch).choice(
            len(probabilities), self.num_samples, self.replacement, probabilities)

    def __len__(self) -> int:
        return self.num_samples


class BatchSampler:
    """The indices of a sampler in batches; the last one is shorter, or left out."""

    def __init__(self, sampler: Any, batch_size: int, drop_last: bool) -> None:
        if batch_size <= 0:
            raise DataError("batch_size is not positive", got=batch_size)
        self.sampler = sampler
        self.batch_size = batch_size
        self.drop_last = drop_last

    def set_epoch(self, epoch: int) -> None:
        """The epoch of the next iteration."""
        if hasattr(self.sampler, "set_epoch"):
            self.sampler.set_epoch(epoch)

    def __iter__(self) -> Iterator[list[int]]:
        batch: list[int] = []
        for index in self.sampler:
            batch.append(int(index))
            if len(batch) == self.batch_size:
                yield batch
                batch = []
        if batch and not self.drop_last:
            yield batch

    def __len__(self) -> int:
        whole, rest = divmod(len(self.sampler), self.batch_size)
        return whole + (rest > 0 and not self.drop_last)
