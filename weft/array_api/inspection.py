"""What the library can do, for programs that work with several libraries."""

from __future__ import annotations

from typing import Any

from weft.array_api.data_types import KINDS
from weft.eager import dtypes
from weft.eager.device import device, devices, get_default_device, resolved
from weft.eager.dtypes import dtype
from weft.support.errors import OptionError

_DTYPES = {
    "bool": dtypes.bool_, "int8": dtypes.int8, "int16": dtypes.int16, "int32": dtypes.int32,
    "int64": dtypes.int64, "uint8": dtypes.uint8, "uint16": dtypes.uint16,
    "uint32": dtypes.uint32, "uint64": dtypes.uint64, "float32": dtypes.float32,
    "float64": dtypes.float64, "complex64": dtypes.complex64, "complex128": dtypes.complex128,
}


class Info:
    """The inspection functions of the standard."""

    def capabilities(self) -> dict[str, Any]:
        """Optional parts of the standard."""
        return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": None}

    def default_device(self) -> device:
        """The device of arrays that name none."""
        return get_default_device()

    def default_dtypes(self, *, device: Any = None) -> dict[str, dtype]:
        """The dtypes of arrays that name none."""
        resolved(device)
        real = dtypes.get_default_dtype()
        return {"real floating": real, "complex floating": real.to_complex(),
                "integral": dtypes.int64, "indexing": dtypes.int64}

    def dtypes(self, *, device: Any = None, kind: Any = None) -> dict[str, dtype]:
        """The dtypes of the standard by name: all, or those of a kind or of several."""
        resolved(device)
        kinds = kind if isinstance(kind, tuple) else (kind,) if kind is not None else ("bool",
                                                                                    "numeric")
        for one in kinds:
            if one not in KINDS:
                raise OptionError("unknown kind of dtypes", got=repr(one),
                                  expected=", ".join(KINDS))
        return {name: d for name, d in _DTYPES.items() if any(KINDS[k](d) for k in kinds)}

    def devices(self) -> list[device]:
        """The devices that arrays may be on."""
        return devices()


def __array_namespace_info__() -> Info:
    """The inspection functions."""
    return Info()
