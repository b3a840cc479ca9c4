"""Results of a region: arrays become tensors with the strides that torch traced."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch

from weft.compiler.integrations.torch.layout import (
    Axes,
    is_row_major,
    memory_order,
    row_major_strides,
)
from weft.compiler.integrations.torch.traced_sizes import Layout

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
