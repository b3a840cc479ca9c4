"""The key masks of ONNX Runtime's attention operators, as numbers to add to the scores."""

from __future__ import annotations

from weft import op
from weft.frontend.onnx.contrib.heads import column, hidden_if
from weft.frontend.onnx.node import Node, tensor_type
from weft.frontend.onnx.reshaping import positions, reshape_to
from weft.ir.expr import Expr
from weft.ir.shape import Dim, dims_equal
from weft.support.errors import UnsupportedModelError

_FILTER = -10000.0  # ONNX Runtime's default score of a hidden key


def key_mask(node: Node, mask: Expr, batch: Dim, keys: Dim) -> Expr:
    """Attribute ``mask_filter_value`` where the mask hides a key, else 0.

    The mask is 1 for visible keys, (B, T) or (B, S, T); or it holds the number of visible keys of
    each batch row, (B,) or (3 * B + 2,) with more numbers that are not needed; or the end and
    then the start of the visible keys, (2 * B,).
    """
    score = node.attrs.number("mask_filter_value", _FILTER)
    type_ = tensor_type(mask)
    if type_.ndim == 1:
        return hidden_if(node, _beyond(node, mask, batch, keys), score)
    if type_.ndim > 3:
        raise UnsupportedModelError(f"{node.op} with a mask of rank {type_.ndim}",
                                    where=node.span, expected="rank 1 to 3")
    if dims_equal(type_.shape[-1], keys) is False:
        raise node.fail("the mask does not have the length of the keys", expected=str(keys),
                        got=str(type_))
    hidden = node.call(op.less_equal, mask, node.scalar_like(0, mask))
    shape = (*type_.shape[:1], 1, *((1,) if type_.ndim == 2 else ()), *type_.shape[1:])
    return hidden_if(node, reshape_to(node, hidden, shape), score)


def _beyond(node: Node, ends: Expr, batch: Dim, keys: Dim) -> Expr:
    """True for keys from the end on, and before the start, of each batch row; (B, 1, 1, T)."""
    numbers = positions(node, keys, tensor_type(ends).dtype)
    size, hidden = tensor_type(ends).shape[0], None
    if size != batch:
        if not isinstance(batch, int) or size not in (2 * batch, 3 * batch + 2):
            raise node.fail("the mask does not fit the batch", expected=f"{batch} numbers",
                            got=f"{size} numbers")
        if size == 2 * batch:
            starts = _part(node, ends, batch, 2 * batch)
            hidden = node.call(op.less, numbers, column(node, starts))
        ends = _part(node, ends, 0, batch)
    after = node.call(op.greater_equal, numbers, column(node, ends))
    hidden = after if hidden is None else node.call(op.logical_or, hidden, after)
    return reshape_to(node, hidden, (batch, 1, 1, keys))


def _part(node: Node, values: Expr, begin: int, end: int) -> Expr:
    return node.call(op.strided_slice, values, begin=(begin,), end=(end,), strides=(1,), axes=(0,))
