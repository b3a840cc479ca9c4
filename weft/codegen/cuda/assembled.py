"""Kernel objects with machine code beside their PTX, for artifacts.

A device runs machine code of its architecture at once; other devices compile the PTX when the
artifact is first used.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from weft.codegen.cuda.ptxas import assemble
from weft.codegen.cuda.toolkit import find_program
from weft.runtime.cpu import usable_cpus
from weft.runtime.devices.cuda.image import KernelObject
from weft.support.config import config
from weft.support.errors import CodegenError
from weft.support.fallback import Fallback, report

_PTX_ALONE = Fallback(
    "the kernels of the artifact are PTX alone, without machine code",
    "ptxas of the CUDA toolkit was not found",
    "the driver compiles each kernel when the artifact is first used: up to seconds per kernel",
    "pip install weft[cuda], or set CUDA_HOME, and export again")


def with_cubins(kernels: Sequence[KernelObject], arch: str) -> list[KernelObject]:
    """The kernels with code for ``WEFT_CUDA_ARCHS``, or else for ``arch``.

    Without ``ptxas`` they have PTX alone, which is reported as a fallback, unless the setting asks
    for code: ``MissingToolError``.
    """
    archs = config.cuda_archs or (arch,)
    if find_program("ptxas") is None and not config.cuda_archs:
        report(_PTX_ALONE)
        return list(kernels)

    def assembled(kernel: KernelObject) -> KernelObject:
        try:
            made = {one: assemble(kernel.ptx, one).cubin for one in archs}
        except CodegenError as error:
            raise error.at(kernel.symbol) from None
        return replace(kernel, cubins={**kernel.cubins, **made})

    with ThreadPoolExecutor(usable_cpus()) as pool:
        return list(pool.map(assembled, kernels))
