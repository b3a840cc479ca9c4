"""The stages of a group with reductions: the materialized ones, and the axes that they share."""

from __future__ import annotations

import math

from weft import te
from weft.strategy.access import stride_along
from weft.strategy.analysis import (
    coalesce_axes,
    computes_below,
    consumers_of,
    inlined_body,
    is_reduction,
)
from weft.strategy.extents import are_equal, size_of
from weft.support.dataclass import dataclass
from weft.te.walk import loads_of
from weft.tir import Call, FloorDiv, PrimExpr, ProducerLoad, Reduce, int_value, post_order


@dataclass(frozen=True, slots=True)
class SharedRows:
    """The first ``count`` axes of all stages are rows.

    ``group`` adjacent indices of the result along the last of these axes belong to one row.
    """

    count: int
    group: int = 1


@dataclass(frozen=True, slots=True)
class KeptStages:
    """The materialized computes of a group (the others are inlined), producers first."""

    ops: tuple[te.ComputeOp, ...]

    @staticmethod
    def of(outputs: tuple[te.Tensor, ...]) -> KeptStages:
        """Outputs, reductions, and costly stages with several readers."""
        ops = computes_below(outputs)
        results = {id(t.op) for t in outputs}
        # Outputs are stored anyway, and a reduction cannot be inlined.
        readers = consumers_of(ops)
        return KeptStages(tuple(
            op for op in ops
            if id(op) in results
            or is_reduction(op)
            or (len(readers[id(op)]) > 1 and is_costly(op.body))
        ))

    def without_elements(self, outputs: tuple[te.Tensor, ...]) -> KeptStages:
        """Only outputs and reductions: costly stages are recomputed for each of their readers."""
        results = {id(t.op) for t in outputs}
        return KeptStages(tuple(op for op in self.ops if id(op) in results or is_reduction(op)))

    @property
    def output(self) -> te.ComputeOp:
        return self.ops[-1]

    @property
    def reductions(self) -> list[te.ComputeOp]:
        return [op for op in self.ops if is_reduction(op)]

    def is_inlined(self, op: te.ComputeOp) -> bool:
        return all(op is not kept for kept in self.ops)

    def body(self, op: te.ComputeOp) -> tuple[PrimExpr, ...]:
        """The body of ``op`` with inlined producers substituted."""
        return inlined_body(op, self.is_inlined)

    def contiguous_load(self, op: te.ComputeOp) -> tuple[ProducerLoad, te.IterVar] | None:
        """The load of the largest operand that is contiguous along some axis, and that axis."""
        loads = [load for load in loads_of(_sources(self.body(op))) if load.indices]
        # The largest operand causes most of the traffic: it should be read along its rows.
        loads.sort(key=lambda load: -_tensor_elements(load.producer))
        for load in loads:
            for axis in (*op.reduce_axis, *op.axis):
                if stride_along(load, axis) == 1 and size_of(axis.extent) > 1:
                    return load, axis
        return None

    def contiguous_axis(self, op: te.ComputeOp) -> te.IterVar | None:
        """The axis along which the largest operand is contiguous in memory."""
        found = self.contiguous_load(op)
        return None if found is None else found[1]

    def fused_reduction(self, stage: te.Stage, op: te.ComputeOp) -> list[te.IterVar]:
        """The reduction axes; axes that all loads traverse as one are fused."""
        groups = coalesce_axes(op.reduce_axis, _sources(self.body(op)))
        return [stage.fuse(*group) if len(group) > 1 else group[0] for group in groups]

    def reduction_extents(self, op: te.ComputeOp) -> list[int]:
        """The extents of the axes that ``fused_reduction`` gives; typical ones of symbols."""
        groups = coalesce_axes(op.reduce_axis, _sources(self.body(op)))
        return [math.prod(size_of(axis.extent) for axis in group) for group in groups]

    def fused_data(
        self, stage: te.Stage, op: te.ComputeOp, data: list[te.IterVar]
    ) -> list[te.IterVar]:
        """The data loops; axes that all loads traverse as one are fused."""
        whole = [axis for axis in data if axis in op.axis]
        others = [axis for axis in data if axis not in op.axis]
        groups = coalesce_axes(whole, self.body(op))
        return others + [stage.fuse(*group) if len(group) > 1 else group[0] for group in groups]

    def shared_rows(self) -> SharedRows:
        """The leading axes that all stages share and at which they read each other.

        If the result reads the other stages at a quotient of its next axis, as a group norm does,
        the groups along that axis are rows too.
        """
        rows = self._same_rows()
        group = self._group_size(rows)
        return SharedRows(rows, 1) if group == 1 else SharedRows(rows + 1, group)

    def _group_size(self, axis_index: int) -> int:
        """Adjacent indices of the result along an axis that read the same element of the rest."""
        *others, result = self.ops
        is_inner = axis_index >= len(result.axis) - 1
        if is_inner or is_reduction(result) or any(len(op.axis) <= axis_index for op in others):
            return 1
        alike = all(
            op.axis[axis_index].extent is others[0].axis[axis_index].extent
            and all(_leading_identity(load, op) > axis_index for load in self.loads_inside(op))
            for op in others
        )
        sizes = {_divisor(load.indices[axis_index], result.axis[axis_index])
                 for load in self.loads_inside(result)}
        size = sizes.pop() if alike and len(sizes) == 1 else 1
        covers = size > 1 and are_equal(result.axis[axis_index].extent,
                                        others[0].axis[axis_index].extent * size)
        return size if covers else 1

    def loads_inside(self, op: te.ComputeOp) -> list[ProducerLoad]:
        """The loads of other materialized stages by ``op``."""
        return [load for load in loads_of(self.body(op))
                if any(load.producer.op is kept for kept in self.ops)]

    def _same_rows(self) -> int:
        rows = min(len(op.axis) for op in self.ops)
        for op in self.ops:
            while rows and any(
                a.extent is not b.extent
                for a, b in zip(op.axis[:rows], self.output.axis[:rows], strict=True)
            ):
                rows -= 1
            for load in self.loads_inside(op):
                rows = min(rows, _leading_identity(load, op))
        return self._without_vectors(rows)

    def _without_vectors(self, rows: int) -> int:
        """``rows`` without data axes along which an operand is contiguous: those are vectorized.

        A single reduction along an outer axis gets no rows at all: its accumulators stay in
        registers, and later stages read its small result.
        """
        for op in self.reductions:
            contiguous = self.contiguous_axis(op)
            if contiguous in op.axis[:rows]:
                rows = 0 if len(self.reductions) == 1 else op.axis.index(contiguous)
        return rows


def _sources(body: tuple[PrimExpr, ...]) -> tuple[PrimExpr, ...]:
    return tuple(body[0].source) if isinstance(body[0], Reduce) else body


def is_costly(body: tuple[PrimExpr, ...]) -> bool:
    """Whether recomputing an element costs more than loading it: intrinsic calls do."""
    return any(isinstance(e, Call) for root in _sources(body) for e in post_order(root))


def _leading_identity(load: ProducerLoad, op: te.ComputeOp) -> int:
    count = 0
    for index, axis in zip(load.indices, op.axis, strict=False):
        if index is not axis.var:
            break
        count += 1
    return count


def _divisor(index: PrimExpr, axis: te.IterVar) -> int:
    """``n`` if ``index`` is ``axis // n``, else 1."""
    if isinstance(index, FloorDiv) and index.a is axis.var:
        return int_value(index.b) or 1
    return 1


def _tensor_elements(tensor: te.Tensor) -> int:
    count = 1
    for size in tensor.shape:
        count *= size_of(size)
    return count
