"""``LlvmTarget``: the properties of a target that the translation to LLVM IR reads."""

from __future__ import annotations

from typing import Protocol


class LlvmTarget(Protocol):
    """A target whose kernels are LLVM IR: a CPU or a GPU."""

    @property
    def triple(self) -> str:
        """LLVM's triple."""
        ...

    @property
    def arch(self) -> str:
        """The architecture, as instructions name it: ``x86_64``, ``sm_90a``."""
        ...

    @property
    def features(self) -> tuple[str, ...]:
        """The instruction sets that code may use."""
        ...

    @property
    def has_fma(self) -> bool:
        """Whether there are fused multiply-add instructions."""
        ...

    @property
    def converts_half(self) -> bool:
        """Whether there are instructions that convert between float16 and float32."""
        ...

    def has(self, feature: str) -> bool:
        """Whether code may use one of ``features``."""
        ...
