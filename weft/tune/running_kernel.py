"""One kernel in machine code with its arguments allocated, ready to be timed."""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np

from weft.codegen import backend_of
from weft.ir.expr import Function
from weft.runtime.arena import AlignedBlock
from weft.runtime.devices.cpu.threads import threading_of
from weft.strategy import Implementation, lower_function
from weft.support.errors import LoweringError
from weft.target import Target
from weft.tir import Buffer, PrimFunc
from weft.tir.transform.registered import TirInsertion

_SYMBOL = "weft_trial"


class RunningKernel:
    """``implementation`` of a primitive function, built for this machine and linked.

    Float inputs are random in [-1, 1) from a fixed seed; other inputs are zeros, which are valid
    indices into any tensor. Raises what lowering and code generation raise.
    """

    def __init__(self, function: Function, implementation: Implementation, target: Target,
                 threads: int, tir_passes: Sequence[TirInsertion] = ()) -> None:
        func = lower_function(function, target, _SYMBOL, implementation, tir_passes).func
        backend = backend_of(target)
        code = backend.build_kernel(func, target)
        self._library = backend.load([code, *backend.support_objects(target)], target)
        threading_of(self._library).apply(threads)
        self._blocks = [_block(param, number) for number, param in enumerate(_buffers(func))]
        count = int(func.attrs["num_outputs"])
        self.outputs = [
            _view(block, param)
            for block, param in zip(self._blocks[-count:], _buffers(func)[-count:], strict=True)
        ]
        scratch = int(func.attrs.get("workspace_bytes", 0))
        self._blocks += [AlignedBlock(scratch)] if scratch else []
        addresses = [block.address for block in self._blocks]
        self._code = self._library.kernel(_SYMBOL, len(addresses))
        self._addresses = addresses

    def seconds(self, calls: int = 1) -> float:
        """The average seconds per call over ``calls`` consecutive calls."""
        code, addresses = self._code, self._addresses
        start = time.perf_counter()
        for _ in range(calls):
            code(*addresses)
        self._library.synchronize()
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
