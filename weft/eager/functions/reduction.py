"""Reductions of tensors along axes."""

from __future__ import annotations

from collections import namedtuple
from typing import TYPE_CHECKING, Any

from weft.eager.axes import axes_of, axis_of
from weft.eager.dtypes import as_dtype, bool_, get_default_dtype, int64
from weft.eager.emitter import TENSORS
from weft.eager.functions.elementwise import cast, sub
from weft.eager.node import Node
from weft.eager.record import as_node, record, wrap
from weft.op.composites import norms
from weft.support.errors import InvalidInputError

if TYPE_CHECKING:
    from weft.eager.tensor import Tensor

Extreme = namedtuple("Extreme", ["values", "indices"])  # noqa: PYI024 - torch's two fields


def _reduce(name: str, node: Node, dim: Any, keepdim: bool) -> Tensor:
    axes = axes_of(dim, len(node.sig.out.shape))
    if not node.sig.out.shape:
        axes = None
    return wrap(record(name, (node,), {"axis": axes, "keepdims": bool(keepdim)}))


def _summed(input: Any, dtype: Any) -> Node:
    """The operand of a sum: integers add in int64."""
    node = as_node(input)
    if dtype is not None:
        return cast(node, as_dtype(dtype))
    return node if node.sig.out.dtype.is_floating_point else cast(node, int64)


