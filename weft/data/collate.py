"""Batches from samples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from weft.support.errors import DataError


def default_collate(samples: Sequence[Any]) -> Any:
    """Stack equal parts of the samples along a new first dimension.

    Arrays and numbers become arrays; tuples, lists and mappings are collated by element; text and
    bytes become lists. Python floats become float32 and integers int64. Raises ``DataError`` if
    the samples differ in structure, shape or dtype.
    """
    first = samples[0]
    if isinstance(first, str | bytes):
        return list(samples)
    if isinstance(first, Mapping):
        _same([tuple(sample) for sample in samples], "keys")
        return {key: default_collate([sample[key] for sample in samples]) for key in first}
    if isinstance(first, tuple | list):
        _same([len(sample) for sample in samples], "lengths")
        columns = [default_collate(column) for column in zip(*samples, strict=True)]
        if hasattr(first, "_fields"):  # a named tuple
            return type(first)(*columns)
        return tuple(columns) if isinstance(first, tuple) else columns
    if isinstance(first, bool):
        return np.asarray(samples, np.bool_)
    if isinstance(first, int):
        return np.asarray(samples, np.int64)
    if isinstance(first, float):
        return np.asarray(samples, np.float32)
    return _stack([np.asarray(sample) for sample in samples])


def _stack(arrays: list[np.ndarray]) -> np.ndarray:
    if arrays[0].dtype == object:
        raise DataError("samples that are no arrays cannot be collated", got=arrays[0],
                        expected="arrays, numbers, text, or tuples, lists and mappings of them",
                        help="pass collate_fn=, a function of the list of samples")
    _same([array.shape for array in arrays], "shapes")
    _same([array.dtype for array in arrays], "dtypes")
    return np.stack(arrays)


def _same(properties: list[Any], name: str) -> None:
    for position, value in enumerate(properties):
        if value != properties[0]:
            raise DataError(f"the samples of a batch differ in their {name}",
                            where=f"sample {position} of the batch",
                            expected=properties[0], got=value,
                            help="pass collate_fn=, which may pad them")
