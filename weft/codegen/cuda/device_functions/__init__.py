"""Instructions of NVIDIA GPUs that loop programs call by name; the body of each is its PTX.

``DEVICE_FUNCTIONS`` holds them; each is also an intrinsic of loop programs. Code generation calls
``emit_device_call``. The evaluator of loop programs runs one thread after another and refuses them:
the emulator runs their PTX.
"""

from __future__ import annotations

from collections.abc import Iterable

from weft.codegen.cuda.device_functions import matrix, memory, warp
from weft.codegen.cuda.device_functions.emit import Value, Writer, emit_device_call
from weft.codegen.cuda.device_functions.record import DeviceFunction, Kind, Operand
from weft.support.registry import Registry
from weft.tir.intrinsics import INTRINSICS, Intrinsic

__all__ = ["DEVICE_FUNCTIONS", "DeviceFunction", "Kind", "Operand", "Value", "Writer",
           "device_function", "emit_device_call"]

DEVICE_FUNCTIONS: Registry[DeviceFunction] = Registry("device function")


def _register(functions: Iterable[DeviceFunction]) -> None:
    for function in functions:
        DEVICE_FUNCTIONS.register(function.name, function)
        INTRINSICS.register(function.name, Intrinsic(
            function.name, len(function.operands), "any", function.doc, None))


INTRINSICS.register(memory.TENSOR_MAP, Intrinsic(
    memory.TENSOR_MAP, 2, "any", "the address of the tensor map of a parameter", None))
for _group in (warp, memory, matrix):
    _register(_group.FUNCTIONS)


def device_function(name: str) -> DeviceFunction:
    """The function of that name; raises ``RegistryError`` for an unknown one."""
    return DEVICE_FUNCTIONS.get(name)
