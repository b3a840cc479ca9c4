"""Elements at the positions that a tensor of indices names along an axis, taken or written."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from weft.eager.axes import axis_of
from weft.eager.cell import Cell
from weft.eager.functions.elementwise import add, cast, is_one, lt, mul, where
from weft.eager.functions.indexing import getitem, in_bounds, setitem
from weft.eager.functions.keys import check_range
from weft.eager.functions.shape import expand, reshape
from weft.eager.record import as_node, record, wrap
from weft.eager.signature import public
from weft.support.errors import InvalidInputError

if TYPE_CHECKING:
    from weft.eager.tensor import Tensor


def _of_points(function: Callable[..., Any]) -> Callable[..., Any]:
    """A public function along an axis that takes a tensor without axes as one element."""

    @functools.wraps(function)
    def call(input: Any, dim: int, index: Any, *rest: Any, **named: Any) -> Any:
        if as_node(input).sig.out.shape:
            return function(input, dim, index, *rest, **named)
        axis_of(dim, 0)
        lines = [reshape(v, -1) if isinstance(v, Cell) else v for v in (input, index, *rest)]
        named = {n: reshape(v, -1) if isinstance(v, Cell) else v for n, v in named.items()}
        return reshape(function(lines[0], 0, *lines[1:], **named), ())

    return public(call)


@public
def gather(input: Any, dim: int, index: Any, *, sparse_grad: bool = False) -> Tensor:  # noqa: ARG001 - dense
    """The element at each index, which replaces the index along one axis."""
    node, at = as_node(input), wrap(as_node(index))
    shape = node.sig.out.shape
    axis = axis_of(dim, len(shape))
    if not at.numel():
        return reshape(getitem(reshape(wrap(node), -1), slice(0, 0)), at.shape)
    if not at.ndim or not shape:
        return reshape(gather(reshape(wrap(node), -1), 0, reshape(at, -1)), at.shape)
    check_range(at, shape[axis], axis)
    found = wrap(record("gather", (node, as_node(at)), {"axis": axis}))
    return in_bounds(found, at, shape[axis], axis)


@public
def take_along_dim(input: Any, indices: Any, dim: int | None = None) -> Tensor:
    """The elements at indices along an axis, or of the flattened tensor; the others broadcast."""
    x, at = wrap(as_node(input)), wrap(as_node(indices))
    if dim is None:
        x, at, dim = reshape(x, -1), reshape(at, -1), 0
    axis = axis_of(dim, x.ndim)
    if x.ndim != at.ndim:
        raise InvalidInputError("take_along_dim takes indices with the axes of the tensor",
                                expected=str(x.ndim), got=str(at.ndim))
    size, count = x.shape[axis], at.shape[axis]
    check_range(at, size, axis)
    rest = np.broadcast_shapes(*[(*t.shape[:axis], 1, *t.shape[axis + 1:]) for t in (x, at)])
    at = where(lt(at, 0), add(at, size), at) if at.dtype.is_signed else at
    sizes = [(*rest[:axis], n, *rest[axis + 1:]) for n in (size, count)]
    return gather(expand(x, sizes[0]), axis, expand(at, sizes[1]))


@_of_points
def index_select(input: Any, dim: int, index: Any) -> Tensor:
    """The slices at these indices along an axis."""
    node, at = as_node(input), reshape(index, -1)
    axis = axis_of(dim, len(node.sig.out.shape))
    check_range(at, node.sig.out.shape[axis], axis)
    found = wrap(record("take", (node, as_node(at)), {"axis": axis}))
    return in_bounds(found, at, node.sig.out.shape[axis], axis)


_REDUCTIONS = {None: "update", "add": "add", "multiply": "mul"}


@_of_points
def scatter(input: Any, dim: int, index: Any, src: Any = None, *, value: Any = None,
            reduce: str | None = None) -> Tensor:
    """``input`` with elements of ``src`` (or a number) written to the index along one axis.

    ``reduce`` is ``"add"`` or ``"multiply"``: then they are combined with what is there.
    """
    if reduce not in {None, "add", "multiply"}:
        raise InvalidInputError("unknown reduce of scatter", got=repr(reduce),
                                expected='"add" or "multiply"')
    return scattered(input, dim, index, value if src is None else src, _REDUCTIONS[reduce])


@_of_points
def scatter_add(input: Any, dim: int, index: Any, src: Any) -> Tensor:
    """``input`` with elements of ``src`` added at the index along one axis."""
    return scattered(input, dim, index, src, "add")


def scattered(input: Any, dim: int, index: Any, src: Any, reduction: str) -> Tensor:
    """``scatter_elements`` of elements of ``src``, or of a number, in the dtype of ``input``."""
    node, at = as_node(input), as_node(index)
    shape, d = node.sig.out.shape, node.sig.out.dtype
    if not at.sig.out.shape:
        at = as_node(reshape(wrap(at), (1,) * len(shape)))
    if 0 in at.sig.out.shape:
        return wrap(record("copy", (node,), {}))
    axis = axis_of(dim, len(shape))
    check_range(wrap(at), shape[axis], axis)
    updates = cast(as_node(src, d), d)
    if updates.sig.out.shape != at.sig.out.shape:
        whole = wrap(updates)
        updates = as_node(expand(whole, at.sig.out.shape) if not updates.sig.out.shape else
                          getitem(whole, tuple([slice(0, s) for s in at.sig.out.shape])))
    found = wrap(record("scatter_elements", (node, at, updates),
                        {"axis": axis, "reduction": reduction}))
    return in_bounds(found, wrap(at), shape[axis], axis)


@_of_points
def index_add(input: Any, dim: int, index: Any, source: Any, *, alpha: Any = 1) -> Tensor:
    """``input`` with slices of ``source`` added at the indices along an axis."""
    axis = axis_of(dim, input.ndim)
    source = source if is_one(alpha) else mul(source, alpha)
    shape = [1] * input.ndim
    shape[axis] = -1
    return scatter_add(input, axis, expand(reshape(index, shape), source.shape), source)


@_of_points
def index_fill(input: Any, dim: int, index: Any, value: Any) -> Tensor:
    """``input`` with ``value`` at the indices along an axis."""
    axis = axis_of(dim, input.ndim)
    return wrap(setitem(input, (*(slice(None),) * axis, index), value))
