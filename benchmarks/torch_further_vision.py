"""Convolutional architectures that are benchmarked, and that no test or schedule was written for.

Shapes follow the papers named at each; weights are drawn.
"""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import nn

from benchmarks.torch_vision import ConvNorm


def _classifier(channels: int) -> list[nn.Module]:
    return [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 1000)]


def vgg16(*, full: bool) -> nn.Module:
    """Simonyan and Zisserman, 2014, configuration D."""
    scale = 1 if full else 16
    layers: list[nn.Module] = []
    channels = 3
    for width, count in ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)):
        for _ in range(count):
            layers += [nn.Conv2d(channels, width // scale, 3, padding=1), nn.ReLU()]
            channels = width // scale
        layers.append(nn.MaxPool2d(2))
    sizes = (channels * (49 if full else 1), 4096 // scale, 4096 // scale)
    dense = [part for a, b in pairwise(sizes) for part in (nn.Linear(a, b), nn.ReLU())]
    return nn.Sequential(*layers, nn.Flatten(), *dense, nn.Linear(sizes[-1], 1000))


class DenseLayer(nn.Module):
    """A bottleneck whose result is appended to its input."""

    def __init__(self, channels: int, growth: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.BatchNorm2d(channels), nn.ReLU(), nn.Conv2d(channels, 4 * growth, 1, bias=False),
            nn.BatchNorm2d(4 * growth), nn.ReLU(),
            nn.Conv2d(4 * growth, growth, 3, padding=1, bias=False))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat([x, self.body(x)], 1)


def densenet(*, full: bool) -> nn.Module:
    """DenseNet-121 (Huang et al., 2017)."""
    growth, blocks = (32, (6, 12, 24, 16)) if full else (4, (2, 2))
    channels = 2 * growth
    layers: list[nn.Module] = [ConvNorm(3, channels, 7, 2, act=nn.ReLU),
                               nn.MaxPool2d(3, 2, 1)]
    for number, count in enumerate(blocks):
        for _ in range(count):
            layers.append(DenseLayer(channels, growth))
            channels += growth
        if number + 1 < len(blocks):
            layers += [nn.BatchNorm2d(channels), nn.ReLU(),
                       nn.Conv2d(channels, channels // 2, 1, bias=False), nn.AvgPool2d(2)]
            channels //= 2
    return nn.Sequential(*layers, nn.BatchNorm2d(channels), nn.ReLU(), *_classifier(channels))


class ShuffleUnit(nn.Module):
    """Half of the channels pass, or both halves are reduced; then channels are shuffled."""

    def __init__(self, c_in: int, c_out: int, stride: int) -> None:
        super().__init__()
        half = c_out // 2
        self.stride = stride
        first = c_in if stride == 2 else c_in // 2
        self.right = nn.Sequential(
            ConvNorm(first, half, 1, act=nn.ReLU),
            ConvNorm(half, half, 3, stride, groups=half, act=None),
            ConvNorm(half, half, 1, act=nn.ReLU))
        self.left = nn.Sequential(
            ConvNorm(c_in, c_in, 3, 2, groups=c_in, act=None), ConvNorm(c_in, half, 1, act=nn.ReLU)
        ) if stride == 2 else nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        left, right = (x, x) if self.stride == 2 else x.chunk(2, 1)
        y = torch.cat([self.left(left), self.right(right)], 1)
        batch, channels, height, width = y.shape
        y = y.reshape(batch, 2, channels // 2, height, width).transpose(1, 2)
        return y.reshape(batch, channels, height, width)


def shufflenet(*, full: bool) -> nn.Module:
    """ShuffleNetV2 1.0x (Ma et al., 2018)."""
    stages = ((116, 4), (232, 8), (464, 4)) if full else ((16, 2),)
    channels = 24 if full else 8
    layers: list[nn.Module] = [ConvNorm(3, channels, 3, 2, act=nn.ReLU), nn.MaxPool2d(3, 2, 1)]
    for width, count in stages:
        for number in range(count):
            layers.append(ShuffleUnit(channels, width, 2 if number == 0 else 1))
            channels = width
    last = 1024 if full else 16
    return nn.Sequential(*layers, ConvNorm(channels, last, 1, act=nn.ReLU), *_classifier(last))


class InceptionBlock(nn.Module):
    """Four branches side by side (GoogLeNet)."""

    def __init__(self, c_in: int, sizes: tuple[int, int, int, int, int, int]) -> None:
        super().__init__()
        one, reduce3, three, reduce5, five, pool = sizes
        act = {"act": nn.ReLU}
        self.branches = nn.ModuleList([
            ConvNorm(c_in, one, 1, **act),
            nn.Sequential(ConvNorm(c_in, reduce3, 1, **act), ConvNorm(reduce3, three, 3, **act)),
            nn.Sequential(ConvNorm(c_in, reduce5, 1, **act), ConvNorm(reduce5, five, 5, **act)),
            nn.Sequential(nn.MaxPool2d(3, 1, 1), ConvNorm(c_in, pool, 1, **act)),
        ])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat([branch(x) for branch in self.branches], 1)


_INCEPTION = (
    ((64, 96, 128, 16, 32, 32), (128, 128, 192, 32, 96, 64)),
    ((192, 96, 208, 16, 48, 64), (160, 112, 224, 24, 64, 64), (128, 128, 256, 24, 64, 64),
     (112, 144, 288, 32, 64, 64), (256, 160, 320, 32, 128, 128)),
    ((256, 160, 320, 32, 128, 128), (384, 192, 384, 48, 128, 128)),
)


def inception(*, full: bool) -> nn.Module:
    """GoogLeNet with batch norm (Szegedy et al., 2014)."""
    if not full:
        return nn.Sequential(InceptionBlock(3, (4, 4, 8, 4, 8, 4)), *_classifier(24))
    layers: list[nn.Module] = [
        ConvNorm(3, 64, 7, 2, act=nn.ReLU), nn.MaxPool2d(3, 2, 1), ConvNorm(64, 64, 1, act=nn.ReLU),
        ConvNorm(64, 192, 3, act=nn.ReLU), nn.MaxPool2d(3, 2, 1)]
    channels = 192
    for stage in _INCEPTION:
        for sizes in stage:
            layers.append(InceptionBlock(channels, sizes))
            channels = sizes[0] + sizes[2] + sizes[4] + sizes[5]
        layers.append(nn.MaxPool2d(3, 2, 1))
    return nn.Sequential(*layers[:-1], *_classifier(channels))


class CrossStage(nn.Module):
    """Half of the channels pass residual bottlenecks, the other half none (CSPNet)."""

    def __init__(self, channels: int, count: int) -> None:
        super().__init__()
        half = channels // 2
        self.left = ConvNorm(channels, half, 1, act=nn.SiLU)
        self.right = ConvNorm(channels, half, 1, act=nn.SiLU)
        self.body = nn.ModuleList(
            nn.Sequential(ConvNorm(half, half, 1, act=nn.SiLU),
                          ConvNorm(half, half, 3, act=nn.SiLU))
            for _ in range(count))
        self.join = ConvNorm(channels, channels, 1, act=nn.SiLU)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.right(x)
        for part in self.body:
            y = y + part(y)
        return self.join(torch.cat([self.left(x), y], 1))


class PyramidDetector(nn.Module):
    """A one-stage detector: CSP backbone, feature pyramid by upsampling, three heads."""

    def __init__(self, width: int) -> None:
        super().__init__()
        w = width
        self.stem = ConvNorm(3, w, 3, 2, act=nn.SiLU)
        self.stages = nn.ModuleList(
            nn.Sequential(ConvNorm(a, 2 * a, 3, 2, act=nn.SiLU), CrossStage(2 * a, n))
            for a, n in ((w, 1), (2 * w, 2), (4 * w, 3), (8 * w, 1)))
        self.lateral = nn.ModuleList([ConvNorm(16 * w, 8 * w, 1, act=nn.SiLU),
                                      ConvNorm(8 * w, 4 * w, 1, act=nn.SiLU)])
        self.merge = nn.ModuleList([
            nn.Sequential(CrossStage(16 * w, 1), ConvNorm(16 * w, 8 * w, 1, act=nn.SiLU)),
            CrossStage(8 * w, 1)])
        self.heads = nn.ModuleList(nn.Conv2d(c * w, 255, 1) for c in (8, 8, 8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        levels = []
        x = self.stem(x)
        for stage in self.stages:
            x = stage(x)
            levels.append(x)
        top = self.lateral[0](levels[3])
        middle = self.merge[0](torch.cat([_twice(top), levels[2]], 1))
        bottom = self.merge[1](torch.cat([_twice(self.lateral[1](middle)), levels[1]], 1))
        found = [head(y) for head, y in zip(self.heads, (bottom, middle, top), strict=True)]
        return torch.cat([torch.sigmoid(y).flatten(2) for y in found], 2)


def _twice(x: torch.Tensor) -> torch.Tensor:
    return nn.functional.interpolate(x, scale_factor=2.0, mode="nearest")


def pyramid_detector(*, full: bool) -> nn.Module:
    """After YOLOv5 s (Ultralytics, 2020), with a 3x3 stem."""
    return PyramidDetector(32 if full else 4)


class MixerBlock(nn.Module):
    """An MLP over patches, then one over channels."""

    def __init__(self, patches: int, channels: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList([nn.LayerNorm(channels), nn.LayerNorm(channels)])
        self.tokens = nn.Sequential(nn.Linear(patches, channels // 2), nn.GELU(),
                                    nn.Linear(channels // 2, patches))
        self.channels = nn.Sequential(nn.Linear(channels, 4 * channels), nn.GELU(),
                                      nn.Linear(4 * channels, channels))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.tokens(self.norms[0](x).transpose(1, 2)).transpose(1, 2)
        return x + self.channels(self.norms[1](x))


class Mixer(nn.Module):
    def __init__(self, side: int, patch: int, channels: int, blocks: int) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, channels, patch, patch)
        self.blocks = nn.Sequential(
            *(MixerBlock((side // patch) ** 2, channels) for _ in range(blocks)))
        self.head = nn.Sequential(nn.LayerNorm(channels), nn.Linear(channels, 1000))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.blocks(self.patches(x).flatten(2).transpose(1, 2))).mean(1)


def mixer(*, full: bool) -> nn.Module:
    """MLP-Mixer S/16 (Tolstikhin et al., 2021)."""
    return Mixer(224, 16, 512, 8) if full else Mixer(32, 8, 16, 2)
