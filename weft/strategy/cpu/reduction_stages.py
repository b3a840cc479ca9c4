"""The stages of a group with reductions: which get memory, and along what they run."""

from __future__ import annotations

from dataclasses import dataclass

from weft import te
from weft.strategy.access import step_along
from weft.strategy.analysis import (
    coalesce_axes,
    computes_below,
    consumers_of,
    inlined_body,
    is_reduction,
    size_of,
)
from weft.te.walk import loads_of
from weft.tir.expr import PrimExpr, ProducerLoad, Reduce
from weft.tir.visitor import post_order


@dataclass(frozen=True, slots=True)
class KeptStages:
    """The computes of a group that are not inlined, producers before consumers."""

    ops: tuple[te.ComputeOp, ...]

    @staticmethod
    def of(outputs: tuple[te.Tensor, ...]) -> KeptStages:
        """Outputs, reductions, and what several of them would otherwise compute again."""
        ops = computes_below(outputs)
        results = {id(t.op) for t in outputs}
        readers = consumers_of(ops)
        return KeptStages(tuple(
            op for op in ops
            if id(op) in results
            or is_reduction(op)
            or (len(readers[id(op)]) > 1 and _is_costly(op))
        ))

    @property
    def output(self) -> te.ComputeOp:
        return self.ops[-1]

    @property
    def reductions(self) -> list[te.ComputeOp]:
        return [op for op in self.ops if is_reduction(op)]

    def is_inlined(self, op: te.ComputeOp) -> bool:
        return all(op is not kept for kept in self.ops)

    def body(self, op: te.ComputeOp) -> tuple[PrimExpr, ...]:
        """The body of ``op`` as it reads with what is inlined."""
        return inlined_body(op, self.is_inlined)

    def contiguous_load(self, op: te.ComputeOp) -> tuple[ProducerLoad, te.IterVar] | None:
        """The read of the largest operand that some axis walks along memory, and that axis."""
        loads = [load for load in loads_of(_sources(self.body(op))) if load.indices]
        loads.sort(key=lambda load: -_tensor_elements(load.producer))
        for load in loads:
            for axis in (*op.reduce_axis, *op.axis):
                if step_along(load, axis) == 1 and size_of(axis.extent) > 1:
                    return load, axis
        return None

    def contiguous_axis(self, op: te.ComputeOp) -> te.IterVar | None:
        """The axis along which the largest operand lies contiguously in memory."""
        found = self.contiguous_load(op)
        return None if found is None else found[1]

    def fused_reduction(self, stage: te.Stage, op: te.ComputeOp) -> list[te.IterVar]:
        """The reduction axes, those fused that all reads walk as one."""
        groups = coalesce_axes(op.reduce_axis, _sources(self.body(op)))
        return [stage.fuse(*group) if len(group) > 1 else group[0] for group in groups]

    def shared_rows(self) -> int:
        """How many leading axes all stages share, each reading the others at its own."""
        rows = min(len(op.axis) for op in self.ops)
        for op in self.ops:
            while rows and any(
                a.extent is not b.extent
                for a, b in zip(op.axis[:rows], self.output.axis[:rows], strict=True)
            ):
                rows -= 1
            for load in loads_of(self.body(op)):
                if any(load.producer.op is kept for kept in self.ops):
                    rows = min(rows, _leading_identity(load, op))
        return self._without_vectors(rows)

    def _without_vectors(self, rows: int) -> int:
        """``rows`` less the axes along which memory is contiguous and nothing is reduced.

        Such an axis is the vectors'. A sole reduction down columns needs no rows at all: its
        strips of columns stay in registers, and what follows reads its small result.
        """
        for op in self.reductions:
            contiguous = self.contiguous_axis(op)
            if contiguous in op.axis[:rows]:
                rows = 0 if len(self.reductions) == 1 else op.axis.index(contiguous)
        return rows


def _sources(body: tuple[PrimExpr, ...]) -> tuple[PrimExpr, ...]:
    return tuple(body[0].source) if isinstance(body[0], Reduce) else body


def _is_costly(op: te.ComputeOp) -> bool:
    """Whether computing an element again costs more than reading it: a transcendental does."""
    return any(type(e).__name__ == "Call" for root in op.body for e in post_order(root))


def _leading_identity(load: ProducerLoad, op: te.ComputeOp) -> int:
    count = 0
    for index, axis in zip(load.indices, op.axis, strict=False):
        if index is not axis.var:
            break
        count += 1
    return count


def _tensor_elements(tensor: te.Tensor) -> int:
    count = 1
    for size in tensor.shape:
        count *= size_of(size)
    return count