def sum(input: Any, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
    """The sum along axes, by default of all elements; integers add in int64."""
    return _reduce("sum", _summed(input, dtype), dim, keepdim)


def prod(input: Any, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
    """The product along an axis, by default of all elements."""
    return _reduce("prod", _summed(input, dtype), dim, keepdim)


def _averaged(input: Any, dtype: Any, what: str) -> Node:
    node = as_node(input)
    if dtype is not None:
        node = cast(node, as_dtype(dtype))
    if not node.sig.out.dtype.is_floating_point:
        raise InvalidInputError(f"{what} of a tensor that is not floating point",
                                got=repr(node.sig.out.dtype), help="convert it with .float()")
    return node


def mean(input: Any, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
    """The mean along axes."""
    return _reduce("mean", _averaged(input, dtype, "mean"), dim, keepdim)


def var(input: Any, dim: Any = None, correction: int = 1, keepdim: bool = False, *,
        unbiased: bool | None = None) -> Tensor:
    """The variance: the sum of squared distances from the mean, over count - ``correction``."""
    if unbiased is not None:
        correction = int(unbiased)
    node = _averaged(input, None, "var")
    shape = node.sig.out.shape
    axes = axes_of(dim, len(shape))
    count = 1
    for axis in range(len(shape)) if axes is None else axes:
        count *= shape[axis]
    centre = mean(wrap(node), dim, keepdim=True) if shape else wrap(node)
    distance = sub(wrap(node), centre)
    total = sum(distance * distance, dim, keepdim)
    return total / float(count - correction) if count > correction else total * float("nan")


def std(input: Any, dim: Any = None, correction: int = 1, keepdim: bool = False, *,
        unbiased: bool | None = None) -> Tensor:
    """The square root of the variance."""
    spread = var(input, dim, correction, keepdim, unbiased=unbiased)
    return norms.root_of_sum(TENSORS, spread, 2)


def var_mean(input: Any, dim: Any = None, correction: int = 1, keepdim: bool = False
             ) -> tuple[Tensor, Tensor]:
    """The variance and the mean."""
    return var(input, dim, correction, keepdim), mean(input, dim, keepdim)


def amax(input: Any, dim: Any = None, keepdim: bool = False) -> Tensor:
    """The largest element along axes."""
    return _reduce("max", as_node(input), dim, keepdim)


def amin(input: Any, dim: Any = None, keepdim: bool = False) -> Tensor:
    """The smallest element along axes."""
    return _reduce("min", as_node(input), dim, keepdim)


def argmax(input: Any, dim: int | None = None, keepdim: bool = False) -> Tensor:
    """The index of the largest element, of the flattened tensor by default."""
    return _index("argmax", input, dim, keepdim)


def argmin(input: Any, dim: int | None = None, keepdim: bool = False) -> Tensor:
    """The index of the smallest element, of the flattened tensor by default."""
    return _index("argmin", input, dim, keepdim)


def _index(name: str, input: Any, dim: int | None, keepdim: bool) -> Tensor:
    node = as_node(input)
    shape = node.sig.out.shape
    if dim is None:
        node = record("reshape", (node,), {"newshape": (-1,)})
        found = wrap(record(name, (node,), {"axis": 0}))
        return found.reshape((1,) * len(shape)) if keepdim else found
    attrs = {"axis": axis_of(dim, len(shape)), "keepdims": bool(keepdim)}
    return wrap(record(name, (node,), attrs))


def max(input: Any, dim: Any = None, keepdim: bool = False) -> Any:
    """The largest element; along an axis, values and indices; of two tensors, elementwise."""
    return _extreme("max", input, dim, keepdim)


def min(input: Any, dim: Any = None, keepdim: bool = False) -> Any:
    """The smallest element; along an axis, values and indices; of two tensors, elementwise."""
    return _extreme("min", input, dim, keepdim)


def _extreme(name: str, input: Any, dim: Any, keepdim: bool) -> Any:
    if dim is None:
        return _reduce(name, as_node(input), None, False)
    if not isinstance(dim, int):
        return input.maximum(dim) if name == "max" else input.minimum(dim)
    node = as_node(input)
    # Gathering by index gives one of several equal elements the gradient, as in torch.
    indices = _index(f"arg{name}", input, dim, True)
    axis = axis_of(dim, len(node.sig.out.shape))
    values = wrap(record("gather", (node, as_node(indices)), {"axis": axis}))
    if keepdim:
        return Extreme(values, indices)
    return Extreme(values.squeeze(axis), indices.squeeze(axis))


def all(input: Any, dim: Any = None, keepdim: bool = False) -> Tensor:
    """Whether all elements are nonzero."""
    return _reduce("all", cast(as_node(input), bool_), dim, keepdim)


def any(input: Any, dim: Any = None, keepdim: bool = False) -> Tensor:
    """Whether one element is nonzero."""
    return _reduce("any", cast(as_node(input), bool_), dim, keepdim)


def norm(input: Any, p: Any = 2, dim: Any = None, keepdim: bool = False) -> Tensor:
    """The p-norm: ``sum(abs(x) ** p) ** (1 / p)``; ``inf`` gives the largest, 0 counts."""
    x = wrap(_averaged(input, None, "norm"))
    axes = axes_of(dim, x.ndim) if x.ndim else None
    return norms.p_norm(TENSORS, x, 2.0 if p == "fro" else p, axes, bool(keepdim))


def logsumexp(input: Any, dim: Any, keepdim: bool = False) -> Tensor:
    """``log(sum(exp(input)))``, without overflow."""
    x = wrap(_averaged(input, None, "logsumexp"))
    found = norms.logsumexp(TENSORS, x, axes_of(dim, x.ndim) if x.ndim else None)
    return found if keepdim else found.squeeze(dim)


def softmax(input: Any, dim: int = -1, *, dtype: Any = None) -> Tensor:
    """``exp(x) / sum(exp(x))`` along an axis."""
    node = _averaged(input, dtype, "softmax")
    return wrap(record("nn.softmax", (node,), {"axis": axis_of(dim, len(node.sig.out.shape))}))


def log_softmax(input: Any, dim: int = -1, *, dtype: Any = None) -> Tensor:
    """The logarithm of the softmax."""
    node = _averaged(input, dtype, "log_softmax")
    return wrap(record("nn.log_softmax", (node,), {"axis": axis_of(dim, len(node.sig.out.shape))}))


def cumsum(input: Any, dim: int, *, dtype: Any = None) -> Tensor:
    """The cumulative sum along an axis."""
    node = _summed(input, dtype)
    return wrap(record("cumsum", (node,), {"axis": axis_of(dim, len(node.sig.out.shape))}))


def cumprod(input: Any, dim: int, *, dtype: Any = None) -> Tensor:
    """The cumulative product along an axis."""
    node = _summed(input, dtype)
    return wrap(record("cumprod", (node,), {"axis": axis_of(dim, len(node.sig.out.shape))}))


def topk(input: Any, k: int, dim: int = -1, largest: bool = True) -> Extreme:
    """The k largest (or smallest) elements along an axis in order, and their indices."""
    node = as_node(input)
    attrs = {"axis": axis_of(dim, len(node.sig.out.shape)), "is_ascend": not largest, "k": k}
    return Extreme(*wrap(record("topk", (node,), attrs)))


def sort(input: Any, dim: int = -1, descending: bool = False) -> Extreme:
    """The elements along an axis in sorted order, and their indices; the sort is stable."""
    node = as_node(input)
    axis = axis_of(dim, len(node.sig.out.shape))
    attrs = {"axis": axis, "is_ascend": not descending}
    order = record("argsort", (node,), attrs)
    return Extreme(wrap(record("gather", (node, order), {"axis": axis})), wrap(order))


def argsort(input: Any, dim: int = -1, descending: bool = False) -> Tensor:
    """The indices that sort the elements along an axis."""
    return sort(input, dim, descending).indices


def default_float(input: Any) -> Node:
    """The node of an operand, integers converted to the default dtype."""
    node = as_node(input)
    return node if node.sig.out.dtype.is_floating_point else cast(node, get_default_dtype())
