"""GEMMs and convolutions: the distinct layers of known networks, and random shapes."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import onnx

from benchmarks.kernel_models import Kernel
from benchmarks.models import GraphBuilder, conv_layer, matmul

SQUARES = (256, 384, 512, 768, 1024, 1536, 2048)
# (output features, input features) of the layers; BERT-base and GPT-2 have the same widths.
BERT = ((768, 768), (3072, 768), (768, 3072))
GPT2 = ((2304, 768), (768, 768), (3072, 768), (768, 3072), (50257, 768))
VIT = GPT2[:4]  # ViT-B/16, whose images are 197 rows
# Input channels, output channels, kernel, stride, size.
RESNET50 = (
    (3, 64, 7, 2, 224),
    (64, 64, 1, 1, 56), (64, 64, 3, 1, 56), (64, 256, 1, 1, 56), (256, 64, 1, 1, 56),
    (256, 128, 1, 1, 56), (128, 128, 3, 2, 56), (128, 512, 1, 1, 28), (256, 512, 1, 2, 56),
    (512, 128, 1, 1, 28), (128, 128, 3, 1, 28),
    (512, 256, 1, 1, 28), (256, 256, 3, 2, 28), (256, 1024, 1, 1, 14), (512, 1024, 1, 2, 28),
    (1024, 256, 1, 1, 14), (256, 256, 3, 1, 14),
    (1024, 512, 1, 1, 14), (512, 512, 3, 2, 14), (512, 2048, 1, 1, 7), (1024, 2048, 1, 2, 14),
    (2048, 512, 1, 1, 7), (512, 512, 3, 1, 7),
)
MOBILENET_V2 = (
    (3, 32, 3, 2, 224), (32, 16, 1, 1, 112), (16, 96, 1, 1, 112), (96, 24, 1, 1, 56),
    (24, 144, 1, 1, 56), (144, 32, 1, 1, 28), (32, 192, 1, 1, 28), (192, 64, 1, 1, 14),
    (64, 384, 1, 1, 14), (384, 96, 1, 1, 14), (96, 576, 1, 1, 14), (576, 160, 1, 1, 7),
    (160, 960, 1, 1, 7), (960, 320, 1, 1, 7), (320, 1280, 1, 1, 7),
)
VGG16 = (
    (3, 64, 3, 1, 224), (64, 64, 3, 1, 224), (64, 128, 3, 1, 112), (128, 128, 3, 1, 112),
    (128, 256, 3, 1, 56), (256, 256, 3, 1, 56), (256, 512, 3, 1, 28), (512, 512, 3, 1, 28),
    (512, 512, 3, 1, 14),
)
DRAWS = 12


@dataclass(frozen=True)
class Convolution:
    """A convolution of any rank; ``sizes`` are spatial, the padding is half the kernel size."""

    name: str
    inputs: int
    outputs: int
    taps: tuple[int, ...]
    sizes: tuple[int, ...]
    stride: int = 1
    groups: int = 1
    dilation: int = 1
    batch: int = 1
    transposed: bool = False

    def build(self) -> onnx.ModelProto:
        """The convolution with constant weights, and ReLU."""
        g = GraphBuilder("conv", (self.batch, self.inputs, *self.sizes), seed=3)
        ends = (self.inputs, self.outputs) if self.transposed else (self.outputs, self.inputs)
        w = g.weight((ends[0], ends[1] // self.groups, *self.taps),
                     self.inputs // self.groups * math.prod(self.taps))
        rank = len(self.taps)
        y = g.node("ConvTranspose" if self.transposed else "Conv", "x", w,
                   kernel_shape=list(self.taps), strides=[self.stride] * rank,
                   pads=[self.dilation * (tap // 2) for tap in self.taps] * 2,
                   dilations=[self.dilation] * rank, group=self.groups)
        return g.build(g.node("Relu", y))

    def kernel(self) -> Kernel:
        positions = self.sizes if self.transposed else [s // self.stride for s in self.sizes]
        channels = self.inputs * self.outputs // self.groups
        flops = 2.0 * self.batch * channels * math.prod(self.taps) * math.prod(positions)
        return Kernel(self.name, self.build, flops)


# Convolutions of networks for audio, video, segmentation and image generation.
OTHER_CONVOLUTIONS = (
    Convolution("conv1d 80-384 k3@3000", 80, 384, (3,), (3000,)),
    Convolution("conv1d 384-384 k3/2@3000", 384, 384, (3,), (3000,), stride=2),
    Convolution("conv1d 32-64 k5 d4@4096", 32, 64, (5,), (4096,), dilation=4),
    Convolution("conv3d 3-64 k3@16x56x56", 3, 64, (3, 3, 3), (16, 56, 56)),
    Convolution("conv3d 64-64 k3@4x14x14", 64, 64, (3, 3, 3), (4, 14, 14)),
    Convolution("conv3d 64-32 k1@8x28x28", 64, 32, (1, 1, 1), (8, 28, 28)),
    Convolution("grouped conv3x3 128-128 g32@56", 128, 128, (3, 3), (56, 56), groups=32),
    Convolution("grouped conv3x3 512-512 g32@14", 512, 512, (3, 3), (14, 14), groups=32),
    Convolution("grouped conv1x1 240-240 g3@28", 240, 240, (1, 1), (28, 28), groups=3),
    Convolution("dilated conv3x3 256-64 d6@28", 256, 64, (3, 3), (28, 28), dilation=6),
    Convolution("dilated conv3x3 48-48 d2@65", 48, 48, (3, 3), (65, 65), dilation=2),
    Convolution("conv11x11/4 3-64@224", 3, 64, (11, 11), (224, 224), stride=4),
    Convolution("conv5x5 64-192@27", 64, 192, (5, 5), (27, 27)),
    Convolution("conv3x3 64-64@28 batch 8", 64, 64, (3, 3), (28, 28), batch=8),
    Convolution("transposed conv2x2/2 128-64@28", 128, 64, (2, 2), (28, 28), stride=2,
                transposed=True),
    Convolution("transposed conv4x4/2 64-32@32", 64, 32, (4, 4), (32, 32), stride=2,
                transposed=True),
)


def layer(rows: int, outputs: int, inputs: int) -> onnx.ModelProto:
    """A dense layer: ``rows`` activations by a constant weight."""
    g = GraphBuilder("layer", (rows, inputs), seed=5)
    return g.build(g.node("MatMul", "x", g.weight((inputs, outputs), inputs)))


def _gemm(m: int, n: int, k: int) -> Kernel:
    return Kernel(f"gemm {m}x{n}x{k}", lambda: matmul(m, n, k), 2.0 * m * n * k)


def _layer(network: str, m: int, n: int, k: int) -> Kernel:
    return Kernel(f"{network} {m}x{n}x{k}", lambda: layer(m, n, k), 2.0 * m * n * k)


def _convolution(network: str, shape: tuple[int, int, int, int, int]) -> Kernel:
    c_in, c_out, kernel, stride, size = shape
    flops = 2.0 * c_in * c_out * kernel**2 * (size // stride) ** 2
    name = f"{network} conv{kernel}x{kernel}/{stride} {c_in}-{c_out}@{size}"
    return Kernel(name, lambda: conv_layer(*shape), flops)


def _drawn() -> Iterator[Kernel]:
    """Shapes outside of common models: few rows, and sizes that no tile divides."""
    rng = np.random.default_rng(2026)
    for number in range(DRAWS):
        m = int(rng.integers(1, 17)) if number % 2 else int(rng.integers(17, 700))
        n, k = (int(v) for v in rng.integers(30, 2000, 2))
        yield _layer("drawn", m, n, k)
    for _ in range(DRAWS // 2):
        c_in, c_out = (int(v) for v in rng.integers(3, 300, 2))
        kernel, stride, size = int(rng.choice([1, 3, 5])), int(rng.choice([1, 2])), 0
        size = int(rng.integers(7, 60)) // stride * stride + stride
        yield _convolution("drawn", (c_in, c_out, kernel, stride, size))


CONTRACTIONS: list[Kernel] = [
    *(_gemm(n, n, n) for n in SQUARES),
    *(_layer("bert", 128, n, k) for n, k in BERT),
    *(_layer("gpt2", 1, n, k) for n, k in GPT2),
    *(_layer("gpt2", 64, n, k) for n, k in GPT2[:4]),
    *(_layer("gpt2", 128, n, k) for n, k in GPT2[:1]),
    *(_layer("vit", 197, n, k) for n, k in VIT),
    *(_convolution("resnet50", shape) for shape in RESNET50),
    *(_convolution("mobilenet", shape) for shape in MOBILENET_V2),
    *(_convolution("vgg16", shape) for shape in VGG16),
    *_drawn(),
    *(convolution.kernel() for convolution in OTHER_CONVOLUTIONS),
]
