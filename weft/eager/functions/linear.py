"""Products of matrices."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from weft.eager.functions.elementwise import add, is_one, mul, operands
from weft.eager.functions.shape import reshape, squeeze, unsqueeze
from weft.eager.record import as_node, record, wrap
from weft.support.errors import InvalidInputError

if TYPE_CHECKING:
    from weft.eager.tensor import Tensor


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


def mm(input: Any, mat2: Any) -> Tensor:
    """The product of two matrices."""
    _check_ranks("mm", 2, input, mat2)
    return matmul(input, mat2)


def bmm(input: Any, mat2: Any) -> Tensor:
    """The products of two stacks of matrices."""
    _check_ranks("bmm", 3, input, mat2)
    return matmul(input, mat2)


def mv(input: Any, vec: Any) -> Tensor:
    """The product of a matrix and a vector."""
    return matmul(input, vec)


def dot(input: Any, tensor: Any) -> Tensor:
    """The sum of products of two vectors."""
    _check_ranks("dot", 1, input, tensor)
    return matmul(input, tensor)


def outer(input: Any, vec2: Any) -> Tensor:
    """All products of the elements of two vectors."""
    return mul(unsqueeze(input, 1), unsqueeze(vec2, 0))


def addmm(input: Any, mat1: Any, mat2: Any, *, beta: Any = 1, alpha: Any = 1) -> Tensor:
    """``beta * input + alpha * mat1 @ mat2``."""
    product = matmul(mat1, mat2)
    product = product if is_one(alpha) else mul(product, alpha)
    return add(input if is_one(beta) else mul(input, beta), product)


def einsum(equation: str, *tensors: Any) -> Tensor:
    """Einstein summation: ``einsum("bik,bkj->bij", a, b)``."""
    if len(tensors) == 1 and isinstance(tensors[0], (tuple, list)):
        tensors = tuple(tensors[0])
    nodes = operands(*tensors)
    return wrap(record("einsum", nodes, {"equation": equation.replace(" ", "")}))


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
