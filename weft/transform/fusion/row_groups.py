"""Groups that work row by row: reductions along rows, and elementwise calls before and after them.

A softmax, a normalisation, or the gradient of one reads each row several times: once for every
reduction, and once for the result. In one kernel the row stays in the cache, as in Inductor's
persistent reductions and in XLA's softmax fusion.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from weft.ir import Call, OpPattern, Shape, TensorType, has_any, typical_size
from weft.op.reduce import ReduceAttrs, reduced_axes
from weft.support.dataclass import dataclass
from weft.transform.analysis.dataflow_graph import DataflowNode
from weft.transform.analysis.graph import is_reshape, known_type


@dataclass(frozen=True, slots=True)
class Rows:
    """Tensors of ``shape`` whose first ``count`` axes number the rows."""

    shape: Shape
    count: int

    @property
    def length(self) -> int:
        return math.prod(typical_size(d) for d in self.shape[self.count:])

    def fits(self, call: Call) -> bool:
        """Whether ``call`` makes whole rows, or one number for each row."""
        type_ = known_type(call)
        if not isinstance(type_, TensorType):
            return False
        if type_.shape == self.shape:
            return True
        return type_.shape[: self.count] == self.shape[: self.count] and all(
            d == 1 for d in type_.shape[self.count:])


def reduced_rows(call: Call) -> Rows | None:
    """The rows that a reduction of trailing axes reduces; ``None`` for other calls."""
    if not isinstance(call.attrs, ReduceAttrs) or len(call.args) != 1:
        return None
    source = known_type(call.args[0])
    if not isinstance(source, TensorType) or has_any(source.shape):
        return None
    axes = reduced_axes(call.attrs, source.ndim)
    count = source.ndim - len(axes)
    if not axes or not count or axes != tuple(range(count, source.ndim)):
        return None
    return Rows(source.shape, count)


def rows_of_group(nodes: Iterable[DataflowNode], longest: int) -> Rows | None:
    """The rows that all calls of a group share; ``None`` if nothing is gained row by row.

    A row must be read again after a reduction: by the result, or by another reduction. It has at
    most ``longest`` elements.
    """
    members = list(nodes)
    found = [reduced_rows(n.call) for n in members if n.pattern is OpPattern.COMM_REDUCE]
    rows = found[0] if found else None
    if rows is None or any(other != rows for other in found) or rows.length > longest:
        return None
    is_reread = len(found) > 1 or _is_whole(members[-1], rows)
    return rows if is_reread and all(_runs_by_rows(n, rows) for n in members) else None


def _is_whole(node: DataflowNode, rows: Rows) -> bool:
    type_ = known_type(node.call)
    return isinstance(type_, TensorType) and type_.shape == rows.shape


def _runs_by_rows(node: DataflowNode, rows: Rows) -> bool:
    if node.pattern <= OpPattern.BROADCAST or node.pattern is OpPattern.COMM_REDUCE:
        return rows.fits(node.call)
    # Axes of size 1 come and go; a reshape that regroups elements is a barrier already.
    return node.pattern is OpPattern.INJECTIVE and is_reshape(node.call) and rows.fits(node.call)
