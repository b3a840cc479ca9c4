"""Convolutions rewritten as their decision says: Winograd's algorithm, other operand dtypes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from weft import op
from weft.ir import Call, Constant, DType, Expr, PassContext, TensorType, Type, const, float32
from weft.op.nn.conv import ConvAlgorithm, ConvAttrs
from weft.strategy.cpu.convolution.decide import decide_convolution
from weft.strategy.cpu.convolution.plan import ConvPlan
from weft.strategy.cpu.depthwise.cost import has_depthwise_kernel
from weft.strategy.cpu.dot_product.instruction import SHIFT
from weft.strategy.cpu.dot_product.upcast import upcast_operands
from weft.strategy.implementation import attrs_of
from weft.strategy.registry import legalize, reads_finite
from weft.support.errors import InternalError
from weft.target import CpuTarget
from weft.topi.layout import Layout
from weft.topi.nn.conv import side_padding


@reads_finite
@legalize("nn.conv1d", target="cpu")
@legalize("nn.conv2d", target="cpu")
@legalize("nn.conv3d", target="cpu")
def legalize_convolution(call: Call, types: Sequence[Type], context: PassContext) -> Expr | None:
    """Winograd's algorithm if it is fastest; narrow floats in float32 or by dot products.

    Weights are converted when the model is compiled, data in the kernel that computes it. Winograd
    rounds differently: errors relative to the largest result stay below 1e-4 (about 1e-6 for a
    direct sum). ``WEFT_WINOGRAD=0`` forbids it.
    """
    data, kernel = types
    if not (isinstance(data, TensorType) and isinstance(kernel, TensorType)):
        return None
    if not isinstance(context.target, CpuTarget):
        return None
    if attrs_of(call, ConvAttrs).groups == 1:
        upcast = upcast_operands(call, data, kernel, context.target)
        if upcast is not None:
            return upcast
    decision = decide_convolution(call, context.target, types,
                                  winograd=bool(context.config.get("winograd", True)))
    if decision is None:
        return _with_open_sizes(call, data, kernel)
    plan = decision.plan
    summed = _in_accumulators(call, plan, data)
    rewritten: Expr = summed
    if plan.winograd_tile is not None:
        rewritten = _winograd(summed, plan, plan.winograd_tile)
    elif plan.prepares_data:
        rewritten = _prepared(summed, plan, data)
    if rewritten is call:
        return None
    return rewritten if summed is call else _rounded(rewritten, call)


def _in_accumulators(call: Call, plan: ConvPlan, data: TensorType) -> Call:
    """The convolution of narrow floats whose accumulators and result are float32."""
    if plan.upcasts:
        return _in_float32(call)
    is_dot = plan.algorithm is ConvAlgorithm.DOT_PRODUCT and data.dtype.is_narrow_float
    return _summed_in_float32(call) if is_dot else call


def _with_open_sizes(call: Call, data: TensorType, kernel: TensorType) -> Expr | None:
    """Narrow floats in float32; every other choice waits for the sizes."""
    is_narrow = data.dtype.is_narrow_float and kernel.dtype.is_narrow_float
    if not is_narrow or has_depthwise_kernel(attrs_of(call, ConvAttrs), kernel):
        return None
    return _rounded(_in_float32(call), call)


def _winograd(call: Call, plan: ConvPlan, tile: int) -> Expr:
    """Output channels of zeros are appended to the kernel and sliced off the result again."""
    data, weight = call.args
    if not isinstance(weight, Constant):
        raise InternalError("a Winograd convolution needs constant weights", where=call.span)
    kernel, outputs = weight.data, weight.data.shape[0]
    if plan.added_outputs:
        zeros = np.zeros((plan.added_outputs, *kernel.shape[1:]), kernel.dtype)
        weight = Constant(np.concatenate([kernel, zeros]), span=weight.span)
    transformed = op.nn.winograd_weight(weight, tile=tile, span=call.span)
    result = op.nn.winograd_conv2d(data, transformed, tile=tile, span=call.span,
                                   padding=attrs_of(call, ConvAttrs).padding)
    if not plan.added_outputs:
        return result
    return op.strided_slice(result, begin=(0,), end=(outputs,), axes=(1,), span=call.span)


def _prepared(call: Call, plan: ConvPlan, type_: TensorType) -> Expr:
    """The convolution of data that is padded ahead, and shifted where the instruction takes the
    other sign: ``x w = (x + 128) w - 128 sum(w)``.
    """
    attrs, (data, kernel) = attrs_of(call, ConvAttrs), call.args
    layout = Layout.parse(attrs.data_layout)
    if any(attrs.padding):
        sides = [(0, 0)] * layout.ndim
        for letter, around in zip(attrs.spatial, side_padding(attrs.padding, len(attrs.spatial)),
                                  strict=True):
            sides[layout.index_of(letter)] = around
        data = op.nn.pad(data, const(type_.dtype.numpy.type(0)), pad_width=tuple(sides),
                         span=call.span)
    shift = plan.dot.shift(right=False) if plan.dot is not None else 0
    if shift:
        other = "uint8" if shift > 0 else "int8"
        bits = op.cast(data, dtype="uint8", span=call.span)
        bits = op.bitwise_xor(bits, const(np.uint8(SHIFT)), span=call.span)
        data = op.cast(bits, dtype=other, span=call.span) if other != "uint8" else bits
    result: Expr = call.replace(args=(data, kernel), checked_type=None,
                                attrs=attrs.replace(padding=(0,) * len(attrs.padding)))
    if shift and isinstance(kernel, Constant):
        outputs = Layout.parse(attrs.kernel_layout).index_of("O")
        taps = tuple(i for i in range(kernel.data.ndim) if i != outputs)
        sums = kernel.data.sum(axis=taps, dtype=np.int32) * np.int32(shift)
        behind = layout.ndim - 1 - Layout.parse(attrs.result_layout).index_of("C")
        sums = sums.reshape(-1, *(1,) * behind)
        result = op.subtract(result, const(sums), span=call.span)
    return result


def _in_float32(call: Call) -> Call:
    """The convolution of both operands in float32."""
    attrs = attrs_of(call, ConvAttrs).replace(out_dtype=None)
    return call.replace(args=tuple(_upcast(arg) for arg in call.args), attrs=attrs,
                        checked_type=_float32_result(call))


def _summed_in_float32(call: Call) -> Call:
    """The convolution of narrow operands with accumulators and result in float32."""
    attrs = attrs_of(call, ConvAttrs).replace(out_dtype=float32)
    return call.replace(attrs=attrs, checked_type=_float32_result(call))


def _float32_result(call: Call) -> Type | None:
    result = call.checked_type
    return TensorType(result.shape, float32) if isinstance(result, TensorType) else result


def _upcast(expr: Expr) -> Expr:
    """A tensor in float32; a constant is converted at once."""
    if isinstance(expr, Constant):
        return Constant(expr.data.astype(np.float32), span=expr.span)
    return op.cast(expr, dtype=float32, span=expr.span)


def _rounded(expr: Expr, call: Call) -> Expr:
    """``expr``, of float32, in the dtype of the result of ``call``."""
    type_ = call.checked_type
    dtype = type_.dtype if isinstance(type_, TensorType) else DType.of("float32")
    return expr if dtype == float32 else op.cast(expr, dtype=dtype, span=call.span)
