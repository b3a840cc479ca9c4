"""Every stage of a compilation as text, computed on demand.

A compiled model keeps the source model, not the intermediate programs: showing a stage runs the
compilation again up to that stage. So stages cost no memory, and also work for a model whose code
came from the cache.
"""

from __future__ import annotations

from collections.abc import Iterator

from weft.codegen import BACKENDS, backend_of
from weft.compiler.build.kernel import lower_kernel
from weft.compiler.decisions import (
    Described,
    KeepBeforeLegalize,
    decisions_text,
    family_decisions,
    kernel_selections,
)
from weft.compiler.options import CompileOptions
from weft.compiler.pipeline import PHASE_NAMES, run_pipeline
from weft.compiler.program.lowering import try_lower_program
from weft.compiler.program.program import KernelSource
from weft.compiler.vm.build import has_fixed_sizes, program_text
from weft.compiler.vm.lower_module import lower_module
from weft.frontend.source import Source
from weft.ir import IRModule, as_text
from weft.ir.instruments import readable
from weft.ir.passes import Instrument
from weft.strategy import schedule_function
from weft.support.dataclass import dataclass
from weft.support.errors import OptionError
from weft.support.fallback import FallbackLog, recording
from weft.support.suggestion import did_you_mean
from weft.target import Target
from weft.tir.printer import as_text as tir_text
from weft.transform import PlanDevices
from weft.transform.placement.virtual_devices import virtual_devices

_COMMON_STAGES = (*PHASE_NAMES, "devices", "decisions", "vm", "te", "scheduled", "tir")


def all_stages() -> tuple[str, ...]:
    """The stages for every kind of target; those after tir are the texts of its back end.

    The placement is a text of the compiled program, not a stage of its compilation.
    """
    texts = [stage for kind in BACKENDS for stage in BACKENDS.get(kind).text_stages]
    return tuple(dict.fromkeys((*_COMMON_STAGES, *texts, "placement")))


@dataclass(frozen=True, slots=True)
class Stages:
    """The stages of one model's compilation; ``source`` is ``None`` after unpickling."""

    source: Source | None
    options: CompileOptions

    def module_at(self, stage: str, *instruments: Instrument) -> IRModule:
        """The program at the end of a phase of the pipeline."""
        if self.source is None:
            raise OptionError("an unpickled model cannot show its stages", got=stage,
                              help="use as_text in the process that compiled it")
        # What is shown again was reported when it was compiled.
        with self.options.settings(), recording(FallbackLog(is_trial=True)):
            return run_pipeline(self.source.import_module(self.options), self.options,
                                stop_at=stage, instruments=instruments)

    def decisions(self) -> tuple[list[Described], list[Described]]:
        """The decisions of operator families before legalisation, and those of the kernels.

        Where the optimization level skips legalisation, the calls of the kernels are decided.
        """
        keep = KeepBeforeLegalize()
        lowered = self.module_at("lowered", keep)
        target = self.options.target
        with self.options.settings():
            families = (family_decisions(lowered, target, in_kernel=True) if keep.module is None
                        else family_decisions(keep.module, target))
            return families, kernel_selections(kernels_of(lowered), target)

    def as_text(self, stage: str) -> str:
        """The text of a stage; ``OptionError`` for an unknown one."""
        stages = stages_of(self.options.target)
        if stage not in stages:
            raise OptionError(f"unknown stage {stage!r}", expected=", ".join(stages),
                              help=did_you_mean(stage, stages))
        if stage == "devices":
            return self._devices_text()
        if stage == "decisions":
            return decisions_text(*self.decisions())
        mod = self.module_at(stage if stage in PHASE_NAMES else "lowered")
        if stage in PHASE_NAMES:
            return readable(mod)
        if stage == "vm":
            return program_text(lower_module(mod))
        with self.options.settings():
            return "\n".join(kernel_texts(kernels_of(mod), self.options, stage))

    def _devices_text(self) -> str:
        """The imported program after ``plan_devices``, with the device of each expression."""
        plan = PlanDevices(devices=self.options.device_names, soft=self.options.soft_placement)
        mod = plan(self.module_at("import"))
        return as_text(mod, metadata=False, devices=virtual_devices(mod))


def stages_of(target: Target) -> tuple[str, ...]:
    """The stages that ``as_text`` prints for a target."""
    return (*_COMMON_STAGES, *backend_of(target).text_stages)


def kernels_of(mod: IRModule) -> tuple[KernelSource, ...]:
    """The kernels of a module that are built ahead of time."""
    program = try_lower_program(mod)
    if program is not None:
        return program.kernels
    return tuple(k for k in lower_module(mod).kernels if has_fixed_sizes(k.function))


def kernel_texts(
    kernels: tuple[KernelSource, ...], options: CompileOptions, stage: str
) -> Iterator[str]:
    """One text per kernel, below a comment with its operators and implementation."""
    target = options.target
    texts = backend_of(target).text_stages
    comment = texts[stage].comment if stage in texts else "#"
    for kernel in kernels:
        if stage in ("te", "scheduled"):
            scheduled = schedule_function(kernel.function, target)
            implementation = scheduled.implementation
            text = (str(scheduled.schedule) if stage == "te"
                    else tir_text(scheduled.loop_nest(kernel.name)))
        else:
            lowered = lower_kernel(kernel.name, kernel.function, target,
                                   options.extensions.tir_passes)
            implementation = lowered.implementation
            text = (texts[stage].text(lowered.func, target) if stage in texts
                    else tir_text(lowered.func))
        yield f"{comment} {kernel.text}: {implementation}\n{text}"
