"""Builds the kernels of a program for simulated devices, and places its steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from weft.compiler.build.built_kernel import BuiltKernel
from weft.compiler.build.kernels import build_kernels
from weft.compiler.device_options import BY_PROFILE
from weft.compiler.options import CompileOptions
from weft.compiler.program.devices.measure import measured_costs
from weft.compiler.program.devices.partition import partitioned
from weft.compiler.program.program import Program
from weft.runtime.calls import DEVICE_COPY
from weft.transform.placement.explain import explain_placement


def build_partitioned(program: Program, options: CompileOptions, copy: BuiltKernel
                      ) -> tuple[Program, tuple[BuiltKernel, ...]]:
    """The program on the devices of ``options``, and its kernels; ``copy`` stands for copies.

    A kernel is the same on all devices, and is built once.
    """
    target, passes = options.target, options.extensions.tir_passes
    built = tuple(build_kernels(program.kernels, target, passes))
    placed = partitioned(program, [one.facts for one in built], options,
                         _measured(program, built, options))
    extra = placed.kernels[len(built):]
    if any(one.digest != DEVICE_COPY for one in extra):
        raise AssertionError("placement adds copies alone")
    return placed, (*built, *[copy] * len(extra))


def _measured(program: Program, built: Sequence[BuiltKernel], options: CompileOptions
              ) -> Mapping[str, float]:
    """The seconds of the kernels by symbol, where the placement asks for them."""
    if options.placement != BY_PROFILE:
        return {}
    costs = measured_costs(program, built, options.target)
    explain_placement(costs.table().splitlines())
    return costs.measured_seconds()
