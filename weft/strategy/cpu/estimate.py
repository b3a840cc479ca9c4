"""The cost model of CPUs, and estimates of a call from its types alone, without its schedule."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from weft.codegen.cost_model import CostModel, Prediction, call_work, tensor_types, typical_elements
from weft.ir import Call, DType, TensorType
from weft.strategy.cpu.machine_model import machine_model
from weft.target import CpuTarget

if TYPE_CHECKING:
    from weft.tir import PrimFunc

# Bytes of L2 for each element of a row that is read twice: half of it holds the row and its result.
_L2_BYTES_PER_ELEMENT = 16


class CpuCostModel(CostModel):
    """The answers of the machine model of a CPU."""

    def __init__(self, target: CpuTarget) -> None:
        super().__init__(target)
        self._target = target
        self.longest_row = target.l2_bytes // _L2_BYTES_PER_ELEMENT
        self.parallel_from = machine_model(target).parallel_threshold

    def call_seconds(self, call: Call) -> float:
        return roofline_seconds(call, self._target)

    def work_seconds(self, flops: float, moved_bytes: float, itemsize: int) -> float:
        model = machine_model(self._target)
        return self.launch_seconds + model.seconds(
            model.roofline_cycles(flops, itemsize, moved_bytes))

    def conversion_seconds(self, type_: TensorType) -> float:
        model = machine_model(self._target)
        cycles = model.conversion_cycles(type_.dtype.itemsize) * math.prod(type_.concrete_shape)
        return model.seconds(cycles)

    def predict(self, func: PrimFunc) -> Prediction | None:
        from weft.strategy.cpu.prediction.predict import predict  # only for kernels that are built

        return predict(func, self._target)

    def multiplies_bytes(self, left: DType, right: DType) -> bool:
        from weft.strategy.cpu.dot_product.instruction import select_dot_instruction

        return select_dot_instruction(left, right, self._target) is not None


def roofline_seconds(call: Call, target: CpuTarget) -> float:
    """Seconds to move all operands and results once, with one operation per element of the largest.

    An expensive operator takes as long per vector as an exponential. The estimate is a lower bound.
    """
    work, model = call_work(call), machine_model(target)
    cycles = model.roofline_cycles(work.elements, work.itemsize, work.moved_bytes)
    if work.is_expensive:
        vectors = work.elements * work.itemsize / model.vector_bytes
        cycles = max(cycles, vectors * model.exp_vector_cycles)
    return model.seconds(cycles)


def gemm_seconds(call: Call, target: CpuTarget) -> float:
    """Seconds of a matmul, batched or not, by the default schedule, which blocks nothing."""
    sizes = [typical_elements(t) for x in (call, *call.args[:2])
             for t in tensor_types(x.checked_type)]
    # (M * N) * (M * K) * (K * N) is the square of M * N * K; zeros in panels add a little.
    multiply_adds = math.isqrt(math.prod(sizes))
    model = machine_model(target)
    arithmetic = model.seconds(multiply_adds * model.unblocked_fma_cycles)
    return arithmetic + roofline_seconds(call, target)
