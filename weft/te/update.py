"""The store that one iteration of a stage's innermost loop performs."""

from __future__ import annotations

from dataclasses import field

from weft import tir
from weft.support.dataclass import dataclass
from weft.te.domain import axis_values, loop_extents
from weft.te.state import StageState
from weft.te.tensor import IterVar, Tensor
from weft.te.walk import rewrite_body


@dataclass(slots=True, eq=False)
class Update:
    """The store of one iteration of all loops, over buffers of the tensors' full shapes."""

    stage: StageState
    buffers: dict[Tensor, tir.Buffer] = field(default_factory=dict)

    def store(self) -> tir.BufferStore:
        """The store as a function of the stage's loop variables, without guards."""
        op = self.stage.require_compute("tensorize")
        extents = loop_extents(self.stage, {a: a.extent for a in self.stage.root_iter_vars})
        # As in bound inference, a loop of one iteration has no variable.
        leaves: dict[IterVar, tir.PrimExpr] = {
            a: tir.const(0) if tir.int_value(extents[a]) == 1 else a.var
            for a in self.stage.leaf_iter_vars}
        values = axis_values(self.stage.relations, leaves, extents)
        mapping = {a.var: a.min + values[a] for a in self.stage.root_iter_vars}
        indices = tuple(mapping[a.var] for a in op.axis)
        first = op.body[0]
        written = tir.BufferLoad(self._buffer(self.stage.tensors[0]), indices)
        if not isinstance(first, tir.Reduce):
            (value,) = rewrite_body(op.body, mapping, self._load)
            return tir.BufferStore(written.buffer, value, indices)
        source = rewrite_body(first.source, mapping, self._load)
        combiner = first.combiner
        combined = tir.substitute(combiner.result[0],
                                  {combiner.lhs[0]: written, combiner.rhs[0]: source[0]})
        return tir.BufferStore(written.buffer, combined, indices)

    def _load(self, e: tir.ProducerLoad) -> tir.PrimExpr:
        return tir.BufferLoad(self._buffer(e.producer), e.indices)

    def _buffer(self, tensor: Tensor) -> tir.Buffer:
        if tensor not in self.buffers:
            self.buffers[tensor] = tir.Buffer(tensor.name, tensor.shape, tensor.dtype)
        return self.buffers[tensor]
