"""The schemes of 16 bits: mixed precision, with a report of the layers' weights."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from weft.ir import (
    Call,
    Constant,
    Function,
    IRModule,
    MixedPrecision,
    Op,
    PassContext,
    post_order,
    run_pass,
)
from weft.ir.dtype import DType
from weft.quantization.names import layer_name, operator_name
from weft.quantization.options import QuantizationOptions
from weft.quantization.report import LayerReport
from weft.quantization.schemes import Samples
from weft.transform import ToMixedPrecision
from weft.transform.analysis.graph import enters


def run(module: IRModule, samples: Samples, options: QuantizationOptions, *, dtype: str
        ) -> tuple[IRModule, Sequence[LayerReport]]:
    """See ``SchemeRun``. Layers are not kept apart: the conversion is one of whole programs."""
    del samples, options
    convert = ToMixedPrecision(dtype=dtype)
    reports = [report for function in module.functions.values()
               for report in _reports(function, convert)]
    return run_pass(convert, module, PassContext()), reports


def _reports(function: Function, convert: ToMixedPrecision) -> Iterator[LayerReport]:
    for node in post_order(function, enter=enters):
        if isinstance(node, Call) and isinstance(node.op, Op) \
                and convert.conversion_of(node.op) is MixedPrecision.ALWAYS:
            for argument in node.args:
                if isinstance(argument, Constant) and argument.data.dtype == np.float32:
                    yield _report(node, argument, convert.dtype)


def _report(call: Call, weight: Constant, dtype: str) -> LayerReport:
    values = weight.data
    rounded = values.astype(DType.of(dtype).numpy).astype(np.float32)
    norm = float(np.linalg.norm(values))
    return LayerReport(
        layer=layer_name(call, weight), operator=operator_name(call), shape=values.shape,
        before="float32", after=dtype, bytes_before=values.nbytes, bytes_after=values.nbytes // 2,
        error=float(np.linalg.norm(values - rounded)) / norm if norm else 0.0)
