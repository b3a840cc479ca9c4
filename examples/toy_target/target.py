"""``ToyTarget``: what code is generated for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from weft.runtime.device import Device
from weft.support.errors import TargetError
from weft.target import Target

DEVICE = Device("toy")


@dataclass(frozen=True, slots=True)
class ToyTarget(Target):
    """The evaluator of loop programs. Its text form is ``toy``."""

    kind: ClassVar[str] = "toy"

    def __str__(self) -> str:
        return "toy"

    @classmethod
    def parse(cls, text: str) -> ToyTarget:
        """``toy`` takes no options."""
        if text.split() != ["toy"]:
            raise TargetError("unknown option of target 'toy'", got=text, expected="toy")
        return cls()
