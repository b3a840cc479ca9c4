"""CIFAR-10, from the files of its Python version and from those of its binary version.

https://www.cs.toronto.edu/~kriz/cifar.html describes both. A pickle can run any code, so the files
of the Python version are interpreted by ``pickle_values``, which builds plain values alone.
"""

from __future__ import annotations

from collections.abc import Callable
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from weft.data.arrays import ArrayDataset
from weft.data.files import expect_size, find_file, read_bytes
from weft.data.pickle_values import read_pickle
from weft.support.errors import DataError

SHAPE = (3, 32, 32)
_RECORD = 1 + 3 * 32 * 32


class CIFAR10(ArrayDataset):
    """Images ``(3, 32, 32)`` uint8 and labels int64 of a folder with CIFAR-10's files.

    ``train`` chooses the five batches of training or the one of the test. The folder holds the
    files, or the folder ``cifar-10-batches-py`` or ``cifar-10-batches-bin`` with them.
    """

    def __init__(self, root: str | PathLike[str], train: bool = True,
                 transform: Callable[[Any], Any] | None = None,
                 target_transform: Callable[[Any], Any] | None = None) -> None:
        names = [f"data_batch_{number}" for number in range(1, 6)] if train else ["test_batch"]
        folders = ("", "cifar-10-batches-py/", "cifar-10-batches-bin/")
        parts = [read_batch(find_file(root, *(f"{folder}{name}{ending}" for folder in folders
                                              for ending in ("", ".bin"))))
                 for name in names]
        images, labels = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
        super().__init__(images, labels, transform=transform, target_transform=target_transform)


def read_batch(path: str | PathLike[str]) -> tuple[np.ndarray, np.ndarray]:
    """Images ``(n, 3, 32, 32)`` uint8 and labels ``(n)`` int64 of one file of either version.

    Raises ``DataError`` for a file that is damaged, cut short, or of another structure.
    """
    path = Path(path)
    data = read_bytes(path)
    images, labels = _binary(path, data) if path.suffix == ".bin" else _python(path, data)
    wrong = np.flatnonzero((labels < 0) | (labels > 9))
    if len(wrong):
        raise DataError("a label of CIFAR-10 is out of range", where=f"{path}, image {wrong[0]}",
                        expected="0 to 9", got=labels[wrong[0]])
    return images, labels


def _binary(path: Path, data: bytes) -> tuple[np.ndarray, np.ndarray]:
    count = -(-len(data) // _RECORD)
    expect_size(path, data, count * _RECORD, f"{count} records of {_RECORD}")
    records = np.frombuffer(data, np.uint8).reshape(count, _RECORD)
    return records[:, 1:].reshape(count, *SHAPE).copy(), records[:, 0].astype(np.int64)


def _python(path: Path, data: bytes) -> tuple[np.ndarray, np.ndarray]:
    value = read_pickle(path, data)
    named = {key.decode("latin-1") if isinstance(key, bytes) else key: part
             for key, part in value.items()} if isinstance(value, dict) else {}
    images, labels = named.get("data"), named.get("labels")
    if not isinstance(images, np.ndarray) or not isinstance(labels, list):
        raise DataError("not a batch of CIFAR-10", where=path, got=sorted(map(str, named)),
                        expected="a dictionary with an array 'data' and a list 'labels'")
    sound = all(type(label) is int for label in labels)
    if images.shape != (len(labels), _RECORD - 1) or images.dtype != np.uint8 or not sound:
        raise DataError("a batch of CIFAR-10 has another form", where=path,
                        expected=f"data ({len(labels)}, {_RECORD - 1}) uint8, integer labels",
                        got=f"data {images.shape} {images.dtype}, {len(labels)} labels")
    return images.reshape(-1, *SHAPE), np.asarray(labels, np.int64)
