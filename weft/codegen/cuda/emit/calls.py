"""Calls that only GPU kernels contain: barriers and device functions."""

from __future__ import annotations

from collections.abc import Mapping

from weft.codegen.cuda.device_functions import DEVICE_FUNCTIONS, DeviceFunction, emit_device_call
from weft.codegen.cuda.device_functions.memory import TENSOR_MAP, map_fields
from weft.codegen.ir_text.emit.address import element_address
from weft.codegen.ir_text.emit.state import Emitter, FunctionState, emit
from weft.codegen.ir_text.types import value_type
from weft.runtime.devices.cuda.image import TensorMapSpec
from weft.support.errors import CodegenError
from weft.target import CudaTarget
from weft.tir import BufferLoad, Call, IntImm, PrimExpr, PrimFunc, Stmt, StringImm, all_exprs


def _barrier(state: FunctionState, _: Call) -> str:
    callee = state.out.module.declare("llvm.nvvm.barrier0", "void @()")
    state.out.do(f"call void {callee}()")
    state.effects += 1
    return "null"


def _call_extern(state: FunctionState, e: Call) -> str:
    """A call of a Python body, which takes generic pointers."""
    symbol = e.args[0]
    if not isinstance(symbol, StringImm) or symbol.value not in state.kernel.bodies:
        raise CodegenError("a call of a C function in a GPU kernel", where=state.kernel.name,
                           got=symbol, help="write the body in Python (te.python_extern)")
    state.effects += 1
    operands = [_generic(state, *_operand(state, argument)) for argument in e.args[1:]]
    kinds = ", ".join(operand.split()[0] for operand in operands)
    callee = state.out.module.declare(symbol.value, f"void @({kinds})")
    state.out.do(f"call void {callee}({', '.join(operands)})")
    return "null"


def _generic(state: FunctionState, kind: str, value: str) -> str:
    """An operand with its type; pointers in the generic address space."""
    if not kind.startswith("ptr addrspace"):
        return f"{kind} {value}"
    return f"ptr {state.out.emit(f'addrspacecast {kind} {value} to ptr')}"


def _device_function(function: DeviceFunction) -> Emitter:
    def emit_call(state: FunctionState, e: Call) -> str:
        _check_arch(state, function)
        operands = [_operand(state, argument) for argument in e.args]
        result = None if e.dtype.code == "handle" else value_type(e.dtype)
        if not function.is_pure:
            state.effects += 1
        return emit_device_call(state.out, function, operands, result) or "null"

    return emit_call


def _operand(state: FunctionState, e: PrimExpr) -> tuple[str, str]:
    """LLVM type and value; addresses have the type of pointers into their memory."""
    if isinstance(e, Call) and e.name == "address_of" and isinstance(e.args[0], BufferLoad):
        state.effects += 1
        return state.pointer_type(e.args[0].buffer), element_address(state, e.args[0])
    if isinstance(e, IntImm):
        return value_type(e.dtype), str(e.value)
    return value_type(e.dtype), emit(state, e)


def _check_arch(state: FunctionState, function: DeviceFunction) -> None:
    target = state.kernel.module.target
    if not isinstance(target, CudaTarget):
        raise CodegenError(f"the device function {function.name} on a CPU",
                           where=state.kernel.name)
    is_here = target.capability >= function.capability
    if function.is_specific:
        is_here = target.capability == function.capability and target.is_arch_specific
    if not is_here:
        number = "".join(map(str, function.capability))
        raise CodegenError(
            f"{function.name} does not exist on {target.arch}", where=state.kernel.name,
            expected=f"sm_{number}a" if function.is_specific else f"sm_{number} or later",
            got=target.arch)


CUDA_CALLS: Mapping[str, Emitter] = {
    "barrier": _barrier,
    "call_extern": _call_extern,
    **{name: _device_function(DEVICE_FUNCTIONS.get(name)) for name in DEVICE_FUNCTIONS},
}


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
