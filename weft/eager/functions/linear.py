"""Products of matrices and vectors."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from weft.eager.axes import axis_of
from weft.eager.functions.complex import conj
from weft.eager.functions.elementwise import abs, add, is_one, mul, operands, sub
from weft.eager.functions.reduction import sum
from weft.eager.functions.shape import permute, reshape, squeeze, unsqueeze
from weft.eager.record import as_node, record, wrap
from weft.eager.signature import checked, public
from weft.support.errors import InvalidInputError

if TYPE_CHECKING:
    from weft.eager.tensor import Tensor


@public
def matmul(input: Any, other: Any) -> Tensor:
    """The matrix product; leading axes broadcast, a vector is a row on the left, else a column."""
    a, b = as_node(input), as_node(other)
    ranks = len(a.sig.out.shape), len(b.sig.out.shape)
    if 0 in ranks:
        raise InvalidInputError("matmul of a tensor without axes", got=f"ranks {ranks}",
                                help="use * for scalars")
    if a.sig.out.dtype is not b.sig.out.dtype:
        raise InvalidInputError("matmul of tensors of different dtypes",
                                got=f"{a.sig.out.dtype} and {b.sig.out.dtype}",
                                help="convert one of them with .to(dtype)")
    if ranks == (1, 1):
        return matmul(unsqueeze(input, 0), unsqueeze(other, 1)).reshape(())
    if ranks[0] == 1:
        return squeeze(matmul(unsqueeze(input, 0), other), -2)
    if ranks[1] == 1:
        return squeeze(matmul(input, unsqueeze(other, 1)), -1)
    return wrap(record("nn.matmul", (a, b), {}))


@public
def mm(input: Any, mat2: Any) -> Tensor:
    """The product of two matrices."""
    _check_ranks("mm", 2, input, mat2)
    return matmul(input, mat2)


@public
def bmm(input: Any, mat2: Any) -> Tensor:
    """The products of two stacks of matrices."""
    _check_ranks("bmm", 3, input, mat2)
    return matmul(input, mat2)


@public
def mv(input: Any, vec: Any) -> Tensor:
    """The product of a matrix and a vector."""
    return matmul(input, vec)


@public
def dot(input: Any, tensor: Any) -> Tensor:
    """The sum of products of two vectors."""
    _check_ranks("dot", 1, input, tensor)
    return matmul(input, tensor)


@public
def vdot(input: Any, other: Any) -> Tensor:
    """The sum of products of two vectors, the first conjugated."""
    return dot(conj(input), other)


@public
def inner(input: Any, other: Any) -> Tensor:
    """The sums of products along the last axes."""
    x, y = wrap(as_node(input)), wrap(as_node(other))
    if not x.ndim or not y.ndim:
        return mul(x, y)
    return tensordot(x, y, ([-1], [-1]))


@public
def outer(input: Any, vec2: Any) -> Tensor:
    """All products of the elements of two vectors."""
    return mul(unsqueeze(input, 1), unsqueeze(vec2, 0))


ger = outer


def _plus(input: Any, product: Any, beta: Any, alpha: Any) -> Any:
    """``beta * input + alpha * product``; with a ``beta`` of 0 the input does not count."""
    if product.dtype.rank < 2:  # as torch converts the numbers
        kind = int if product.dtype.rank else bool
        alpha, beta = kind(alpha), kind(beta)
    product = product if is_one(alpha) else mul(product, alpha)
    if beta == 0:
        shape = np.broadcast_shapes(as_node(input).sig.out.shape, tuple(product.shape))
        return product.expand(shape)
    return add(input if is_one(beta) else mul(input, beta), product)


@public
def addmm(input: Any, mat1: Any, mat2: Any, *, beta: Any = 1, alpha: Any = 1) -> Tensor:
    """``beta * input + alpha * mat1 @ mat2``."""
    return _plus(input, matmul(mat1, mat2), beta, alpha)


@public
def addmv(input: Any, mat: Any, vec: Any, *, beta: Any = 1, alpha: Any = 1) -> Tensor:
    """``beta * input + alpha * mat @ vec``."""
    return _plus(input, matmul(mat, vec), beta, alpha)


@public
def addr(input: Any, vec1: Any, vec2: Any, *, beta: Any = 1, alpha: Any = 1) -> Tensor:
    """``beta * input + alpha * outer(vec1, vec2)``."""
    return _plus(input, outer(vec1, vec2), beta, alpha)


@public
def baddbmm(input: Any, batch1: Any, batch2: Any, *, beta: Any = 1, alpha: Any = 1) -> Tensor:
    """``beta * input + alpha * batch1 @ batch2`` for stacks of matrices."""
    return _plus(input, bmm(batch1, batch2), beta, alpha)


@public
def addbmm(input: Any, batch1: Any, batch2: Any, *, beta: Any = 1, alpha: Any = 1) -> Tensor:
    """``beta * input + alpha * sum(batch1 @ batch2)`` over the stack."""
    return _plus(input, sum(bmm(batch1, batch2), 0).to(batch1.dtype), beta, alpha)


@public
def chain_matmul(*matrices: Any) -> Tensor:
    """The product of several matrices."""
    found = matrices[0]
    for one in matrices[1:]:
        found = mm(found, one)
    return found


@public
def einsum(equation: str, *tensors: Any) -> Tensor:
    """Einstein summation: ``einsum("bik,bkj->bij", a, b)``."""
    if len(tensors) == 1 and isinstance(tensors[0], (tuple, list)):
        tensors = tuple(tensors[0])
    nodes = operands(*tensors)
    return wrap(record("einsum", nodes, {"equation": equation.replace(" ", "")}))


@public
def tensordot(a: Any, b: Any, dims: Any = 2) -> Tensor:
    """The sums of products along pairs of axes: the last of ``a`` and first of ``b``, or a pair of
    lists. An axis of size 1 is paired with the sum along the other.
    """
    x, y = wrap(as_node(a)), wrap(as_node(b))
    dims = dims.tolist() if hasattr(dims, "tolist") else dims
    if isinstance(dims, int):
        dims = (list(range(x.ndim - dims, x.ndim)), list(range(dims)))
    first, second = ([axis_of(d, t.ndim) for d in (axes if isinstance(axes, (list, tuple)) else (
        axes,))] for axes, t in zip(dims, (x, y), strict=True))
    for i, j in zip(first, second, strict=True):
        if x.shape[i] == 1 < y.shape[j]:
            y = y.sum(j, keepdim=True, dtype=y.dtype)
        elif y.shape[j] == 1 < x.shape[i]:
            x = x.sum(i, keepdim=True, dtype=x.dtype)
    kept = [a for a in range(x.ndim) if a not in first]
    rest = [a for a in range(y.ndim) if a not in second]
    sizes = (*[x.shape[a] for a in kept], *[y.shape[a] for a in rest])
    depth = math.prod([x.shape[a] for a in first])
    rows, columns = (math.prod([t.shape[i] for i in axes]) for t, axes in ((x, kept), (y, rest)))
    left = reshape(permute(x, *kept, *first) if x.ndim else x, rows, depth)
    right = reshape(permute(y, *second, *rest) if y.ndim else y, depth, columns)
    return reshape(matmul(left, right), sizes)


@public
def kron(input: Any, other: Any) -> Tensor:
    """The Kronecker product: each element of ``input`` times the whole of ``other``."""
    x, y = wrap(as_node(input)), wrap(as_node(other))
    rank = max(x.ndim, y.ndim)
    first = (1,) * (rank - x.ndim) + tuple(x.shape)
    second = (1,) * (rank - y.ndim) + tuple(y.shape)
    wide = reshape(x, tuple([s for size in first for s in (size, 1)]))
    near = reshape(y, tuple([s for size in second for s in (1, size)]))
    return reshape(mul(wide, near), tuple([p * q for p, q in zip(first, second, strict=True)]))


@checked
def trace(input: Any) -> Tensor:
    """The sum of the diagonal of a matrix."""
    _check_ranks("trace", 2, input)
    return sum(input.diagonal())


@public
def cross(input: Any, other: Any, dim: int | None = None) -> Tensor:
    """The cross products of vectors of 3 elements along an axis, the first of that size."""
    x, y = [wrap(n) for n in operands(input, other)]
    shape = np.broadcast_shapes(tuple(x.shape), tuple(y.shape))
    if dim is None:
        dim = next((a for a, size in enumerate(shape) if size == 3), None)
    if dim is None or shape[axis_of(dim, len(shape))] != 3:
        raise InvalidInputError("cross needs an axis of size 3", got=str(shape))
    axis = axis_of(dim, len(shape))
    x, y = x.expand(shape), y.expand(shape)
    following, last = [wrap(as_node(np.array(at, np.int64))) for at in ((1, 2, 0), (2, 0, 1))]
    return sub(mul(x.index_select(axis, following), y.index_select(axis, last)),
               mul(x.index_select(axis, last), y.index_select(axis, following)))


@public
def cdist(x1: Any, x2: Any, p: float = 2.0,
          compute_mode: str = "use_mm_for_euclid_dist_if_necessary") -> Tensor:  # noqa: ARG001 - one way
    """The p-norm distances of all rows of ``x1`` to all rows of ``x2``."""
    x, y = wrap(as_node(x1)), wrap(as_node(x2))
    gap = sub(x.unsqueeze(-2), y.unsqueeze(-3))
    if p == 0:
        return gap.ne(0).sum(-1).to(x.dtype)
    if not gap.shape[-1]:
        return gap.sum(-1)
    return abs(gap).norm(p, -1)


@public
def linear(input: Any, weight: Any, bias: Any = None) -> Tensor:
    """``input @ weight.T + bias``, torch's ``nn.functional.linear``."""
    x, w = as_node(input), as_node(weight)
    shape = x.sig.out.shape
    rows = x if len(shape) == 2 else as_node(reshape(input, (-1, shape[-1])))
    found = wrap(record("nn.dense", (rows, w), {}))
    if len(shape) != 2:
        found = reshape(found, (*shape[:-1], w.sig.out.shape[0]))
    return found if bias is None else add(found, bias)


def _check_ranks(what: str, rank: int, *tensors: Any) -> None:
    for tensor in tensors:
        got = len(as_node(tensor).sig.out.shape)
        if got != rank:
            raise InvalidInputError(f"{what} takes tensors of {rank} axes", got=str(got))
