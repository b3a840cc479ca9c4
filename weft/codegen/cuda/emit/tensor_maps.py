"""Tensor maps as parameters of kernels: 128 bytes by value, which only the TMA unit reads."""

from __future__ import annotations

from weft.codegen.cuda.device_functions.tma import TENSOR_MAP, map_fields
from weft.runtime.devices.cuda.image import TensorMapSpec
from weft.support.errors import CodegenError
from weft.tir import Call, PrimFunc, Stmt, all_exprs

# Without ``grid_constant`` the compiler would copy the map to memory of the thread.
PARAMETER = 'ptr byval([128 x i8]) align 64 "nvvm.grid_constant"'


def tensor_maps_of(body: Stmt) -> list[Call]:
    """The distinct maps that a launch uses, in order of first appearance."""
    return list(dict.fromkeys(e for e in all_exprs(body)
                              if type(e) is Call and e.name == TENSOR_MAP))


def map_spec(call: Call, func: PrimFunc) -> TensorMapSpec:
    """What the launcher encodes; ``CodegenError`` for a buffer that is no parameter."""
    buffer, fields = map_fields(call)
    if buffer not in func.params:
        raise CodegenError(f"a tensor map of {buffer.name}, which is not a parameter",
                           where=func.name)
    return TensorMapSpec(func.params.index(buffer), fields.dtype, fields.shape, fields.strides,
                         fields.box, fields.swizzle)
