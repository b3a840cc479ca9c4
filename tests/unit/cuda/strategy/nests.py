"""Kernels of CUDA schedules in the emulator, which finds data races: values, loops and counters."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from tests.unit.strategy.kernels import random_arguments
from weft.codegen.cuda.build import build_kernel_object
from weft.ir.expr import Function
from weft.ir.module import IRModule
from weft.runtime.devices.cuda.image import Argument, KernelObject
from weft.runtime.sizes import evaluate
from weft.strategy import ScheduledKernel, lower_function, schedule_function
from weft.target import CudaTarget, Target
from weft.testing.cuda import DeviceMemory, EmulationOptions, LaunchCounts, launch, load_ptx
from weft.tir.func import PrimFunc
from weft.tir.stmt import For, ForKind
from weft.tir.visitor import post_order_stmts
from weft.transform.analysis.reference import evaluate as evaluate_reference

H100 = Target.of("cuda -arch=sm_90a")
A100 = Target.of("cuda -arch=sm_80")


@dataclass(slots=True)
class Run:
    """A kernel, its operands and results, and what its launches counted."""

    image: KernelObject
    arrays: list[np.ndarray]
    counts: list[LaunchCounts] = field(default_factory=list)


def check_nest(function: Function, target: CudaTarget = H100, *, rtol: float = 1e-5) -> PrimFunc:
    """Run ``function`` under emulation, compare with the references; returns its loops."""
    check_run(function, target, rtol=rtol)
    return schedule_function(function, target).loop_nest()


def check_run(function: Function, target: CudaTarget = H100, *, rtol: float = 1e-5,
              count: bool = False) -> Run:
    """Run ``function`` under emulation and compare with the references."""
    arguments = random_arguments(function)
    expected = evaluate_reference(IRModule.from_expr(function), arguments)
    results = expected if isinstance(expected, tuple) else (expected,)
    outputs = [np.full(r.shape, -77).astype(r.dtype) for r in results]
    run = run_emulated(function, arguments, outputs, target, count=count)
    for got, want in zip(outputs, results, strict=True):
        np.testing.assert_allclose(got, want, rtol=rtol, atol=rtol)
    return run


def run_emulated(function: Function, inputs: list[np.ndarray], outputs: list[np.ndarray],
                 target: CudaTarget = H100, *, count: bool = False) -> Run:
    """Run the kernel of ``function`` and fill ``outputs``."""
    func = lower_function(function, target).func
    run = Run(build_kernel_object(func, target), [*inputs, *outputs])
    memory, addresses = DeviceMemory(), list[int]()
    for number, array in enumerate(run.arrays):
        addresses.append(memory.allocate(max(array.nbytes, 1)))
        if number < len(inputs) and array.nbytes:
            memory.view(addresses[-1], array.nbytes)[:] = array.reshape(-1).view(np.uint8)
    workspace = memory.allocate(max(evaluate(run.image.workspace_bytes, {}), 1))

    def value(argument: Argument) -> int:
        kind, what = argument
        if kind == "parameter":
            return addresses[int(what)]
        return (workspace if kind == "workspace" else 0) + evaluate(what, {})

    module = load_ptx(run.image.ptx)
    for kernel in run.image.launches:
        grid = tuple(evaluate(n, {}) for n in kernel.grid)
        if 0 not in grid:
            counted = launch(module, kernel.entry, grid, kernel.block,
                             [value(a) for a in kernel.arguments], memory,
                             shared_bytes=kernel.shared_bytes,
                             options=EmulationOptions(seed=0, count=count))
            run.counts += [counted] if counted is not None else []
    for number, array in enumerate(outputs, len(inputs)):
        if array.nbytes:
            array.reshape(-1).view(np.uint8)[:] = memory.view(addresses[number], array.nbytes)
    return run


def schedule_of(function: Function, target: CudaTarget = H100) -> ScheduledKernel:
    return schedule_function(function, target)


def bound(nest: PrimFunc, tag: str) -> list[For]:
    """The loops that are bound to ``tag``."""
    return [n for n in post_order_stmts(nest.body) if isinstance(n, For) and n.thread_tag == tag]


def vectors(nest: PrimFunc) -> list[For]:
    return [n for n in post_order_stmts(nest.body)
            if isinstance(n, For) and n.kind is ForKind.VECTORIZED]
