"""Quantized operators: integers that represent real numbers by a scale and a zero point.

``op.qnn.add`` and so on are the operator records. Each is composed of operators on integers and
floats (``composed``), by which the pass ``qnn_canonicalize`` replaces it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.op.index import NAMES
from weft.support.lazy_package import load_names_lazily

if TYPE_CHECKING:
    from weft.op.qnn.arithmetic import qnn_abs as abs
    from weft.op.qnn.arithmetic import qnn_add as add
    from weft.op.qnn.arithmetic import qnn_erf as erf
    from weft.op.qnn.arithmetic import qnn_exp as exp
    from weft.op.qnn.arithmetic import qnn_hardswish as hardswish
    from weft.op.qnn.arithmetic import qnn_leaky_relu as leaky_relu
    from weft.op.qnn.arithmetic import qnn_log as log
    from weft.op.qnn.arithmetic import qnn_mul as mul
    from weft.op.qnn.arithmetic import qnn_rsqrt as rsqrt
    from weft.op.qnn.arithmetic import qnn_sigmoid as sigmoid
    from weft.op.qnn.arithmetic import qnn_sqrt as sqrt
    from weft.op.qnn.arithmetic import qnn_subtract as subtract
    from weft.op.qnn.arithmetic import qnn_tanh as tanh
    from weft.op.qnn.contractions import qnn_batch_matmul as batch_matmul
    from weft.op.qnn.contractions import qnn_conv2d as conv2d
    from weft.op.qnn.contractions import qnn_conv2d_transpose as conv2d_transpose
    from weft.op.qnn.contractions import qnn_dense as dense
    from weft.op.qnn.convert import (
        dequantize,
        quantize,
        requantize,
        simulated_dequantize,
        simulated_quantize,
    )
    from weft.op.qnn.structure import qnn_avg_pool2d as avg_pool2d
    from weft.op.qnn.structure import qnn_concatenate as concatenate
    from weft.op.qnn.structure import qnn_softmax as softmax
else:
    load_names_lazily(__name__, NAMES[__name__])

__all__ = [
    "abs", "add", "avg_pool2d", "batch_matmul", "concatenate", "conv2d", "conv2d_transpose",
    "dense", "dequantize", "erf", "exp", "hardswish", "leaky_relu", "log", "mul", "quantize",
    "requantize", "rsqrt", "sigmoid", "simulated_dequantize", "simulated_quantize", "softmax",
    "sqrt", "subtract", "tanh",
]
