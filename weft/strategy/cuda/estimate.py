"""The cost model of NVIDIA GPUs, and the estimate of a call from its types alone."""

from __future__ import annotations

from weft.codegen.cost_model import CostModel, call_work
from weft.ir.expr import Call
from weft.strategy.cuda.machine_model import machine_model
from weft.target import CudaTarget


class CudaCostModel(CostModel):
    """The answers of the machine model of a GPU."""

    def __init__(self, target: CudaTarget) -> None:
        super().__init__(target)
        self._target = target
        model = machine_model(target)
        self.launch_seconds = model.launch_seconds
        self.flops_per_second = model.fp32_flops
        self.bytes_per_second = model.bandwidth

    def call_seconds(self, call: Call) -> float:
        return roofline_seconds(call, self._target)


def roofline_seconds(call: Call, target: CudaTarget) -> float:
    """Seconds of a launch that moves all operands and results once, a thread per element.

    One operation per element of the largest tensor, a polynomial's for expensive operators.
    """
    work = call_work(call)
    operations = work.elements * (CostModel.expensive_operations if work.is_expensive else 1)
    return machine_model(target).kernel_seconds(work.moved_bytes, operations,
                                                max(1, work.elements))
