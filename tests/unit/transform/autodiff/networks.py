"""Small networks of three kinds, with their mean square as loss."""

from __future__ import annotations

import numpy as np

from weft import op
from weft.ir.expr import Function, var
from weft.ir.module import IRModule


def mlp(depth, rows, width):
    x = var("x", (rows, width))
    weights = [var(f"w{i}", (width, width)) for i in range(depth)]
    y = x
    for weight in weights:
        y = op.tanh(op.nn.dense(y, weight))
    return _loss(y, (x, *weights))


def resnet(blocks, channels=8, size=8):
    params = [var("x", (1, channels, size, size))]
    y = params[0]
    for i in range(blocks):
        a, b = (var(f"{n}{i}", (channels, channels, 3, 3)) for n in "ab")
        params += [a, b]
        hidden = op.nn.relu(op.nn.conv2d(y, a, padding=(1, 1)))
        y = op.nn.relu(op.add(op.nn.conv2d(hidden, b, padding=(1, 1)), y))
    return _loss(y, params)


def transformer(layers, tokens=16, width=16, heads=2):
    params = [var("x", (tokens, width))]

    def parameter(name, *shape):
        params.append(var(name, shape))
        return params[-1]

    def split(x):
        return op.transpose(op.reshape(x, newshape=(tokens, heads, width // heads)),
                            axes=(1, 0, 2))

    y = params[0]
    for i in range(layers):
        norm = op.nn.layer_norm(y, parameter(f"g{i}", width), parameter(f"b{i}", width))
        q, k, v = (split(op.nn.dense(norm, parameter(f"{n}{i}", width, width))) for n in "qkv")
        scores = op.nn.softmax(op.multiply(op.nn.batch_matmul(q, k), np.float32(0.35)))
        mixed = op.transpose(op.nn.batch_matmul(scores, v, transpose_b=False), axes=(1, 0, 2))
        flat = op.reshape(mixed, newshape=(tokens, width))
        y = op.add(y, op.nn.dense(flat, parameter(f"o{i}", width, width)))
        hidden = op.nn.dense(y, parameter(f"u{i}", 4 * width, width))
        hidden = op.multiply(hidden, op.sigmoid(hidden))
        y = op.add(y, op.nn.dense(hidden, parameter(f"e{i}", width, 4 * width)))
    return _loss(y, params)


def _loss(y, params):
    return IRModule.from_expr(Function(tuple(params), op.mean(op.multiply(y, y))))


def inputs_of(mod, seed=0):
    rng = np.random.default_rng(seed)
    return [(rng.normal(size=p.checked_type.concrete_shape) * 0.3).astype(np.float32)
            for p in mod["main"].params]
