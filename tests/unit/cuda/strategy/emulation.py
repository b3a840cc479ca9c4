"""Kernels of one function in the emulator, launch by launch, compared with the reference."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tests.unit.cuda.strategy.products import A100, built
from tests.unit.strategy.kernels import random_arguments
from weft.ir.dtype import DType
from weft.ir.expr import Function
from weft.ir.module import IRModule
from weft.runtime.devices.cuda.image import KernelObject, TensorMapSpec
from weft.strategy.implementation import Implementation
from weft.target import CudaTarget
from weft.testing.cuda import (
    DeviceMemory,
    EmulationOptions,
    LaunchCounts,
    encode_tensor_map,
    launch,
    load_ptx,
)
from weft.transform.analysis.reference import evaluate as evaluate_reference

COUNTED = EmulationOptions(count=True)


def run_kernel(
    kernel: KernelObject, arrays: Sequence[np.ndarray], outputs: Sequence[np.ndarray],
    options: EmulationOptions = COUNTED,
) -> list[LaunchCounts | None]:
    """Run all launches; results are written into ``outputs``, the counts are returned."""
    memory = DeviceMemory()
    addresses = []
    for array in (*arrays, *outputs):
        address = memory.allocate(max(array.nbytes, 1))
        if array.nbytes:
            memory.view(address, array.nbytes)[:] = np.ascontiguousarray(array).reshape(-1).view(
                np.uint8)
        addresses.append(address)
    assert isinstance(kernel.workspace_bytes, int)
    workspace = memory.allocate(max(kernel.workspace_bytes, 1))
    maps = [_tensor_map(spec, addresses) for spec in kernel.tensor_maps]
    counts = []
    for one in kernel.launches:
        values: list[int | bytes] = []
        for kind, value in one.arguments:
            assert isinstance(value, int)
            values.append(maps[value] if kind == "tensor_map" else addresses[value]
                          if kind == "parameter" else workspace + value)
        grid = [int(size) for size in one.grid]
        counts.append(launch(load_ptx(kernel.ptx), one.entry, grid, one.block, values, memory,
                             shared_bytes=one.shared_bytes, options=options))
    for array, address in zip(outputs, addresses[len(arrays):], strict=True):
        array.reshape(-1).view(np.uint8)[:] = memory.view(address, array.nbytes)
    return counts


def _tensor_map(spec: TensorMapSpec, addresses: Sequence[int]) -> bytes:
    shape, strides = ([int(n) for n in sizes] for sizes in (spec.shape, spec.strides))
    return encode_tensor_map(addresses[spec.parameter], DType.of(spec.dtype).itemsize, shape,
                             strides, spec.box, swizzle=spec.swizzle)


def check_emulated(
    function: Function, implementation: Implementation | None = None, *,
    target: CudaTarget = A100, rtol: float = 1e-4, atol: float | None = None,
) -> list[LaunchCounts | None]:
    """Compare the emulated kernel of ``function`` with the reference."""
    arguments = random_arguments(function)
    expected = evaluate_reference(IRModule.from_expr(function), arguments)
    results = expected if isinstance(expected, tuple) else (expected,)
    outputs = [np.zeros(r.shape, r.dtype) for r in results]
    counts = run_kernel(built(function, target, implementation), arguments, outputs)
    for got, want in zip(outputs, results, strict=True):
        np.testing.assert_allclose(got.astype(np.float64), np.asarray(want).astype(np.float64),
                                   rtol=rtol, atol=rtol if atol is None else atol)
    return counts
