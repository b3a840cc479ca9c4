"""Operators of neural networks: ``op.nn.conv2d``, ``op.nn.relu``, …"""

from weft.op.elementwise import leaky_relu, relu
from weft.op.nn.conv2d import Conv2DAttrs, conv2d
from weft.op.nn.dense import (
    BatchMatmulAttrs,
    BiasAddAttrs,
    DenseAttrs,
    MatmulAttrs,
    batch_matmul,
    bias_add,
    dense,
    matmul,
)
from weft.op.nn.norm import (
    BatchNormAttrs,
    DropoutAttrs,
    LayerNormAttrs,
    LrnAttrs,
    batch_norm,
    dropout,
    layer_norm,
    lrn,
)
from weft.op.nn.pad import PadAttrs, pad
from weft.op.nn.pool import (
    AvgPool2DAttrs,
    GlobalPool2DAttrs,
    MaxPool2DAttrs,
    avg_pool2d,
    global_avg_pool2d,
    global_max_pool2d,
    max_pool2d,
)
from weft.op.nn.softmax import SoftmaxAttrs, log_softmax, softmax
from weft.op.nn.winograd import (
    WinogradConv2DAttrs,
    WinogradWeightAttrs,
    winograd_conv2d,
    winograd_weight,
)
from weft.op.transform.shape import batch_flatten

__all__ = [
    "AvgPool2DAttrs",
    "BatchMatmulAttrs",
    "BatchNormAttrs",
    "BiasAddAttrs",
    "Conv2DAttrs",
    "DenseAttrs",
    "DropoutAttrs",
    "GlobalPool2DAttrs",
    "LayerNormAttrs",
    "LrnAttrs",
    "MatmulAttrs",
    "MaxPool2DAttrs",
    "PadAttrs",
    "SoftmaxAttrs",
    "WinogradConv2DAttrs",
    "WinogradWeightAttrs",
    "avg_pool2d",
    "batch_flatten",
    "batch_matmul",
    "batch_norm",
    "bias_add",
    "conv2d",
    "dense",
    "dropout",
    "global_avg_pool2d",
    "global_max_pool2d",
    "layer_norm",
    "leaky_relu",
    "log_softmax",
    "lrn",
    "matmul",
    "max_pool2d",
    "pad",
    "relu",
    "softmax",
    "winograd_conv2d",
    "winograd_weight",
]
