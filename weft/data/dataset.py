"""Datasets: samples by index or by iteration, and datasets made from others."""

from __future__ import annotations

import bisect
import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from weft.data.sample_random import Purpose, generator_for, seed_of
from weft.support.errors import DataError


class Dataset:
    """Samples with an index: a subclass defines ``__getitem__(index)`` and ``__len__()``.

    A subclass that reads many samples faster than one by one also defines ``batch(indices)``,
    which returns what ``default_collate`` would make of the samples, or None to decline.
    """

    def __getitem__(self, index: int) -> Any:
        raise DataError(f"{type(self).__name__} defines no __getitem__")

    def __len__(self) -> int:
        raise DataError(f"{type(self).__name__} defines no __len__")

    def __add__(self, other: Dataset) -> ConcatDataset:
        return ConcatDataset([self, other])

    def batch(self, indices: Sequence[int] | np.ndarray) -> Any:  # noqa: ARG002 - a default
        """The collated samples at ``indices``, or None: read them one by one."""
        return None


class IterableDataset:
    """Samples in a sequence without indices: a subclass defines ``__iter__``.

    A loader reads it anew in each epoch. A subclass that can continue in the middle defines
    ``skip(samples)``, which returns an iterator that starts after that many samples.
    """

    def __iter__(self) -> Iterator[Any]:
        raise DataError(f"{type(self).__name__} defines no __iter__")

    def skip(self, samples: int) -> Iterator[Any]:
        """The samples after the first ``samples``; this default reads and drops them."""
        return itertools.islice(iter(self), samples, None)


class Subset(Dataset):
    """The samples of a dataset at given indices."""

    def __init__(self, dataset: Dataset, indices: Sequence[int] | np.ndarray) -> None:
        self.dataset = dataset
        self.indices = np.asarray(indices, np.int64)

    def __getitem__(self, index: int) -> Any:
        return self.dataset[int(self.indices[index])]

    def __len__(self) -> int:
        return len(self.indices)

    def batch(self, indices: Sequence[int] | np.ndarray) -> Any:
        return self.dataset.batch(self.indices[np.asarray(indices, np.int64)])


class ConcatDataset(Dataset):
    """Datasets one after another."""

    def __init__(self, datasets: Iterable[Dataset]) -> None:
        self.datasets = list(datasets)
        if not self.datasets:
            raise DataError("ConcatDataset needs at least one dataset")
        self.cumulative_sizes = list(itertools.accumulate(len(d) for d in self.datasets))

    def __getitem__(self, index: int) -> Any:
        size = len(self)
        if not -size <= index < size:
            raise IndexError(f"index {index} of a dataset of {size} samples")
        index %= size
        which = bisect.bisect_right(self.cumulative_sizes, index)
        before = self.cumulative_sizes[which - 1] if which else 0
        return self.datasets[which][index - before]

    def __len__(self) -> int:
        return self.cumulative_sizes[-1]


def random_split(
    dataset: Dataset, lengths: Sequence[int] | Sequence[float], generator: Any = None, *,
    seed: int = 0,
) -> list[Subset]:
    """Split a dataset into random subsets that do not overlap.

    ``lengths`` are numbers of samples that add up to the length of the dataset, or fractions that
    add up to 1: each subset gets the floor of its share, and the remaining samples go to the first
    subsets, one each, as in torch. Raises ``DataError`` for other lengths.
    """
    sizes = _sizes(len(dataset), lengths)
    order = generator_for(seed_of(generator, seed), purpose=Purpose.SPLIT).permutation(len(dataset))
    ends = list(itertools.accumulate(sizes))
    return [Subset(dataset, order[end - size : end]) for size, end in zip(sizes, ends, strict=True)]


def _sizes(total: int, lengths: Sequence[int] | Sequence[float]) -> list[int]:
    if any(length < 0 for length in lengths):
        raise DataError("random_split: a negative length", got=list(lengths))
    if all(isinstance(n, int | np.integer) for n in lengths) and sum(lengths) == total:
        return [int(n) for n in lengths]
    if not math.isclose(sum(lengths), 1):
        raise DataError("random_split: the lengths do not add up", got=list(lengths),
                        expected=f"{total} samples in all, or fractions that add up to 1")
    sizes = [math.floor(total * fraction) for fraction in lengths]
    for extra in range(total - sum(sizes)):
        sizes[extra % len(sizes)] += 1
    return sizes
