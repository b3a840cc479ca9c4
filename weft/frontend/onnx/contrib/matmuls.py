"""ONNX Runtime's fused matmuls and convolutions: scales, transposes, biases and activations."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from weft import op
from weft.frontend.onnx.contrib.naming import contrib, on_inputs
from weft.frontend.onnx.node import Node, tensor_type
from weft.frontend.onnx.ops.conv import conv
from weft.frontend.onnx.ops.linear import gemm, matmul, transposed
from weft.frontend.onnx.registry import converts
from weft.frontend.onnx.windows import WINDOW_ATTRIBUTES
from weft.ir.expr import Expr
from weft.support.errors import UnsupportedModelError

# Attributes of the activation that FusedGemm and FusedMatMulActivation apply.
_FACTORS = ("activation_alpha", "activation_beta", "activation_gamma", "activation_axis")
_MATMUL = ("alpha", "transA", "transB", "transBatchA", "transBatchB")
# The parameters of an activation, with ONNX's defaults.
_PARAMETERS: Mapping[str, Sequence[float]] = {
    "LeakyRelu": (0.01,), "Clip": (-math.inf, math.inf), "HardSigmoid": (0.2, 0.5),
}


@converts(contrib("FusedMatMul"), attributes=_MATMUL)
def fused_matmul(node: Node) -> Expr:
    """Compute alpha * A B; ``trans`` swaps the last axes, ``transBatch`` has rows on axis 0."""
    a, b = (_operand(node, index, letter) for index, letter in enumerate("AB"))
    product = matmul(on_inputs(node, a, b))
    alpha = node.attrs.number("alpha", 1.0)
    if alpha == 1.0:
        return product
    return node.call(op.multiply, product, node.scalar_like(alpha, product))


@converts(contrib("TransposeMatMul"), attributes=("alpha", "transA", "transB"))
def transpose_matmul(node: Node) -> Expr:
    return fused_matmul(node)


@converts(contrib("FusedMatMulActivation"), attributes=(*_MATMUL, "activation", *_FACTORS))
def fused_matmul_activation(node: Node) -> Expr:
    return _activated(node, fused_matmul(node), _factors(node))


@converts(contrib("FusedGemm"),
          attributes=("alpha", "beta", "transA", "transB", "activation", *_FACTORS))
def fused_gemm(node: Node) -> Expr:
    return _activated(node, gemm(node), _factors(node))


@converts(contrib("FusedConv"),
          attributes=(*WINDOW_ATTRIBUTES, "group", "activation", "activation_params"))
def fused_conv(node: Node) -> Expr:
    """act(Conv(X, W, B) + Z); Z is optional."""
    result = conv(node)
    if node.has_input(3):
        result = node.call(op.add, result, node.input(3))
    return _activated(node, result, node.attrs.numbers("activation_params") or ())


def _operand(node: Node, index: int, letter: str) -> Expr:
    value, rank = node.input(index), node.rank(index)
    if rank < 2:  # as in MatMul, a vector is neither a row nor a column
        return value
    if node.attrs.flag(f"transBatch{letter}"):
        value = node.call(op.transpose, value, axes=(*range(1, rank - 1), 0, rank - 1))
    return transposed(node, value) if node.attrs.flag(f"trans{letter}") else value


def _factors(node: Node) -> tuple[float, ...]:
    """The given parameters of the activation, in order."""
    names = [name for name in _FACTORS[:2] if name in node.attrs]
    return tuple(node.attrs.number(name, 0.0) for name in names)


def _activated(node: Node, x: Expr, given: Sequence[float]) -> Expr:
    name = node.attrs.text("activation", "")
    defaults = _PARAMETERS.get(name, ())
    first, second, *_ = (*given, *defaults[len(given):], 0.0, 0.0)
    match name:
        case "":
            return x
        case "Relu":
            return node.call(op.nn.relu, x)
        case "Tanh":
            return node.call(op.tanh, x)
        case "Sigmoid":
            return node.call(op.sigmoid, x)
        case "LeakyRelu":
            return node.call(op.nn.leaky_relu, x, alpha=first)
        case "Clip":
            return node.call(op.clip, x, a_min=first, a_max=second)
        case "HardSigmoid":
            return _hard_sigmoid(node, x, first, second)
        case "HardSwish":
            return node.call(op.multiply, x, _hard_sigmoid(node, x, 1 / 6, 0.5))
        case "Softmax":
            axis = node.attrs.integer("activation_axis", -1)
            return node.call(op.nn.softmax, x, axis=node.axis(axis, tensor_type(x).ndim))
        case _:
            raise UnsupportedModelError(f"{node.op} with an unknown activation", where=node.span,
                                        got=repr(name))


def _hard_sigmoid(node: Node, x: Expr, alpha: float, beta: float) -> Expr:
    line = node.call(op.multiply, x, node.scalar_like(alpha, x))
    line = node.call(op.add, line, node.scalar_like(beta, x))
    return node.call(op.clip, line, a_min=0.0, a_max=1.0)
