"""MNIST and its relatives: files in the idx format, plain or compressed.

The format is described at the end of Yann LeCun's page of MNIST: two zero bytes, the code of the
dtype, the number of dimensions, the sizes as big-endian 32-bit integers, then the values,
big-endian and row-major.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from os import PathLike
from typing import Any

import numpy as np

from weft.data.arrays import ArrayDataset
from weft.data.files import expect_size, find_file, read_bytes
from weft.support.errors import DataError

_DTYPES = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}


def read_idx(path: str | PathLike[str]) -> np.ndarray:
    """The array in an idx file, in native byte order.

    Raises ``DataError`` with the offset for a file that is cut short, too long or no idx file.
    """
    data = read_bytes(path)
    if len(data) < 4 or data[:2] != b"\0\0" or data[2] not in _DTYPES:
        codes = ", ".join(f"{code:#04x}" for code in _DTYPES)
        raise DataError("not an idx file", where=f"{path}, offset 0", got=data[:4].hex(" "),
                        expected=f"00 00, a dtype of {codes}, the number of dimensions")
    rank = data[3]
    header = 4 + 4 * rank
    if len(data) < header:
        raise DataError("a data file ends too early", where=f"{path}, offset {len(data)}",
                        expected=f"{rank} sizes of 4 bytes", got=f"{len(data)} bytes")
    shape = struct.unpack_from(f">{rank}I", data, 4)
    dtype = np.dtype(_DTYPES[data[2]])
    expect_size(path, data, header + math.prod(shape) * dtype.itemsize,
                f"a header of {header}, then {dtype.newbyteorder('=')} of shape {shape}")
    values = np.frombuffer(data, dtype, offset=header).reshape(shape)
    return values.astype(dtype.newbyteorder("="))


class MNIST(ArrayDataset):
    """Images ``(1, 28, 28)`` uint8 and labels int64 of a folder with MNIST's four files.

    ``train`` chooses the 60,000 images or the 10,000 of the test. The files may be compressed, and
    in the folder itself or in ``MNIST/raw`` of it, where torchvision puts them. Fashion-MNIST and
    others of the same form are read too.
    """

    def __init__(self, root: str | PathLike[str], train: bool = True,
                 transform: Callable[[Any], Any] | None = None,
                 target_transform: Callable[[Any], Any] | None = None) -> None:
        part = "train" if train else "t10k"
        images_path, labels_path = (
            find_file(root, *(f"{folder}{part}-{kind}{ending}" for folder in ("", "MNIST/raw/")
                              for ending in ("", ".gz")))
            for kind in ("images-idx3-ubyte", "labels-idx1-ubyte"))
        images, labels = read_idx(images_path), read_idx(labels_path)
        if images.ndim != 3 or labels.ndim != 1 or len(images) != len(labels):
            raise DataError("images and labels do not match", where=f"{images_path}, {labels_path}",
                            expected="images (n, height, width) and labels (n)",
                            got=f"{images.shape} and {labels.shape}")
        super().__init__(images[:, None], labels.astype(np.int64), transform=transform,
                         target_transform=target_transform)
