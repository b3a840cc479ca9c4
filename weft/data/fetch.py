"""Reading of the samples of a batch, in the calling process or in a worker."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from weft.data.collate import collated, default_collate
from weft.data.dataset import Dataset
from weft.data.sample_random import reading_sample
from weft.support.dataclass import dataclass


@dataclass(frozen=True)
class Fetcher:
    """Reads and collates the samples of a batch. Workers receive a pickled copy."""

    dataset: Any
    collate_fn: Callable[[list[Any]], Any]
    seed: int

    def __call__(self, epoch: int, indices: Sequence[int]) -> Any:
        """The batch of the samples at ``indices``; an exception notes the index that raised it."""
        if self.collate_fn is default_collate and isinstance(self.dataset, Dataset):
            batch = self.dataset.batch(indices)
            if batch is not None:
                return batch
        samples = [self._sample(epoch, index) for index in indices]
        name = type(self.dataset).__name__
        if self.collate_fn is default_collate:
            return collated(samples, lambda position: f"sample {indices[position]} of {name}")
        try:
            return self.collate_fn(samples)
        except Exception as error:
            error.add_note(f"while collating samples {list(indices)} of {name}")
            raise

    def _sample(self, epoch: int, index: int) -> Any:
        with reading_sample(self.seed, epoch, index):
            try:
                return self.dataset[index]
            except Exception as error:
                error.add_note(f"while reading sample {index} of {type(self.dataset).__name__}")
                raise
