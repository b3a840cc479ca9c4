"""Matrix products, softmax and normalisation."""

from __future__ import annotations

from weft import op
from weft.frontend.common.typed import tensor_type
from weft.frontend.tflite.node import Node
from weft.frontend.tflite.ops.windows import with_bias
from weft.frontend.tflite.registry import converts
from weft.ir.expr import Expr


@converts("FULLY_CONNECTED")
def fully_connected(node: Node) -> Expr:
    """Without ``keep_num_dims`` all axes but the last of the kernel's are rows."""
    if node.option("WeightsFormat"):
        raise node.unsupported("shuffled weights")
    x, (units, depth) = node.input(0), node.fixed(node.shape(1), "a weight")
    shape = tensor_type(x).shape
    if not node.option("KeepNumDims") and (len(shape) != 2 or shape[-1] != depth):
        x = node.reshape(x, (-1, depth))
    weight = node.weight(1, lambda w: w, 0)
    made = node.call(op.nn.dense, x, node.input(1) if weight is None else weight, units=units)
    return with_bias(node, made, 2)


@converts("BATCH_MATMUL")
def batch_matmul(node: Node) -> Expr:
    """Leading axes broadcast."""
    return node.call(op.nn.matmul, node.input(0), node.input(1),
                     transpose_a=bool(node.option("AdjX")), transpose_b=bool(node.option("AdjY")))


@converts("SOFTMAX")
def softmax(node: Node) -> Expr:
    x, beta = node.input(0), float(node.option("Beta", 1.0))
    if beta != 1.0:
        x = node.call(op.multiply, x, node.scalar_like(beta, x))
    return node.call(op.nn.softmax, x, axis=-1)


@converts("LOG_SOFTMAX")
def log_softmax(node: Node) -> Expr:
    return node.call(op.nn.log_softmax, node.input(0), axis=-1)


@converts("L2_NORMALIZATION")
def l2_normalization(node: Node) -> Expr:
    return node.call(op.nn.l2_normalize, node.input(0), eps=1e-12, axis=(node.rank() - 1,))


@converts("LOCAL_RESPONSE_NORMALIZATION")
def local_response_normalization(node: Node) -> Expr:
    """TensorFlow's alpha counts each element, weft's the whole window."""
    size = 2 * int(node.option("Radius")) + 1
    return node.call(op.nn.lrn, node.input(0), size=size, axis=3,
                     bias=float(node.option("Bias", 0.0)),
                     alpha=float(node.option("Alpha", 0.0)) * size,
                     beta=float(node.option("Beta", 0.0)))
