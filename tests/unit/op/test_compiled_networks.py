"""Small networks over signals, images and volumes: compiled code against the interpreter."""

from __future__ import annotations

import numpy as np
import pytest

import weft
from weft import op
from weft.ir.expr import Constant, Expr, Function, TupleGetItem, Var, const, var
from weft.ir.module import IRModule
from weft.ir.typing.infer import infer_type
from weft.transform.analysis.reference import evaluate

RNG = np.random.default_rng(11)


def weights(*shape: int) -> Constant:
    return const(RNG.uniform(-0.5, 0.5, shape).astype(np.float32))


def normalised(x: Expr, channels: int) -> Expr:
    """Batch normalisation with statistics, which folds into the convolution before it."""
    gamma, beta, mean = (weights(channels) for _ in range(3))
    variance = const(RNG.uniform(0.5, 1.5, channels).astype(np.float32))
    return op.nn.relu(TupleGetItem(op.nn.batch_norm(x, gamma, beta, mean, variance), 0))


def signal(x: Var) -> Expr:
    y = normalised(op.nn.conv1d(x, weights(32, 3, 5), strides=(2,), padding=(2,)), 32)
    y = normalised(op.nn.conv1d(y, weights(32, 1, 3), padding=(1,), groups=32), 32)
    y = op.nn.max_pool1d(y, pool_size=(2,), strides=(2,))
    y = op.nn.conv1d_transpose(y, weights(32, 16, 4), strides=(2,), padding=(1,))
    return op.nn.global_avg_pool1d(y)


def image(x: Var) -> Expr:
    y = op.nn.conv2d(x, weights(16, 3, 3, 3), padding=(1, 1))
    down = op.nn.avg_pool2d(op.nn.relu(y), pool_size=(2, 2), strides=(2, 2))
    gamma, beta = weights(16), weights(16)
    down = op.nn.group_norm(op.nn.conv2d(down, weights(16, 16, 3, 3), padding=(1, 1)), gamma, beta,
                            num_groups=4)
    up = op.nn.conv2d_transpose(down, weights(16, 16, 2, 2), strides=(2, 2))
    larger = op.image.resize2d(down, size=(10, 12), method="cubic")
    return op.nn.prelu(op.add(op.add(up, y), larger), weights(16))


def volume(x: Var) -> Expr:
    y = normalised(op.nn.conv3d(x, weights(16, 2, 3, 3, 3), padding=(1, 1, 1)), 16)
    y = normalised(op.nn.conv3d(y, weights(16, 16, 1, 3, 3), strides=(1, 2, 1)), 16)
    y = op.nn.adaptive_avg_pool3d(y, output_size=(2, 2, 3))
    return op.nn.conv3d_transpose(y, weights(16, 4, 2, 2, 2), strides=(2, 2, 2))


NETWORKS = {signal: (2, 3, 37), image: (1, 3, 10, 12), volume: (1, 2, 4, 9, 8)}


@pytest.mark.parametrize("network", NETWORKS, ids=lambda f: f.__name__)
def test_compiled_code_agrees_with_the_interpreter(network: object) -> None:
    shape = NETWORKS[network]  # type: ignore[index]
    x = var("x", shape, "float32")
    module = infer_type(IRModule.from_expr(Function((x,), network(x))))  # type: ignore[operator]
    data = RNG.uniform(-1, 1, shape).astype(np.float32)
    compiled = weft.compile(module)
    np.testing.assert_allclose(compiled(data), evaluate(module, [data]), rtol=1e-4, atol=1e-5)
    text = compiled.as_text("optimized")
    assert "batch_norm" not in text, "folded into the weights"
    assert "_transpose(" not in text, "written as a plain convolution"


def test_channels_stay_in_blocks_between_convolutions_of_volumes() -> None:
    x = var("x", (1, 16, 4, 6, 6), "float32")
    y = op.nn.relu(op.nn.conv3d(x, weights(16, 16, 3, 3, 3), padding=(1, 1, 1)))
    y = op.nn.max_pool3d(y, pool_size=(2, 2, 2), strides=(2, 2, 2))
    y = op.nn.conv3d(y, weights(16, 16, 1, 1, 1))
    compiled = weft.compile(infer_type(IRModule.from_expr(Function((x,), y))),
                            target="llvm -mcpu=haswell")
    text = compiled.as_text("optimized")
    assert 'layout="NCDHW8c"' in text.split("max_pool3d")[1]
    assert text.count("layout_transform(") == 1, "the first one reads the data as it is written"
