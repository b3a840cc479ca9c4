"""The memory order of a tensor's axes.

weft computes on row-major tensors. A dense tensor with another order of axes (channels last, a
transposed weight) becomes row-major by a transposition. It is passed and returned in that form,
without a copy, and the compiled program contains the transposition.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch

from weft.compiler.integrations.torch.traced_sizes import Layout

Axes = tuple[int, ...]


def row_major_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """The strides of a dense tensor, as torch counts them."""
    strides, stride = [], 1
    for size in reversed(shape):
        strides.append(stride)
        stride *= max(size, 1)
    return tuple(strides[::-1])


def is_row_major(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether the strides are those of a dense tensor; axes of size 1 may have any stride."""
    dense = row_major_strides(shape)
    return 0 in shape or all(n == 1 or s == d
                             for n, s, d in zip(shape, strides, dense, strict=True))


def memory_order(shape: Sequence[int], strides: Sequence[int]) -> Axes | None:
    """The axes from the outermost in memory to the innermost.

    ``None`` for a row-major tensor, and for one whose elements overlap or leave gaps, which no
    transposition makes row-major.
    """
    if is_row_major(shape, strides):
        return None
    axes = tuple(sorted(range(len(shape)), key=lambda a: (-strides[a], -shape[a], a)))
    permuted = [shape[a] for a in axes], [strides[a] for a in axes]
    return axes if is_row_major(*permuted) else None


def inverse(axes: Axes) -> Axes:
    """The inverse permutation."""
    return tuple(axes.index(axis) for axis in range(len(axes)))


# Takes the iterator over the arrays that a program returned, and gives one result.
Maker = Callable[[Iterator[np.ndarray]], Any]


def order_of(layout: Layout | None) -> Axes | None:
    """The order in which the program transposes an output, so that the tensor needs no copy."""
    return None if layout is None else memory_order(*layout)


def maker_of(layout: Layout | None, dtype: torch.dtype) -> Maker:
    """A function that makes a tensor with ``layout`` of an array transposed by ``order_of``."""
    tensor = tensor_maker(dtype)
    if layout is None or layout[1] == row_major_strides(layout[0]):
        return lambda arrays: tensor(next(arrays))
    shape, strides = layout
    if order_of(layout) is not None or (0 not in shape and is_row_major(shape, strides)):
        return lambda arrays: tensor(next(arrays)).as_strided(shape, strides)
    if 0 in strides:  # elements share memory: only views have such results
        return lambda arrays: tensor(next(arrays))

    def spread(arrays: Iterator[np.ndarray]) -> torch.Tensor:
        return torch.empty_strided(shape, strides, dtype=dtype).copy_(tensor(next(arrays)))

    return spread


def number_maker(value: Any) -> Maker:
    """A function that gives a result which is not a tensor."""
    return lambda _: value


def tensor_maker(dtype: torch.dtype) -> Callable[[np.ndarray], torch.Tensor]:
    """A function that makes a tensor of ``dtype`` over the memory of an array."""
    if dtype is torch.bfloat16:  # from_numpy rejects ml_dtypes.bfloat16
        return lambda array: torch.from_numpy(array.view(np.uint16)).view(torch.bfloat16)
    return torch.from_numpy
