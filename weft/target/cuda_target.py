"""``CudaTarget``: an NVIDIA GPU that kernels are generated for, as PTX.

Its text form is ``cuda -arch=sm_90a``, with ``-codegen=nvvm`` for libnvvm instead of LLVM's NVPTX
and ``-allow_tf32=1`` for float32 products on tensor cores.
The limits are those of "Technical Specifications per Compute Capability" in the CUDA C++
Programming Guide 13.0.
"""

from __future__ import annotations

import shlex
from typing import ClassVar

from weft.support.dataclass import dataclass
from weft.support.errors import TargetError
from weft.support.suggestion import did_you_mean
from weft.target.target import Target, register_target_kind

_KIB = 1024
CODEGENS = ("nvptx", "nvvm")


@dataclass(frozen=True, slots=True)
class CudaArch:
    """The limits of one architecture; rates are in the machine models (``weft.strategy.cuda``).

    ``ptx_version`` is the oldest PTX that names the architecture and has its instructions,
    ``shared_per_sm`` the bytes of shared memory of a multiprocessor.
    """

    capability: tuple[int, int]
    ptx_version: tuple[int, int]
    shared_per_sm: int

    @property
    def max_shared(self) -> int:
        """The bytes of shared memory that a block may use, after opting in above 48 KiB."""
        return self.shared_per_sm - _KIB  # CUDA reserves 1 KiB for each block


ARCHS: dict[str, CudaArch] = {
    "sm_80": CudaArch((8, 0), (7, 8), 164 * _KIB),
    "sm_86": CudaArch((8, 6), (7, 8), 100 * _KIB),
    "sm_89": CudaArch((8, 9), (7, 8), 100 * _KIB),
    "sm_90": CudaArch((9, 0), (8, 6), 228 * _KIB),
    "sm_90a": CudaArch((9, 0), (8, 6), 228 * _KIB),
    "sm_100": CudaArch((10, 0), (8, 6), 228 * _KIB),
    "sm_100a": CudaArch((10, 0), (8, 6), 228 * _KIB),
    "sm_120": CudaArch((12, 0), (8, 7), 100 * _KIB),
}
# PTX for sm_80 runs on every later GPU, after compilation by the driver.
DEFAULT_ARCH = "sm_80"
TRIPLE = "nvptx64-nvidia-cuda"


@register_target_kind
@dataclass(frozen=True, slots=True)
class CudaTarget(Target):
    """An NVIDIA GPU: its architecture, and the compiler from LLVM IR to PTX.

    ``arch`` is one of ``ARCHS``. ``codegen`` is ``nvptx`` (LLVM, through llvmlite) or ``nvvm``
    (libnvvm of the CUDA toolkit). ``allow_tf32`` lets products of float32 round their operands to
    tf32, with 10 bits of fraction.
    """

    kind: ClassVar[str] = "cuda"
    names: ClassVar[tuple[str, ...]] = ("nvidia",)

    max_threads: ClassVar[int] = 1024  # of a block
    max_block: ClassVar[tuple[int, int, int]] = (1024, 1024, 64)
    max_grid: ClassVar[tuple[int, int, int]] = (2**31 - 1, 65535, 65535)
    static_shared_bytes: ClassVar[int] = 48 * _KIB  # of a block, without opting in

    arch: str = DEFAULT_ARCH
    codegen: str = "nvptx"
    allow_tf32: bool = False

    def __post_init__(self) -> None:
        if self.arch not in ARCHS:
            raise TargetError(f"unknown CUDA architecture {self.arch!r}",
                              expected=", ".join(ARCHS),
                              help=did_you_mean(self.arch, ARCHS))
        if self.codegen not in CODEGENS:
            raise TargetError(f"unknown compiler from LLVM IR to PTX: {self.codegen!r}",
                              expected=", ".join(CODEGENS))

    @classmethod
    def parse(cls, text: str) -> CudaTarget:
        """Read a CUDA target from text; ``TargetError`` for unknown options and architectures."""
        _, *words = shlex.split(text)
        options: dict[str, str] = {}
        for word in words:
            key, equals, value = word.lstrip("-").partition("=")
            known = key in ("arch", "codegen") or (key == "allow_tf32" and value in ("0", "1"))
            if not word.startswith("-") or not equals or not known:
                raise TargetError(f"unknown option {word!r} of target {text!r}",
                                  expected="-arch=… -codegen=… -allow_tf32=0|1",
                                  help=did_you_mean(key, ("arch", "codegen", "allow_tf32"),
                                                    shown="-{}=".format))
            options[key] = value
        allow_tf32 = options.pop("allow_tf32", "0") == "1"
        return cls(**options, allow_tf32=allow_tf32)

    @classmethod
    def fitting(cls, capability: tuple[int, int] | None) -> CudaTarget:
        """The newest architecture that a GPU of this compute capability runs."""
        able = [name for name, arch in ARCHS.items() if capability is not None and (
            arch.capability == capability
            or (arch.capability < capability and not name.endswith("a")))]
        return cls(max(able, key=lambda name: (ARCHS[name].capability, name), default=DEFAULT_ARCH))

    def __str__(self) -> str:
        codegen = "" if self.codegen == "nvptx" else f" -codegen={self.codegen}"
        tf32 = " -allow_tf32=1" if self.allow_tf32 else ""
        return f"cuda -arch={self.arch}{codegen}{tf32}"

    @property
    def triple(self) -> str:
        """LLVM's triple."""
        return TRIPLE

    @property
    def has_fma(self) -> bool:
        """Whether there are fused multiply-add instructions: always."""
        return True

    @property
    def converts_half(self) -> bool:
        """Whether there are instructions that convert between float16 and float32: always."""
        return True

    @property
    def limits(self) -> CudaArch:
        """The limits of the architecture."""
        return ARCHS[self.arch]

    @property
    def capability(self) -> tuple[int, int]:
        """The compute capability, major and minor."""
        return self.limits.capability

    @property
    def ptx_version(self) -> tuple[int, int]:
        """The version of the PTX language of the kernels."""
        return self.limits.ptx_version

    @property
    def shared_bytes(self) -> int:
        """The most shared memory of one block, in bytes; above 48 KiB it is dynamic."""
        return self.limits.max_shared

    @property
    def is_arch_specific(self) -> bool:
        """Whether PTX may use instructions that no other architecture has (``sm_90a``)."""
        return self.arch.endswith("a")

    @property
    def has_mma_sync(self) -> bool:
        """Tensor cores by ``mma.sync`` for float16, bfloat16, tf32 and int8."""
        return self.capability >= (8, 0)

    @property
    def has_cp_async(self) -> bool:
        """Asynchronous copies from global to shared memory."""
        return self.capability >= (8, 0)

    @property
    def has_wgmma(self) -> bool:
        """Hopper's warpgroup matrix multiplication."""
        return self.arch == "sm_90a"

    @property
    def has_tma(self) -> bool:
        """Bulk copies of tensor tiles by the tensor memory accelerator, and clusters of blocks."""
        return self.capability >= (9, 0)

    @property
    def features(self) -> tuple[str, ...]:
        """The instruction groups that device functions may require, sorted."""
        offered = {"cp.async": self.has_cp_async, "mma.sync": self.has_mma_sync,
                   "tma": self.has_tma, "wgmma": self.has_wgmma}
        return tuple(sorted(name for name, has in offered.items() if has))

    def has(self, feature: str) -> bool:
        """Whether kernels may use an instruction group of ``features``."""
        return feature in self.features
