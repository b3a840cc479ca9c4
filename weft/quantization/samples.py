"""Calibration data: what users pass, as batches of arrays by the names of inputs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from weft.ir.module import IRModule, input_names
from weft.quantization.schemes import Samples
from weft.support.errors import InvalidInputError
from weft.support.suggestion import did_you_mean

_EXPECTED = "batches: [{input name: array}, ...], or [(array, ...), ...] in the order of inputs"


def samples_of(module: IRModule, data: Any) -> Samples:
    """The batches of ``data``; raises ``InvalidInputError`` for what does not fit the inputs.

    One mapping is one batch, and so is one array for a model with one input; anything else that
    can be iterated has a batch per item. An array with one axis more than its input holds batches.
    """
    if data is None:
        return ()
    names = input_names(module)
    ranks = [_rank(param.checked_type) for param in module["main"].params]
    batches = [data] if isinstance(data, Mapping) or hasattr(data, "__array__") else data
    if not isinstance(batches, Iterable):
        raise InvalidInputError("calibration data is not a list of batches", expected=_EXPECTED,
                                got=type(data).__name__)
    found = [one for item in batches
             for one in _split(_batch(item, names), dict(zip(names, ranks, strict=True)))]
    if not found:
        raise InvalidInputError("calibration data has no batches", expected=_EXPECTED)
    return found


def _rank(type_: Any) -> int | None:
    return getattr(type_, "ndim", None)


def _batch(item: Any, names: Sequence[str]) -> dict[str, np.ndarray]:
    if not isinstance(item, Mapping):
        arrays = (item,) if hasattr(item, "__array__") else tuple(item)
        if len(arrays) != len(names):
            raise InvalidInputError("a batch of calibration data lacks inputs, or has too many",
                                    expected=", ".join(names), got=f"{len(arrays)} arrays")
        item = dict(zip(names, arrays, strict=True))
    for name in item:
        if name not in names:
            raise InvalidInputError(f"calibration data has an unknown input {name!r}",
                                    expected=", ".join(names), help=did_you_mean(name, names))
    missing = [name for name in names if name not in item]
    if missing:
        raise InvalidInputError("a batch of calibration data lacks inputs",
                                expected=", ".join(missing), got=", ".join(item))
    return {name: np.asarray(item[name]) for name in names}


def _split(batch: dict[str, np.ndarray], ranks: Mapping[str, int | None]
           ) -> list[dict[str, np.ndarray]]:
    """The batches of arrays that all have one axis more than their inputs; else the batch."""
    if not all(array.ndim - 1 == ranks[name] for name, array in batch.items()):
        return [batch]
    counts = {len(array) for array in batch.values()}
    if len(counts) != 1:
        raise InvalidInputError("the inputs of calibration data differ in their number of batches",
                                got=", ".join(f"{name}: {len(a)}" for name, a in batch.items()))
    return [{name: array[i] for name, array in batch.items()} for i in range(counts.pop())]
