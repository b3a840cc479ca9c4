"""Transforms of images: arrays of shape ``(.., height, width)``, channels first, as in torchvision.

The random ones draw from ``sample_generator()``, so that inside a loader their result is a function
of (seed, epoch, index of the sample), whatever process reads it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from weft.data.sample_random import sample_generator
from weft.support.errors import DataError


class Compose:
    """Transforms one after another."""

    def __init__(self, transforms: Sequence[Callable[[Any], Any]]) -> None:
        self.transforms = list(transforms)

    def __call__(self, image: Any) -> Any:
        for transform in self.transforms:
            image = transform(image)
        return image


class ToTensor:
    """A uint8 image ``(H, W, C)`` or ``(H, W)`` as float32 ``(C, H, W)`` in [0, 1].

    Reads arrays and Pillow images. Other dtypes keep their values, as in torchvision.
    """

    def __call__(self, image: Any) -> np.ndarray:
        array = np.asarray(image)
        if array.ndim not in (2, 3):
            raise DataError("ToTensor: not an image", expected="(H, W) or (H, W, C)",
                            got=array.shape)
        if array.ndim == 2:
            array = array[:, :, None]
        array = np.ascontiguousarray(array.transpose(2, 0, 1))
        return array.astype(np.float32) / np.float32(255) if array.dtype == np.uint8 else array


class ToDtype:
    """Another dtype; ``scale`` maps the range of an integer dtype to [0, 1]."""

    def __init__(self, dtype: DTypeLike, scale: bool = False) -> None:
        self.dtype = np.dtype(dtype)
        self.scale = scale
        if scale and not np.issubdtype(self.dtype, np.floating):
            raise DataError("ToDtype: scale=True needs a float dtype", got=self.dtype)

    def __call__(self, image: np.ndarray) -> np.ndarray:
        array = np.asarray(image)
        if not self.scale or not np.issubdtype(array.dtype, np.integer):
            return array.astype(self.dtype)
        largest: Any = self.dtype.type(np.iinfo(array.dtype).max)
        return array.astype(self.dtype) / largest


class Normalize:
    """``(image - mean) / std`` by channel; the image is ``(C, H, W)`` of a float dtype."""

    def __init__(self, mean: Sequence[float], std: Sequence[float]) -> None:
        self.mean = np.asarray(mean, np.float32).reshape(-1, 1, 1)
        self.std = np.asarray(std, np.float32).reshape(-1, 1, 1)
        if not (self.std > 0).all():
            raise DataError("Normalize: a standard deviation is not positive", got=list(std))

    def __call__(self, image: np.ndarray) -> np.ndarray:
        if not np.issubdtype(image.dtype, np.floating):
            raise DataError("Normalize: the image is not of a float dtype", got=image.dtype,
                            help='apply ToDtype("float32", scale=True) first')
        return (image - self.mean.astype(image.dtype)) / self.std.astype(image.dtype)


class RandomHorizontalFlip:
    """Mirror the image from left to right with probability ``p``."""

    def __init__(self, p: float = 0.5) -> None:
        if not 0 <= p <= 1:
            raise DataError("RandomHorizontalFlip: p is not a probability", got=p)
        self.p = p

    def __call__(self, image: np.ndarray) -> np.ndarray:
        return image[..., ::-1] if sample_generator().random() < self.p else image


class RandomCrop:
    """A window of ``size`` (an integer, or height and width) at a random place.

    ``padding`` zeros are added on every side first. Raises ``DataError`` if the window is larger
    than the padded image.
    """

    def __init__(self, size: int | tuple[int, int], padding: int = 0) -> None:
        self.size = (size, size) if isinstance(size, int) else size
        self.padding = padding

    def __call__(self, image: np.ndarray) -> np.ndarray:
        around = [(0, 0)] * (image.ndim - 2) + [(self.padding, self.padding)] * 2
        padded = np.pad(image, around) if self.padding else image
        room = [have - want for have, want in zip(padded.shape[-2:], self.size, strict=True)]
        if min(room) < 0:
            raise DataError("RandomCrop: the window is larger than the image",
                            expected=f"at most {padded.shape[-2:]}", got=self.size)
        generator = sample_generator()
        top, left = (int(generator.integers(space + 1)) for space in room)
        height, width = self.size
        return padded[..., top : top + height, left : left + width]
