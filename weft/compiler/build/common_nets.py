"""Networks of common architectures, from whose kernels ``weft warm`` fills the cache.

Kernels depend on types, not on values or depth, so each network has one layer of each kind, with
weights that no pass can simplify.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import numpy as np

from weft.ir import (
    Constant,
    Expr,
    Function,
    IRModule,
    TensorType,
    Tuple,
    Var,
    float32,
    get_op,
    infer_type,
    int64,
)

_NUMBERS = np.random.default_rng(0).uniform(0.01, 0.1, 4099).astype(np.float32)
_starts = itertools.cycle(range(_NUMBERS.size))


def _weight(*shape: int) -> Constant:
    """A weight unlike the others: equal ones would be one argument of a kernel.

    All rows of a matrix are one in memory.
    """
    row = np.resize(np.roll(_NUMBERS, next(_starts)), shape[1:] if len(shape) == 2 else shape)
    return Constant(np.broadcast_to(row, shape))


def _module(x: Var, body: Expr, *others: Var) -> IRModule:
    return infer_type(IRModule({"main": Function((x, *others), body)}))


def _conv(x: Expr, c_in: int, c_out: int, kernel: int, stride: int = 1, groups: int = 1) -> Expr:
    """A convolution with the bias that batch normalisation leaves."""
    made = get_op("nn.conv2d")(x, _weight(c_out, c_in // groups, kernel, kernel), groups=groups,
                               strides=[stride, stride], padding=[kernel // 2, kernel // 2])
    return get_op("add")(made, _weight(c_out, 1, 1))


def _relu(x: Expr) -> Expr:
    return get_op("nn.relu")(x)


def _image(batch: int, size: int = 224) -> Var:
    return Var("x", TensorType((batch, 3, size, size), float32))


def _classified(x: Expr, channels: int) -> Expr:
    pooled = get_op("squeeze")(get_op("nn.global_avg_pool2d")(x), axis=[2, 3])
    scores = get_op("add")(get_op("nn.dense")(pooled, _weight(1000, channels)), _weight(1000))
    return Tuple((scores, get_op("nn.softmax")(scores, axis=1)))


def _stages() -> Iterator[tuple[int, int]]:
    """The width and the stride of each stage of a residual network."""
    return zip((64, 128, 256, 512), (1, 2, 2, 2), strict=True)


def _stem(x: Expr) -> Expr:
    return get_op("nn.max_pool2d")(_relu(_conv(x, 3, 64, 7, 2)), pool_size=[3, 3], strides=[2, 2],
                                   padding=[1, 1, 1, 1])


def resnet(bottleneck: bool, batch: int = 1) -> IRModule:
    """ResNet: 50, 101 and 152 with bottlenecks, 18 and 34 without."""
    image = _image(batch)
    x, c_in = _stem(image), 64
    for width, first in _stages():
        c_out = 4 * width if bottleneck else width
        for stride in (first, 1, 1):
            if bottleneck:
                y = _relu(_conv(_relu(_conv(x, c_in, width, 1)), width, width, 3, stride))
                y = _conv(y, width, c_out, 1)
            else:
                y = _conv(_relu(_conv(x, c_in, width, 3, stride)), width, width, 3)
            if c_in != c_out:
                x = _conv(x, c_in, c_out, 1, stride)
            x, c_in = _relu(get_op("add")(y, x)), c_out
    return _module(image, _classified(x, c_in))


def mobilenet_v2(batch: int = 1) -> IRModule:
    """MobileNetV2 of width 1."""
    def six(y: Expr) -> Expr:
        return get_op("clip")(y, a_min=0.0, a_max=6.0)

    image = _image(batch)
    x, c_in = six(_conv(image, 3, 32, 3, 2)), 32
    for expand, c_out, repeat, first in (
            (1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1),
            (6, 160, 3, 2), (6, 320, 1, 1)):
        for stride in (first, *(1,) * (repeat - 1)):
            hidden = c_in * expand
            y = six(_conv(x, c_in, hidden, 1)) if expand != 1 else x
            y = six(_conv(y, hidden, hidden, 3, stride, groups=hidden))
            y = _conv(y, hidden, c_out, 1)
            x, c_in = get_op("add")(y, x) if stride == 1 and c_in == c_out else y, c_out
    return _module(image, _classified(six(_conv(x, c_in, 1280, 1)), 1280))


def vgg16(batch: int = 1) -> IRModule:
    """The convolutions of VGG-16."""
    image = _image(batch)
    x: Expr = image
    c_in = 3
    for width, count in ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)):
        for _ in range(count):
            x, c_in = _relu(_conv(x, c_in, width, 3)), width
        x = get_op("nn.max_pool2d")(x, pool_size=[2, 2], strides=[2, 2])
    return _module(image, x)


def _dense(x: Expr, c_in: int, c_out: int) -> Expr:
    return get_op("add")(get_op("nn.dense")(x, _weight(c_out, c_in)), _weight(c_out))


def mlp(batch: int, width: int) -> IRModule:
    """A perceptron with two hidden layers, for the digits of MNIST."""
    image = Var("x", TensorType((batch, 784), float32))
    hidden = _relu(_dense(_relu(_dense(image, 784, width)), width, width))
    return _module(image, _dense(hidden, width, 10))


def _gelu(x: Expr) -> Expr:
    erf = get_op("erf")(get_op("divide")(x, 2.0 ** 0.5))
    return get_op("multiply")(get_op("multiply")(x, get_op("add")(erf, 1.0)), 0.5)


def _attention(x: Expr, length: int, width: int, mask: Expr | None, *, causal: bool) -> Expr:
    heads = width // 64 if width % 64 == 0 and width > 384 else 12
    split = [1, length, heads, width // heads]
    q, k, v = (get_op("transpose")(get_op("reshape")(_dense(x, width, width), newshape=split),
                                   axes=[0, 2, 1, 3]) for _ in range(3))
    scale = (width // heads) ** -0.5
    y = get_op("nn.attention")(q, k, v, scale=scale, causal=causal) if mask is None else \
        get_op("nn.masked_attention")(q, k, v, mask, scale=scale)
    joined = get_op("reshape")(get_op("transpose")(y, axes=[0, 2, 1, 3]),
                               newshape=[1, length, width])
    return _dense(joined, width, width)


def _embedded(tokens: Var, table: Var, places: Expr, words: int) -> Expr:
    """Embeddings of tokens and of positions, as ONNX counts tokens: below zero from the end."""
    is_from_end = get_op("less")(tokens, np.int64(0))
    known = get_op("where")(is_from_end, get_op("add")(tokens, np.int64(words)), tokens)
    return get_op("add")(get_op("take")(table, known, axis=0), places)


def transformer(width: int, length: int, *, is_decoder: bool) -> IRModule:
    """Two layers of an encoder as in BERT, or of a decoder as in GPT-2, from tokens on.

    The first layer normalises as BERT does, the second as RoBERTa and GPT-2 do and with a mask:
    of padding in encoders, of later tokens, as a matrix, in decoders.
    """
    tokens = Var("x", TensorType((1, length), int64))
    words = 50257 if is_decoder else 30522
    table = Var("table", TensorType((words, width), float32))
    mask = Var("mask", TensorType((length, length) if is_decoder else (1, 1, 1, length), float32))

    def norm(y: Expr, epsilon: float) -> Expr:
        exact = float(np.float32(epsilon))  # as files hold it
        return get_op("nn.layer_norm")(y, _weight(width), _weight(width), axis=2, epsilon=exact)

    x = _embedded(tokens, table, _weight(1, length, width), words)
    for epsilon, its_mask in ((1e-5 if is_decoder else 1e-12, None), (1e-5, mask)):
        x = x if is_decoder else norm(x, epsilon)
        y = norm(x, epsilon) if is_decoder else x
        x = get_op("add")(x, _attention(y, length, width, its_mask, causal=is_decoder))
        x = x if is_decoder else norm(x, epsilon)
        y = _gelu(_dense(norm(x, epsilon) if is_decoder else x, width, 4 * width))
        x = get_op("add")(x, _dense(y, 4 * width, width))
    x = norm(x, 1e-5)
    y = get_op("nn.dense")(x, _weight(words, width)) if is_decoder else x
    return _module(tokens, y, table, mask)


def _transformers(name: str, widths: Sequence[int], lengths: Sequence[int], *, is_decoder: bool
                  ) -> dict[str, Callable[[], IRModule]]:
    return {f"{name}-{width}x{length}": partial(transformer, width, length, is_decoder=is_decoder)
            for width, length in itertools.product(widths, lengths)}


COMMON_NETS: dict[str, Callable[[], IRModule]] = {
    "resnet-bottleneck": partial(resnet, bottleneck=True),
    "resnet-basic": partial(resnet, bottleneck=False),
    "mobilenet_v2": mobilenet_v2,
    "vgg16": vgg16,
    **{f"mlp-{batch}x{width}": partial(mlp, batch, width) for batch, width in
       itertools.product((1, 32, 64, 128), (128, 256, 512, 1024))},
    **_transformers("encoder", (384, 768, 1024), (128,), is_decoder=False),
    **_transformers("decoder", (768, 1024), (64,), is_decoder=True),
}
