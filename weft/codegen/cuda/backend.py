"""The back end for NVIDIA GPUs: PTX by LLVM or libnvvm, launches by the CUDA driver."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from weft.codegen.backend import Backend, TextStage
from weft.codegen.cuda.build import build_kernel_object, emit_llvm, emit_ptx
from weft.codegen.cuda.passes import CUDA_PIPELINE
from weft.runtime.library import Library
from weft.support.errors import TargetError
from weft.support.log import Level
from weft.target import CudaTarget
from weft.tir.func import PrimFunc
from weft.tir.limits import Limits
from weft.tir.transform.gpu.thread_axes import LAUNCH_TAGS
from weft.tir.transform.registered import TirPass


class CudaBackend(Backend[CudaTarget]):
    """CUDA for sm_80 and later; a kernel is a ``KernelObject`` (``runtime.devices.cuda.image``)."""

    kind: ClassVar[str] = "cuda"
    limits: ClassVar[Limits] = Limits(
        thread_axes=LAUNCH_TAGS, scopes=("global", "local", "shared", "constant"),
        max_alignment=128)
    tir_passes: ClassVar[Sequence[TirPass]] = CUDA_PIPELINE

    def build_kernel(self, func: PrimFunc, target: CudaTarget) -> bytes:
        return build_kernel_object(func, target).to_bytes()

    def kernel_key(self, func: PrimFunc, target: CudaTarget) -> str:
        """The LLVM IR, which determines the PTX."""
        return f"{emit_llvm(func, target)}\n{target}"

    def load(self, objects: Sequence[bytes], target: CudaTarget) -> Library:
        raise TargetError("CUDA programs cannot be loaded yet", where=str(target),
                          got=f"{len(objects)} kernels")

    @property
    def text_stages(self) -> Mapping[str, TextStage[CudaTarget]]:
        return {"llvm": TextStage("LLVM IR", "ll", ";", Level.LLVM, emit_llvm),
                "ptx": TextStage("PTX", "ptx", "//", Level.ASSEMBLY, emit_ptx)}


CUDA_BACKEND = CudaBackend()
