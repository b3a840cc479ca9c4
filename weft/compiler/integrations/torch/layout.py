"""The memory order of a tensor's axes.

weft computes on row-major tensors. A dense tensor with another order of axes (channels last, a
transposed weight) becomes row-major by a transposition. It is passed and returned in that form,
without a copy, and the compiled program contains the transposition.
"""

from __future__ import annotations

from collections.abc import Sequence

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
