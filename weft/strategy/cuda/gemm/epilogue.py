"""What a kernel stores for each sum: the operators fused after a product, element by element."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from weft import te
from weft.ir import DType
from weft.strategy.analysis import inlined_body
from weft.strategy.cuda.gemm.operand import over_buffers
from weft.support.dataclass import dataclass
from weft.te import loads_of, rewrite_body
from weft.tir import BufferStore, PrimExpr, ProducerLoad, Reduce, Var, const, int_value, substitute
from weft.tir.buffer import Buffer


@dataclass(frozen=True, slots=True, eq=False)
class Result:
    """One output: ``value`` and ``indices`` are over the axes of the product and ``total``."""

    tensor: te.Tensor
    value: PrimExpr
    indices: tuple[PrimExpr, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Epilogue:
    """The results for one element of the product, whose sum is the variable ``total``."""

    total: Var
    results: tuple[Result, ...]

    def inputs(self) -> list[te.Tensor]:
        """The tensors that the results read."""
        found = [load.producer for r in self.results for load in loads_of((r.value,))]
        return list(dict.fromkeys(found))

    def stores(
        self, index: Mapping[Var, PrimExpr], total: PrimExpr,
        buffers: Callable[[te.Tensor], Buffer], outputs: Sequence[Buffer],
    ) -> list[BufferStore]:
        """The stores of the element of the product at ``index``."""
        values = {**index, self.total: total}
        return [
            BufferStore(out, substitute(over_buffers(r.value, buffers), values),
                        tuple(substitute(i, values) for i in r.indices))
            for r, out in zip(self.results, outputs, strict=True)]


def epilogue_of(
    outputs: Sequence[te.Tensor], op: te.ComputeOp, accumulator: DType
) -> Epilogue | str:
    """The results of a kernel with the sums of ``op``, or why they are not computed in registers.

    ``accumulator`` is the type of the sums.
    """
    total = Var("total", accumulator)
    results = []
    for tensor in outputs:
        result = _result(tensor, op, total)
        if isinstance(result, str):
            return result
        results.append(result)
    return Epilogue(total, tuple(results))


def _result(tensor: te.Tensor, op: te.ComputeOp, total: Var) -> Result | str:
    if tensor.op is op:
        return Result(tensor, total.astype(tensor.dtype), tuple(axis.var for axis in op.axis))
    last = tensor.op
    if not isinstance(last, te.ComputeOp):
        return f"{tensor.name} is not a compute"
    body = inlined_body(last, lambda p: p is not op and not isinstance(p.body[0], Reduce))
    value = body[tensor.value_index]
    if isinstance(value, Reduce) or any(
            isinstance(e.producer.op, te.ComputeOp) and e.producer.op is not op
            for e in loads_of((value,))):
        return f"{tensor.name} needs another reduction"
    sums = [e for e in loads_of((value,)) if e.producer.op is op]
    if not sums:
        return f"{tensor.name} does not depend on the product"
    axes = _axes_of(sums[0], last, op)
    if isinstance(axes, str) or len(sums) > 1:
        return axes if isinstance(axes, str) else f"{tensor.name} reads several sums"

    def on_load(e: ProducerLoad) -> PrimExpr:
        return total.astype(e.dtype) if e.producer.op is op else e

    (value,) = rewrite_body((value,), axes, on_load)
    return Result(tensor, value, tuple(axes[axis.var] for axis in last.axis))


def _axes_of(
    load: ProducerLoad, last: te.ComputeOp, op: te.ComputeOp
) -> dict[Var, PrimExpr] | str:
    """The axes of ``last`` in terms of those of ``op``, where each sum has one element."""
    mine = {axis.var for axis in last.axis}
    found: dict[Var, PrimExpr] = {}
    for index, axis in zip(load.indices, op.axis, strict=True):
        if isinstance(index, Var) and index in mine and index not in found:
            found[index] = axis.var
        elif int_value(axis.extent) != 1:
            return f"{last.name} rearranges the product"
    for axis in last.axis:
        if axis.var not in found and int_value(axis.extent) != 1:
            return f"{last.name} repeats the product"
        found.setdefault(axis.var, const(0))
    return found
