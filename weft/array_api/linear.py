"""Products of matrices and vectors."""

from __future__ import annotations

from collections.abc import Sequence

from weft.array_api.data_types import broadcast_arrays, promoted
from weft.eager.functions import linear
from weft.eager.functions.complex import conj
from weft.eager.functions.shape import movedim
from weft.eager.tensor import Tensor
from weft.support.errors import InvalidInputError


def matmul(x1: Tensor, x2: Tensor, /) -> Tensor:
    """The product of matrices, or of stacks of them; a vector is a row or a column."""
    a, b = promoted(x1, x2)
    if not a.ndim or not b.ndim:
        raise InvalidInputError("matmul takes arrays with axes",
                                got=f"{tuple(a.shape)}, {tuple(b.shape)}")
    return linear.matmul(a, b)


def matrix_transpose(x: Tensor, /) -> Tensor:
    """With the last two axes exchanged."""
    if x.ndim < 2:
        raise InvalidInputError("matrix_transpose takes matrices", got=tuple(x.shape))
    return x.transpose(-2, -1)


def tensordot(
    x1: Tensor, x2: Tensor, /, *, axes: int | tuple[Sequence[int], Sequence[int]] = 2
) -> Tensor:
    """The sum of products over axes: the last ones and the first ones, or pairs of axes."""
    a, b = promoted(x1, x2)
    if isinstance(axes, int):
        first, second = tuple(range(a.ndim - axes, a.ndim)), tuple(range(axes))
    else:
        first, second = (tuple(i % x.ndim for i in one) for one, x in zip(axes, (a, b),
                                                                         strict=True))
    if [a.shape[i] for i in first] != [b.shape[i] for i in second]:
        raise InvalidInputError("tensordot: the sizes of the axes differ",
                                expected=[a.shape[i] for i in first],
                                got=[b.shape[i] for i in second])
    return linear.tensordot(a, b, (first, second))


def vecdot(x1: Tensor, x2: Tensor, /, *, axis: int = -1) -> Tensor:
    """The sum of products along an axis, the first array conjugated."""
    a, b = promoted(x1, x2)
    if not -min(a.ndim, b.ndim) <= axis < 0 or a.shape[axis] != b.shape[axis]:
        raise InvalidInputError("vecdot: the sizes of the axis differ, or it is not negative",
                                got=f"{tuple(a.shape)}, {tuple(b.shape)}, axis={axis}")
    a, b = (movedim(x, axis, -1) for x in (a, b))
    a, b = broadcast_arrays(a, b)
    product = conj(a) * b
    return product.sum(-1).to(product.dtype)
