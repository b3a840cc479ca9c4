"""One kernel in machine code with its arguments allocated, ready to be timed."""

from __future__ import annotations

import ctypes
import time

import numpy as np

from weft.codegen.llvm.build import build_object
from weft.codegen.llvm.jit import JitLibrary
from weft.codegen.llvm.runtime_support import build_runtime_support
from weft.ir.expr import Function
from weft.runtime.arena import AlignedBlock
from weft.runtime.library import function as native_function
from weft.runtime.threads import Threading
from weft.strategy import Implementation, lower_function
from weft.support.errors import LoweringError
from weft.target import CpuTarget
from weft.tir.buffer import Buffer
from weft.tir.func import PrimFunc

_SYMBOL = "weft_trial"


class RunningKernel:
    """``implementation`` of a primitive function, built for this machine and linked.

    Float inputs are random in [-1, 1) from a fixed seed; other inputs are zeros, which are valid
    indices into any tensor. Raises what lowering and code generation raise.
    """

    def __init__(self, function: Function, implementation: Implementation, target: CpuTarget,
                 threads: int) -> None:
        func = lower_function(function, target, _SYMBOL, implementation).func
        support = build_runtime_support(target).object
        self._library = JitLibrary([build_object(func, target).object, support], target)
        Threading(self._library).apply(threads)
        self._blocks = [_block(param, number) for number, param in enumerate(_buffers(func))]
        count = int(func.attrs["num_outputs"])
        self.outputs = [
            _view(block, param)
            for block, param in zip(self._blocks[-count:], _buffers(func)[-count:], strict=True)
        ]
        scratch = int(func.attrs.get("workspace_bytes", 0))
        self._blocks += [AlignedBlock(scratch)] if scratch else []
        addresses = [block.address for block in self._blocks]
        self._code = native_function(self._library, _SYMBOL, None,
                                     *[ctypes.c_void_p] * len(addresses))
        self._addresses = addresses

    def seconds(self, calls: int = 1) -> float:
        """The average seconds per call over ``calls`` consecutive calls."""
        code, addresses = self._code, self._addresses
        start = time.perf_counter()
        for _ in range(calls):
            code(*addresses)
        return (time.perf_counter() - start) / calls


def _buffers(func: PrimFunc) -> list[Buffer]:
    buffers = [param for param in func.params if isinstance(param, Buffer)]
    if len(buffers) != len(func.params):
        raise LoweringError("kernels with dynamic shapes cannot be timed", got=func.name)
    return buffers


def _block(param: Buffer, number: int) -> AlignedBlock:
    dtype = param.dtype.numpy
    shape = tuple(int(str(size)) for size in param.shape)
    block = AlignedBlock(int(np.prod(shape)) * dtype.itemsize)
    values = np.zeros(shape, dtype)
    if param.dtype.is_float:
        values = np.random.default_rng(number).uniform(-1, 1, shape).astype(dtype)
    block.array[:] = np.ascontiguousarray(values).reshape(-1).view(np.uint8)
    return block


def _view(block: AlignedBlock, param: Buffer) -> np.ndarray:
    return block.array.view(param.dtype.numpy)
