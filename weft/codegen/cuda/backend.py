"""The back end for NVIDIA GPUs: PTX by LLVM or libnvvm, launches by the CUDA driver."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from weft.codegen.backend import Backend, TextStage, backend_of
from weft.codegen.cuda.build import build_kernel_object, emit_llvm, emit_ptx
from weft.codegen.cuda.passes import CUDA_PIPELINE
from weft.runtime.device import HOST_MEMORY, Device, MemorySpace
from weft.runtime.devices.cuda.bundle import is_kernel_object, pack
from weft.runtime.devices.cuda.image import KernelObject
from weft.runtime.devices.cuda.library import CudaLibrary
from weft.runtime.library import NativeLibrary
from weft.support.errors import InternalError
from weft.support.log import Level
from weft.target import CpuTarget, CudaTarget
from weft.tir.func import PrimFunc
from weft.tir.limits import Limits
from weft.tir.transform.gpu.thread_axes import LAUNCH_TAGS
from weft.tir.transform.registered import TirPass

CUDA_DEVICE = Device("cuda")


class CudaBackend(Backend[CudaTarget]):
    """CUDA for sm_80 and later; a kernel is a ``KernelObject`` (``runtime.devices.cuda.image``)."""

    kind: ClassVar[str] = "cuda"
    limits: ClassVar[Limits] = Limits(
        thread_axes=LAUNCH_TAGS, scopes=("global", "local", "shared", "constant"),
        max_alignment=128)
    tir_passes: ClassVar[Sequence[TirPass]] = CUDA_PIPELINE
    device: ClassVar[Device] = CUDA_DEVICE
    launched_by: ClassVar[str] = "device"
    memory_spaces: ClassVar[Sequence[MemorySpace]] = (
        HOST_MEMORY, MemorySpace("device", CUDA_DEVICE, 256))

    def build_kernel(self, func: PrimFunc, target: CudaTarget) -> bytes:
        return build_kernel_object(func, target).to_bytes()

    def kernel_key(self, func: PrimFunc, target: CudaTarget) -> str:
        """The LLVM IR, which determines the PTX."""
        return f"{emit_llvm(func, target)}\n{target}"

    def load(self, objects: Sequence[bytes], target: CudaTarget) -> CudaLibrary:  # noqa: ARG002
        """The kernels, and the objects among ``objects`` that are code for the host."""
        kernels, host = _parted(objects)
        return CudaLibrary(map(KernelObject.from_bytes, kernels), _host_library(host))

    def link(self, objects: Sequence[bytes], target: CudaTarget) -> bytes:  # noqa: ARG002
        """The kernels, and a shared object for the host if there is code for it.

        ``LinkerError`` if there is such code and no linker is found.
        """
        kernels, host = _parted(objects)
        cpu = CpuTarget.host()
        return pack(kernels, backend_of(cpu).link(host, cpu) if host else b"")

    @property
    def text_stages(self) -> Mapping[str, TextStage[CudaTarget]]:
        return {"llvm": TextStage("LLVM IR", "ll", ";", Level.LLVM, emit_llvm),
                "ptx": TextStage("PTX", "ptx", "//", Level.ASSEMBLY, emit_ptx)}


def _parted(objects: Sequence[bytes]) -> tuple[list[bytes], list[bytes]]:
    """Kernels for the GPU, and objects for the host."""
    return ([code for code in objects if is_kernel_object(code)],
            [code for code in objects if not is_kernel_object(code)])


def _host_library(objects: Sequence[bytes]) -> NativeLibrary | None:
    if not objects:
        return None
    cpu = CpuTarget.host()
    library = backend_of(cpu).load(objects, cpu)
    if not isinstance(library, NativeLibrary):
        raise InternalError("code for the host without addresses", got=type(library).__name__)
    return library


CUDA_BACKEND = CudaBackend()
