"""A profile of the kernels of a model without the device: what their code uses, and estimates.

``weft profile --static`` prints it. Estimates rank schedules; they are not measurements.
"""

from __future__ import annotations

from weft.codegen import backend_of
from weft.codegen.cost_model import CostModel
from weft.compiler.build.kernel import lower_kernel
from weft.compiler.options import CompileOptions
from weft.compiler.stages import Stages, kernels_of
from weft.frontend.source import ModelLike, open_source
from weft.strategy import LoweredKernel


def static_profile(model: ModelLike, options: CompileOptions) -> list[dict[str, str]]:
    """A row of texts by column for each launch, in the order in which the kernels are built.

    Raises ``TargetError`` for a target whose cost model gives no facts of launches, and
    ``CodegenError`` without the tools of the target.
    """
    target = options.target
    costs = backend_of(target).cost_model(target)
    kernels = kernels_of(Stages(open_source(model, None, options), options).module_at("lowered"))
    rows: list[dict[str, str]] = []
    with options.settings():
        for kernel in kernels:
            lowered = lower_kernel(kernel.name, kernel.function, target)
            start = {"operators": kernel.text, "implementation": lowered.implementation}
            rows += [{**start, **facts, **_roofline(lowered, costs)}
                     for facts in costs.static_launches(lowered.func)]
    return rows


def _roofline(lowered: LoweredKernel, costs: CostModel) -> dict[str, str]:
    """The larger of the times that memory and arithmetic need at their peaks, and which it is.

    It is that of the whole kernel, without launches, and empty for a kernel of symbolic sizes.
    """
    seconds, bound = "", ""
    if isinstance(lowered.bytes_moved, int) and isinstance(lowered.flops, int):
        memory = lowered.bytes_moved / costs.bytes_per_second
        arithmetic = lowered.flops / costs.flops_per_second
        seconds = f"{max(memory, arithmetic) * 1e6:.2f}"
        bound = "memory" if memory >= arithmetic else "arithmetic"
    return {"roofline us": seconds, "bound by": bound}
