"""Tensor instructions of CUDA for ``te.tensorize``: those that one thread executes.

Products of a whole warp hold their operands across threads; hand-written loops use them
(``weft.strategy.cuda.gemm``).
"""

from __future__ import annotations

from collections.abc import Sequence

from weft import te
from weft.codegen.cuda.device_functions import Writer, device_function, emit_device_call
from weft.codegen.ir_text.types import value_type
from weft.ir.dtype import DType
from weft.tir.instruction import Instruction


def _emit(out: Writer, dtype: DType, values: Sequence[str], dtypes: Sequence[DType]) -> str:
    operands = [(value_type(d), value) for d, value in zip(dtypes, values, strict=True)]
    return emit_device_call(out, device_function("dp4a_s32_s8"), operands, value_type(dtype))


def _dp4a() -> Instruction:
    """The sum of four products of signed bytes (sm_61 and later)."""
    a, b = (te.placeholder((4,), dtype="int8", name=name) for name in "ab")
    k = te.reduce_axis(4, name="k")
    c = te.compute((1,), lambda _: te.sum(
        a[k.var].astype("int32") * b[k.var].astype("int32"), k), name="c")
    return te.instruction("dp4a", [a, b], c, _emit, features=("mma.sync",))


DP4A = _dp4a()
