"""The order in which the axes of a tensor lie in memory.

weft computes with row-major tensors. A tensor whose axes lie in another order (channels last, a
transposed weight) is row-major once transposed, so it is passed and returned that way, without a
copy, and the transposition is part of the compiled program.
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
    """Whether elements lie as in a dense tensor; the strides of single elements do not matter."""
    dense = row_major_strides(shape)
    return 0 in shape or all(n == 1 or s == d
                             for n, s, d in zip(shape, strides, dense, strict=True))


def memory_order(shape: Sequence[int], strides: Sequence[int]) -> Axes | None:
    """The axes from the outermost in memory to the innermost; ``None`` for a row-major tensor.

    ``None`` also where elements overlap or leave gaps: no order makes such a tensor row-major.
    """
    if is_row_major(shape, strides):
        return None
    axes = tuple(sorted(range(len(shape)), key=lambda a: (-strides[a], -shape[a], a)))
    permuted = [shape[a] for a in axes], [strides[a] for a in axes]
    return axes if is_row_major(*permuted) else None


def inverse(axes: Axes) -> Axes:
    """The transposition that undoes another."""
    return tuple(axes.index(axis) for axis in range(len(axes)))
