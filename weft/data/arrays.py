"""Datasets whose samples are the rows of arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft.data.dataset import Dataset
from weft.support.errors import DataError


class ArrayDataset(Dataset):
    """Sample i is the tuple of ``array[i]`` of each array; one array gives the row itself.

    The arrays (NumPy arrays, or anything that ``numpy.asarray`` reads, such as memory maps) have
    equal first dimensions and are not copied. ``transform`` is applied to the first element of
    a sample, ``target_transform`` to the second.
    """

    def __init__(
        self,
        *arrays: Any,
        transform: Callable[[Any], Any] | None = None,
        target_transform: Callable[[Any], Any] | None = None,
    ) -> None:
        self.arrays = tuple(np.asarray(array) for array in arrays)
        self.transform = transform
        self.target_transform = target_transform
        if not arrays or any(array.ndim == 0 for array in self.arrays):
            raise DataError("ArrayDataset needs arrays of at least one dimension",
                            got=[array.shape for array in self.arrays])
        lengths = [len(array) for array in self.arrays]
        if len(set(lengths)) > 1:
            raise DataError("the arrays of a dataset differ in length",
                            expected="equal first dimensions", got=lengths)

    def __len__(self) -> int:
        return len(self.arrays[0])

    def __getitem__(self, index: int) -> Any:
        sample = [array[index] for array in self.arrays]
        for position, transform in enumerate((self.transform, self.target_transform)):
            if transform is not None and position < len(sample):
                sample[position] = transform(sample[position])
        return sample[0] if len(sample) == 1 else tuple(sample)

    def batch(self, indices: Sequence[int] | np.ndarray) -> Any:
        """Rows of all arrays by one indexing operation each, if there are no transforms."""
        if self.transform is not None or self.target_transform is not None:
            return None
        rows = tuple(array[np.asarray(indices, np.int64)] for array in self.arrays)
        return rows[0] if len(rows) == 1 else rows


class TensorDataset(ArrayDataset):
    """torch's name for ``ArrayDataset``: a sample is always a tuple, of one element too."""

    def __init__(self, *tensors: Any) -> None:
        super().__init__(*tensors)

    def __getitem__(self, index: int) -> tuple[Any, ...]:
        return tuple(array[index] for array in self.arrays)

    def batch(self, indices: Sequence[int] | np.ndarray) -> tuple[np.ndarray, ...]:
        return tuple(array[np.asarray(indices, np.int64)] for array in self.arrays)
