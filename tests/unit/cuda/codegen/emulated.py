"""Runs kernels of a loop program under emulation, as the runtime's launcher does."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from weft.codegen import backend_of
from weft.codegen.cuda.build import build_kernel_object
from weft.runtime.devices.cuda.image import Argument, KernelObject
from weft.runtime.sizes import evaluate
from weft.target import CudaTarget
from weft.testing.cuda import DeviceMemory, EmulationOptions, launch, load_ptx
from weft.tir.buffer import Buffer
from weft.tir.func import PrimFunc

SM80 = CudaTarget()


def compiled(func: PrimFunc, target: CudaTarget = SM80) -> KernelObject:
    """The kernel object of a loop program before any pass."""
    return build_kernel_object(backend_of(target).lower(func, verify=True), target)


def run_emulated(func: PrimFunc, inputs: list[np.ndarray], outputs: list[np.ndarray],
                 sizes: Mapping[str, int] | None = None, target: CudaTarget = SM80,
                 image: KernelObject | None = None) -> KernelObject:
    """Run ``func`` under emulation and fill ``outputs``; ``sizes`` are by parameter number."""
    image = image or compiled(func, target)
    values = dict(zip(image.sizes, (sizes or {}).values(), strict=True))
    memory = DeviceMemory()
    arrays = [*inputs, *outputs]
    buffers = [p for p in func.params if isinstance(p, Buffer)]
    assert len(arrays) == len(buffers)
    addresses = []
    for number, array in enumerate(arrays):
        addresses.append(memory.allocate(max(array.nbytes, 1)))
        if number < len(inputs) and array.nbytes:
            memory.view(addresses[-1], array.nbytes)[:] = array.reshape(-1).view(np.uint8)
    size = evaluate(image.workspace_bytes, {k: int(v) for k, v in (sizes or {}).items()})
    workspace = memory.allocate(max(size, 1))

    def value(argument: Argument) -> int:
        kind, what = argument
        if kind == "parameter":
            return addresses[int(what)]
        if kind == "workspace":
            return workspace + evaluate(what, values)
        return evaluate(what, values)

    module = load_ptx(image.ptx)
    for kernel in image.launches:
        grid = tuple(evaluate(n, values) for n in kernel.grid)
        if 0 in grid:
            continue
        launch(module, kernel.entry, grid, kernel.block, [value(a) for a in kernel.arguments],
               memory, shared_bytes=kernel.shared_bytes, cluster=kernel.cluster,
               options=EmulationOptions(seed=0))
    for number, array in enumerate(outputs, len(inputs)):
        if array.nbytes:
            array.reshape(-1).view(np.uint8)[:] = memory.view(addresses[number], array.nbytes)
    return image
