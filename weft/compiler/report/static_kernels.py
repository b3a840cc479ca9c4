"""A profile of the CUDA kernels of a model without a GPU: what the assembler says, and estimates.

``weft profile --static`` prints it. Estimates rank schedules; they are not measurements.
"""

from __future__ import annotations

from weft.codegen.cuda.build import build_kernel_object
from weft.codegen.cuda.static_report import KernelFacts, kernel_facts
from weft.compiler.build.kernel import lower_kernel
from weft.compiler.options import CompileOptions
from weft.compiler.program.program import KernelSource
from weft.compiler.sources import Source
from weft.compiler.stages import Stages, kernels_of
from weft.strategy import LoweredKernel
from weft.strategy.cuda.machine_model import machine_model
from weft.support.dataclass import dataclass
from weft.support.errors import TargetError
from weft.target import CudaTarget

COLUMNS = ("operators", "implementation", "grid", "block", "registers", "spills", "shared",
           "occupancy", "limited by", "loads and stores", "roofline us", "bound by")


@dataclass(frozen=True, slots=True)
class StaticLaunch:
    """One launch of a kernel: ``seconds`` is the roofline of the whole kernel, without launches.

    It is ``None`` for a kernel of symbolic sizes. ``occupancy`` is the share of the warps that an
    SM can hold, ``limit`` what limits it.
    """

    operators: str
    implementation: str
    facts: KernelFacts
    occupancy: float
    limit: str
    seconds: float | None
    bound: str

    def row(self) -> tuple[str, ...]:
        """The cells of the table, one for each of ``COLUMNS``."""
        launch, used = self.facts.launch, self.facts.resources
        seconds = "" if self.seconds is None else f"{self.seconds * 1e6:.2f}"
        return (self.operators, self.implementation, _size(launch.grid), _size(launch.block),
                str(used.registers), str(used.spill_stores + used.spill_loads),
                str(self.facts.shared_bytes), f"{self.occupancy:.0%}", self.limit,
                _accesses(self.facts), seconds, self.bound)


def static_profile(model: Source, options: CompileOptions) -> list[StaticLaunch]:
    """The launches of a model's kernels, in the order in which the kernels are built.

    Raises ``TargetError`` for a target that is not CUDA, ``CodegenError`` without ``ptxas``.
    """
    target = options.target
    if not isinstance(target, CudaTarget):
        raise TargetError("a static profile needs a CUDA target", got=target,
                          help="--target cuda, or measure without --static")
    kernels = kernels_of(Stages(model, options).module_at("lowered"))
    with options.settings():
        return [launch for kernel in kernels for launch in _launches(kernel, target)]


def _launches(kernel: KernelSource, target: CudaTarget) -> list[StaticLaunch]:
    lowered = lower_kernel(kernel.name, kernel.function, target)
    model = machine_model(target)
    seconds, bound = _roofline(lowered, target)
    found = []
    for facts in kernel_facts(build_kernel_object(lowered.func, target)):
        used = model.occupancy(facts.threads, facts.resources.registers, facts.shared_bytes)
        found.append(StaticLaunch(kernel.text, lowered.implementation, facts, used.fraction,
                                  used.limit, seconds, bound))
    return found


def _roofline(lowered: LoweredKernel, target: CudaTarget) -> tuple[float | None, str]:
    """The larger of the times that memory and arithmetic need at their peaks, and which it is."""
    if not isinstance(lowered.bytes_moved, int) or not isinstance(lowered.flops, int):
        return None, ""
    model = machine_model(target)
    memory, arithmetic = lowered.bytes_moved / model.bandwidth, lowered.flops / model.fp32_flops
    return max(memory, arithmetic), "memory" if memory >= arithmetic else "arithmetic"


def _size(counts: tuple[object, ...]) -> str:
    """Grid or block without trailing ones."""
    kept = list(counts)
    while len(kept) > 1 and kept[-1] == 1:
        kept.pop()
    return " x ".join(map(str, kept))


def _accesses(facts: KernelFacts) -> str:
    kinds = facts.instructions
    names = [k for k in kinds if k.startswith(("ld.global", "st.global", "mma", "wgmma", "TMA"))]
    return ", ".join(f"{kinds[name]} {name}" for name in names)

