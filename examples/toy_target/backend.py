"""``ToyBackend``: the answers that the compiler asks for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from weft.codegen import Backend, TextStage
from weft.runtime.device import Device, MemorySpace
from weft.support.log import Level
from weft.tir import PrimFunc
from weft.tir.transform.simplify import simplify

from .cost_model import ToyCosts
from .library import ToyLibrary, section
from .target import DEVICE, ToyTarget


class ToyBackend(Backend[ToyTarget]):
    """One tir pass: loops are neither vectorized nor unrolled, and scratch is not planned."""

    kind: ClassVar[str] = "toy"
    tir_passes = (simplify,)
    strategies: ClassVar[str] = f"{__package__}.schedules"
    cost_model_class: ClassVar[type[ToyCosts]] = ToyCosts
    device: ClassVar[Device] = DEVICE
    memory_spaces: Sequence[MemorySpace] = (MemorySpace("toy", DEVICE, 64),)
    launched_by: ClassVar[str] = "toy"

    def build_kernel(self, func: PrimFunc, target: ToyTarget) -> bytes:
        """The text of the loop program is the object code."""
        return str(func).encode()

    def link(self, objects: Sequence[bytes], target: ToyTarget) -> bytes:
        """The section of an artifact."""
        return section(objects)

    def load(self, objects: Sequence[bytes], target: ToyTarget) -> ToyLibrary:
        """The code of a program in this process."""
        return ToyLibrary(self.link(objects, target))

    @property
    def text_stages(self) -> dict[str, TextStage[ToyTarget]]:
        """What ``module.as_text("toy")`` prints."""
        return {"toy": TextStage("object code", "toy", "#", Level.LLVM, lambda func, _: str(func))}
