"""Batches from samples."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from weft.support.errors import DataError


def default_collate(samples: Sequence[Any]) -> Any:
    """Stack equal parts of the samples along a new first dimension.

    Arrays and numbers become arrays, and tensors a tensor; tuples, lists and mappings are collated
    by element; text and bytes become lists. Python floats become float32 and integers int64. Raises
    ``DataError`` if the samples differ in structure, shape or dtype.
    """
    return collated(samples, lambda position: f"sample {position} of the batch")


def collated(samples: Sequence[Any], name_of: Callable[[int], str]) -> Any:
    """``default_collate``, whose errors call the sample at a position by ``name_of(position)``."""
    first = samples[0]
    if isinstance(first, str | bytes):
        return list(samples)
    if isinstance(first, Mapping):
        _same([tuple(sample) for sample in samples], "keys", name_of)
        return {key: collated([sample[key] for sample in samples], name_of) for key in first}
    if isinstance(first, tuple | list):
        _same([len(sample) for sample in samples], "lengths", name_of)
        columns = [collated(column, name_of) for column in zip(*samples, strict=True)]
        if hasattr(first, "_fields"):  # a named tuple
            return type(first)(*columns)
        return tuple(columns) if isinstance(first, tuple) else columns
    if isinstance(first, bool):
        return np.asarray(samples, np.bool_)
    if isinstance(first, int):
        return np.asarray(samples, np.int64)
    if isinstance(first, float):
        return np.asarray(samples, np.float32)
    arrays = [np.asarray(sample) for sample in samples]
    return _like(first, _stack(arrays, name_of))


def _like(sample: Any, batch: np.ndarray) -> Any:
    """The batch as a tensor if the sample is one; without tensors, their package is not loaded."""
    tensors: Any = sys.modules.get("weft.eager.tensor")
    return tensors.Tensor(batch) if tensors and isinstance(sample, tensors.Tensor) else batch


def _stack(arrays: list[np.ndarray], name_of: Callable[[int], str]) -> np.ndarray:
    if arrays[0].dtype == object:
        raise DataError("samples that are no arrays cannot be collated", got=arrays[0],
                        where=name_of(0),
                        expected="arrays, numbers, text, or tuples, lists and mappings of them",
                        help="pass collate_fn=, a function of the list of samples")
    _same([array.shape for array in arrays], "shapes", name_of)
    _same([array.dtype for array in arrays], "dtypes", name_of)
    return np.stack(arrays)


def _same(properties: list[Any], name: str, name_of: Callable[[int], str]) -> None:
    for position, value in enumerate(properties):
        if value != properties[0]:
            raise DataError(f"the samples of a batch differ in their {name}",
                            where=name_of(position),
                            expected=properties[0], got=value,
                            help="pass collate_fn=, which may pad them")
