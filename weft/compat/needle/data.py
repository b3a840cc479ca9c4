"""Needle's data sets and loader (``needle.data``): batches are tensors of Needle.

Draws are those of NumPy's global generator in Needle's order. Files are read by ``weft.data``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from os import PathLike
from typing import Any

import numpy as np

from weft.compat.needle.ops import Tensor
from weft.data import CIFAR10, Dictionary, read_idx, text
from weft.support.errors import DataError

Transform = Callable[[np.ndarray], np.ndarray]


class RandomFlipHorizontal:
    """Mirror an image (H, W, C) with probability ``p``."""

    def __init__(self, p: float = 0.5) -> None:
        self.p = p

    def __call__(self, img: np.ndarray) -> np.ndarray:
        return img[:, ::-1, :] if np.random.rand() < self.p else img  # noqa: NPY002 - Needle's draws


class RandomCrop:
    """Shift an image (H, W, C) by up to ``padding`` pixels, with zeros where it leaves."""

    def __init__(self, padding: int = 3) -> None:
        self.padding = padding

    def __call__(self, img: np.ndarray) -> np.ndarray:
        pad = self.padding
        down, right = np.random.randint(-pad, pad + 1, size=2)  # noqa: NPY002 - as above
        wide = np.pad(img, ((pad, pad), (pad, pad), (0, 0)))
        height, width = img.shape[:2]
        return wide[pad + down:pad + down + height, pad + right:pad + right + width]


class Dataset:
    """Samples by number; ``transforms`` change the first value of each."""

    def __init__(self, transforms: Sequence[Transform] | None = None) -> None:
        self.transforms = transforms

    def __getitem__(self, index: Any) -> Any:
        raise DataError(f"{type(self).__name__} has no samples", got=repr(index))

    def __len__(self) -> int:
        return 0

    def apply_transforms(self, x: Any) -> Any:
        """``x`` after all transforms."""
        for transform in self.transforms or ():
            x = transform(x)
        return x


class NDArrayDataset(Dataset):
    """Rows of arrays."""

    def __init__(self, *arrays: Any) -> None:
        super().__init__()
        self.arrays = arrays

    def __len__(self) -> int:
        return int(self.arrays[0].shape[0])

    def __getitem__(self, index: Any) -> Any:
        return tuple(array[index] for array in self.arrays)


class ImageDataset(Dataset):
    """Images of floats and their labels; a transform sees (H, W, C)."""

    def __init__(self, images: np.ndarray, labels: np.ndarray,
                 transforms: Sequence[Transform] | None) -> None:
        super().__init__(transforms)
        self.images, self.labels = images, labels

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: Any) -> Any:
        if np.ndim(index) or isinstance(index, slice):
            numbers = np.arange(len(self))[index]
            return np.stack([self._image(i) for i in numbers]), self.labels[index]
        return self._image(index), self.labels[index]

    def _image(self, index: int) -> np.ndarray:
        return self.apply_transforms(self.images[index]) if self.transforms else self.images[index]


class MNISTDataset(ImageDataset):
    """Images (28, 28, 1) between 0 and 1 of files in MNIST's format; flat without transforms."""

    def __init__(self, image_filename: str | PathLike[str], label_filename: str | PathLike[str],
                 transforms: Sequence[Transform] | None = None) -> None:
        images = read_idx(image_filename).astype(np.float32) / 255
        super().__init__(images[..., None], read_idx(label_filename), transforms)

    def _image(self, index: int) -> np.ndarray:
        image = super()._image(index)
        return image if self.transforms else image.reshape(-1)


class CIFAR10Dataset(ImageDataset):
    """Images (3, 32, 32) between 0 and 1 of a folder with CIFAR-10's files."""

    def __init__(self, base_folder: str | PathLike[str], train: bool, p: float | None = 0.5,
                 transforms: Sequence[Transform] | None = None) -> None:
        del p  # the probability of transforms, which the transforms hold
        read: Any = CIFAR10(base_folder, train)
        images, labels = read.arrays
        super().__init__(images.astype(np.float32) / 255, labels, transforms)


class DataLoader:
    """Batches of a data set as tuples of tensors, in order, or shuffled anew for each epoch."""

    def __init__(self, dataset: Dataset, batch_size: int = 1, shuffle: bool = False,
                 device: Any = None, dtype: str = "float32") -> None:
        self.dataset, self.batch_size, self.shuffle = dataset, batch_size, shuffle
        self.device, self.dtype = device, dtype

    def __iter__(self) -> Iterator[tuple[Tensor, ...]]:
        count = len(self.dataset)
        order = np.arange(count)
        if self.shuffle:
            np.random.shuffle(order)  # noqa: NPY002 - as above
        for numbers in np.array_split(order, range(self.batch_size, count, self.batch_size)):
            yield tuple(Tensor(np.asarray(part), device=self.device, requires_grad=False)
                        for part in self.dataset[numbers])


class Corpus:
    """The words of ``train.txt`` and ``test.txt`` as numbers."""

    def __init__(self, base_dir: str | PathLike[str], max_lines: int | None = None) -> None:
        self.dictionary = Dictionary()
        self.train = self.tokenize(f"{base_dir}/train.txt", max_lines)
        self.test = self.tokenize(f"{base_dir}/test.txt", max_lines)

    def tokenize(self, path: str | PathLike[str], max_lines: int | None = None) -> list[int]:
        """The numbers of the words of a file."""
        return [int(i) for i in text.Corpus.tokenize(self, path, max_lines)]  # type: ignore[arg-type]


def batchify(data: Sequence[int], batch_size: int, device: Any = None, dtype: str = "float32"
             ) -> np.ndarray:
    """The text in ``batch_size`` columns."""
    del device  # batches are made by ``get_batch``
    return text.batchify(np.asarray(data), batch_size).astype(dtype)


def get_batch(batches: np.ndarray, i: int, bptt: int, device: Any = None, dtype: str = "float32"
              ) -> tuple[Tensor, Tensor]:
    """Rows from ``i`` on, and the words that follow each."""
    x, y = text.get_batch(batches, i, bptt)
    made = {"device": device, "dtype": dtype, "requires_grad": False}
    return Tensor(x, **made), Tensor(y, **made)
