"""The cost model of NVIDIA GPUs, and the estimate of a call from its types alone."""

from __future__ import annotations

from weft.codegen.cost_model import CostModel, call_work
from weft.codegen.cuda.build import build_kernel_object
from weft.codegen.cuda.static_report import kernel_facts
from weft.ir import Call
from weft.strategy.cuda.machine_model import machine_model
from weft.target import CudaTarget
from weft.tir import PrimFunc


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

    def static_launches(self, func: PrimFunc) -> list[dict[str, str]]:
        """What ``ptxas`` and the PTX say, and how much of an SM the blocks of a launch fill."""
        model = machine_model(self._target)
        rows = []
        for facts in kernel_facts(build_kernel_object(func, self._target)):
            launch, used = facts.launch, facts.resources
            held = model.occupancy(facts.threads, used.registers, facts.shared_bytes)
            rows.append({
                "grid": _extent_text(launch.grid), "block": _extent_text(launch.block),
                "registers": str(used.registers),
                "spills": str(used.spill_stores + used.spill_loads),
                "shared": str(facts.shared_bytes), "occupancy": f"{held.fraction:.0%}",
                "limited by": held.limit,
                "loads and stores": ", ".join(
                    f"{count} {kind}" for kind, count in facts.instructions.items()
                    if kind.startswith(("ld.global", "st.global", "mma", "wgmma", "TMA")))})
        return rows


def roofline_seconds(call: Call, target: CudaTarget) -> float:
    """Seconds of a launch that moves all operands and results once, a thread per element.

    One operation per element of the largest tensor, a polynomial's for expensive operators.
    """
    work = call_work(call)
    operations = work.elements * (CostModel.expensive_operations if work.is_expensive else 1)
    return machine_model(target).kernel_seconds(work.moved_bytes, operations,
                                                max(1, work.elements))


def _extent_text(counts: tuple[object, ...]) -> str:
    """A grid or block without trailing ones."""
    kept = list(counts)
    while len(kept) > 1 and kept[-1] == 1:
        kept.pop()
    return " x ".join(map(str, kept))
