"""Devices that tensors may be on."""

from __future__ import annotations

from typing import Any

from weft.support.dataclass import dataclass
from weft.support.errors import OptionError, TargetError


@dataclass(frozen=True, slots=True)
class device:
    """A device by its type: ``weft.device("cpu")``."""

    type: str

    def __str__(self) -> str:
        return self.type

    def __repr__(self) -> str:
        return f"device(type={self.type!r})"


CPU = device("cpu")


def check_device(value: Any) -> None:
    """Raise ``TargetError`` for a device without tensors, ``OptionError`` for no device at all."""
    if value is None:
        return
    name = value.type if isinstance(value, device) else str(value)
    kind = name.partition(":")[0]
    if kind == "cuda":
        raise TargetError("tensors are in host memory", got=name, expected="cpu",
                          help='compile a program for the GPU: weft.compile(f, target="cuda")')
    if kind != "cpu":
        raise OptionError("unknown device", got=repr(value), expected="cpu")
