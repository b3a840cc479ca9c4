"""The methods of tensors by which the array API standard finds its functions."""

from __future__ import annotations

import importlib
from typing import Any

from weft.eager.functions.logic import bitwise_left_shift, bitwise_right_shift
from weft.support.errors import OptionError

_VERSIONS = ("2021.12", "2022.12", "2023.12", "2024.12")


class Standard:
    """What the array API standard asks of arrays beside torch's methods."""

    __slots__ = ()

    def __array_namespace__(self, *, api_version: str | None = None) -> Any:
        """``weft.array_api``, the functions of the standard."""
        if api_version not in (None, *_VERSIONS):
            raise OptionError("unknown version of the array API standard", got=repr(api_version),
                              expected=", ".join(_VERSIONS))
        return importlib.import_module("weft.array_api")  # a layer above this one

    def to_device(self: Any, device: Any, /, *, stream: Any = None) -> Any:  # noqa: ARG002
        """The tensor on a device."""
        return self.to(device=device)

    def __rlshift__(self, other: int) -> Any:
        return bitwise_left_shift(other, self)

    def __rrshift__(self, other: int) -> Any:
        return bitwise_right_shift(other, self)
