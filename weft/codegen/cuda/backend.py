"""The back end for NVIDIA GPUs: PTX by LLVM or libnvvm, launches by the CUDA driver."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import ClassVar

from weft.codegen.backend import Backend, TextStage, backend_of, register_backend
from weft.codegen.cuda.build import (
    build_kernel_object,
    emit_llvm,
    emit_own_llvm,
    emit_ptx,
    with_cubins,
)
from weft.codegen.cuda.host_launcher import launcher_object
from weft.codegen.cuda.instructions import DP4A
from weft.codegen.cuda.passes import CUDA_PIPELINE
from weft.runtime.device import HOST_MEMORY, Device, MemorySpace
from weft.runtime.devices.cpu.elf.loader import loads_objects
from weft.runtime.devices.cuda.bundle import LAUNCHER_MAGIC, Bundle
from weft.runtime.devices.cuda.image import KernelObject
from weft.runtime.devices.cuda.library import CudaLibrary, launcher_library
from weft.runtime.library import NativeLibrary
from weft.support.errors import InternalError
from weft.support.log import Level
from weft.target import CpuTarget, CudaTarget
from weft.tir import Instruction, PrimFunc
from weft.tir.limits import Limits
from weft.tir.transform.gpu.thread_axes import LAUNCH_TAGS
from weft.tir.transform.registered import TirPass

CUDA_DEVICE = Device("cuda")


class CudaBackend(Backend[CudaTarget]):
    """CUDA for sm_80 and later; a kernel is a ``KernelObject`` (``runtime.devices.cuda.image``)."""

    kind: ClassVar[str] = "cuda"
    strategies: ClassVar[str] = "weft.strategy.cuda"
    cost_model_class: ClassVar[str] = "weft.strategy.cuda.estimate:CudaCostModel"
    limits: ClassVar[Limits] = Limits(
        thread_axes=LAUNCH_TAGS, scopes=("global", "local", "shared", "constant"),
        max_alignment=1024)
    tir_passes: ClassVar[Sequence[TirPass]] = CUDA_PIPELINE
    instructions: ClassVar[Sequence[Instruction]] = (DP4A,)
    device: ClassVar[Device] = CUDA_DEVICE
    launched_by: ClassVar[str] = "device"
    takes_sizes: ClassVar[bool] = True
    memory_spaces: Sequence[MemorySpace] = (
        HOST_MEMORY, MemorySpace("device", CUDA_DEVICE, 256))

    def build_kernel(self, func: PrimFunc, target: CudaTarget) -> bytes:
        return build_kernel_object(func, target).to_bytes()

    def kernel_key(self, func: PrimFunc, target: CudaTarget) -> str:
        """The LLVM IR, in which digests of Python bodies stand for these."""
        return f"{emit_own_llvm(func, target)}\n{target}"

    def load(self, objects: Sequence[bytes], target: CudaTarget) -> CudaLibrary:  # noqa: ARG002
        """The kernels, and the objects among ``objects`` that are code for the host."""
        parts = Bundle.of(objects)
        host = None
        if parts.host:
            cpu = CpuTarget.host()
            host = backend_of(cpu).load(parts.host, cpu)
        if not isinstance(host, NativeLibrary | None):
            raise InternalError("code for the host without addresses", got=type(host).__name__)
        return CudaLibrary(map(KernelObject.from_bytes, parts.kernels), host,
                           launcher_library(parts))

    def link(self, objects: Sequence[bytes], target: CudaTarget) -> bytes:
        """The assembled kernels and the code for the host, which the runtime links.

        Where it cannot, a linker makes a shared object; ``LinkerError`` if none is found.
        """
        parts = Bundle.of(objects)
        kernels = with_cubins(list(map(KernelObject.from_bytes, parts.kernels)), target.arch)
        parts = replace(parts, kernels=tuple(kernel.to_bytes() for kernel in kernels))
        if parts.host and not loads_objects():
            cpu = CpuTarget.host()
            parts = replace(parts, host=(), shared=backend_of(cpu).link(parts.host, cpu))
        return parts.pack()

    def support_objects(self, target: CudaTarget) -> tuple[bytes, ...]:  # noqa: ARG002
        """The host launcher."""
        return (LAUNCHER_MAGIC + launcher_object(CpuTarget.host()),)

    @property
    def text_stages(self) -> Mapping[str, TextStage[CudaTarget]]:
        return {"llvm": TextStage("LLVM IR", "ll", ";", Level.LLVM, emit_llvm),
                "ptx": TextStage("PTX", "ptx", "//", Level.ASSEMBLY, emit_ptx)}


CUDA_BACKEND = CudaBackend()
register_backend(CUDA_BACKEND)
