"""Training data: datasets, loaders, transforms and readers, as NumPy arrays.

    from weft import data

    train = data.MNIST("mnist", train=True, transform=data.ToDtype("float32", scale=True))
    loader = data.DataLoader(train, batch_size=64, shuffle=True, seed=1)
    for images, labels in loader: ...

Names and argument orders are those of ``torch.utils.data`` and ``torchvision.transforms.v2``.
All random choices are functions of (seed, epoch, index of the sample), so an epoch can be repeated
and a loader continues in the middle of one. Nothing here imports the compiler.
"""

from __future__ import annotations

from weft.data.arrays import ArrayDataset, TensorDataset
from weft.data.cifar import CIFAR10
from weft.data.collate import default_collate
from weft.data.dataset import (
    ConcatDataset,
    Dataset,
    IterableDataset,
    Subset,
    random_split,
)
from weft.data.loader import DataLoader
from weft.data.mnist import MNIST, read_idx
from weft.data.sample_random import sample_generator
from weft.data.sampler import (
    BatchSampler,
    RandomSampler,
    Sampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)
from weft.data.table import TableDataset, read_table
from weft.data.text import Corpus, Dictionary, batchify, get_batch
from weft.data.transforms import (
    Compose,
    Normalize,
    RandomCrop,
    RandomHorizontalFlip,
    ToDtype,
    ToTensor,
)

__all__ = [
    "CIFAR10",
    "MNIST",
    "ArrayDataset",
    "BatchSampler",
    "Compose",
    "ConcatDataset",
    "Corpus",
    "DataLoader",
    "Dataset",
    "Dictionary",
    "IterableDataset",
    "Normalize",
    "RandomCrop",
    "RandomHorizontalFlip",
    "RandomSampler",
    "Sampler",
    "SequentialSampler",
    "Subset",
    "SubsetRandomSampler",
    "TableDataset",
    "TensorDataset",
    "ToDtype",
    "ToTensor",
    "WeightedRandomSampler",
    "batchify",
    "default_collate",
    "get_batch",
    "random_split",
    "read_idx",
    "read_table",
    "sample_generator",
]
