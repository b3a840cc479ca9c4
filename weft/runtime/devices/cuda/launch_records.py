"""The launches of a program as the structs of ``cuLaunchKernelEx``, for the host launcher."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

from weft.runtime.devices.cuda import prototypes as api
from weft.runtime.devices.cuda.driver import Geometry, Parameter

# The symbol of the host launcher (``codegen/cuda/host_launcher``), and the words of a record.
LAUNCH_ALL = "weft_cuda_launch_all"
RECORD_WORDS = 3
_TENSOR_MAP_ALIGNMENT = 64


class LaunchRecords:
    """Launches on one stream, marshalled once; the object keeps all structs alive.

    ``address`` is that of the first record.
    """

    __slots__ = ("_kept", "address", "count", "words")

    def __init__(self, launches: Sequence[tuple[int, Geometry, Sequence[Parameter]]], stream: int
                 ) -> None:
        self.count = len(launches)
        self.words = (ctypes.c_uint64 * max(1, RECORD_WORDS * self.count))()
        self.address = ctypes.addressof(self.words)
        self._kept: list[Any] = []
        for number, (function, geometry, parameters) in enumerate(launches):
            config, attributes = launch_config(geometry, stream)
            values = [_parameter(value) for value in parameters]
            pointers = (ctypes.c_void_p * max(1, len(values)))(*map(ctypes.addressof, values))
            first = RECORD_WORDS * number
            self.words[first:first + RECORD_WORDS] = [
                ctypes.addressof(config), function, ctypes.addressof(pointers)]
            self._kept.append((config, attributes, values, pointers))

    def record(self, number: int) -> tuple[int, int, int]:
        """The config, the function and the arguments of a launch, as addresses and a handle."""
        config, function, arguments = self.words[RECORD_WORDS * number:RECORD_WORDS * (number + 1)]
        return config, function, arguments


def launch_config(geometry: Geometry, stream: int) -> tuple[api.LaunchConfig, Any]:
    """The struct of a launch, and the attributes that it points to."""
    attributes = (api.LaunchAttribute * 1)()
    clustered = geometry.cluster != (1, 1, 1)
    if clustered:
        attributes[0].id = api.CLUSTER_DIMENSION
        attributes[0].value[0:3] = list(geometry.cluster)
    triple = ctypes.c_uint * 3
    config = api.LaunchConfig(triple(*geometry.grid), triple(*geometry.block),
                              geometry.shared_bytes, stream, attributes, int(clustered))
    return config, attributes


def _parameter(value: Parameter) -> Any:
    if isinstance(value, int):
        return ctypes.c_uint64(value & (1 << 64) - 1)
    # A tensor map is an operand of 128 bytes, aligned to 64.
    raw = ctypes.create_string_buffer(len(value) + _TENSOR_MAP_ALIGNMENT)
    aligned = (ctypes.c_char * len(value)).from_buffer(
        raw, -ctypes.addressof(raw) % _TENSOR_MAP_ALIGNMENT)
    aligned.raw = value
    return aligned
