"""Convolutional architectures written in torch."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812 - torch's own convention


class ConvNorm(nn.Sequential):
    """Convolution, batch norm, activation."""

    def __init__(self, c_in: int, c_out: int, kernel: int = 3, stride: int = 1, groups: int = 1,
                 act: type[nn.Module] | None = nn.ReLU) -> None:
        layers = [nn.Conv2d(c_in, c_out, kernel, stride, kernel // 2, groups=groups, bias=False),
                  nn.BatchNorm2d(c_out)]
        super().__init__(*layers, *([act()] if act else []))


class Bottleneck(nn.Module):
    """The residual block of ResNet v1.5: stride in the 3x3 convolution."""

    def __init__(self, c_in: int, width: int, stride: int) -> None:
        super().__init__()
        c_out = 4 * width
        self.body = nn.Sequential(ConvNorm(c_in, width, 1), ConvNorm(width, width, 3, stride),
                                  ConvNorm(width, c_out, 1, act=None))
        same = stride == 1 and c_in == c_out
        self.skip = nn.Identity() if same else ConvNorm(c_in, c_out, 1, stride, act=None)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.relu(self.body(x) + self.skip(x))


def resnet50(*, full: bool) -> nn.Module:
    width, classes = (64, 1000) if full else (8, 10)
    counts = (3, 4, 6, 3) if full else (1, 2, 1, 1)
    layers: list[nn.Module] = [ConvNorm(3, width, 7, 2), nn.MaxPool2d(3, 2, 1)]
    c_in = width
    for stage, count in enumerate(counts):
        for index in range(count):
            stride = 2 if stage and not index else 1
            layers.append(Bottleneck(c_in, width << stage, stride))
            c_in = 4 * (width << stage)
    return nn.Sequential(*layers, *_head(c_in, classes))


class BasicBlock(nn.Module):
    """The residual block of ResNet-18: two 3x3 convolutions."""

    def __init__(self, c_in: int, c_out: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(ConvNorm(c_in, c_out, 3, stride),
                                  ConvNorm(c_out, c_out, 3, act=None))
        same = stride == 1 and c_in == c_out
        self.skip = nn.Identity() if same else ConvNorm(c_in, c_out, 1, stride, act=None)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.relu(self.body(x) + self.skip(x))


def resnet18(*, full: bool) -> nn.Module:
    width, classes = (64, 1000) if full else (8, 10)
    layers: list[nn.Module] = [ConvNorm(3, width, 7, 2), nn.MaxPool2d(3, 2, 1)]
    c_in = width
    for stage in range(4):
        for index in range(2 if full else 1):
            layers.append(BasicBlock(c_in, width << stage, 2 if stage and not index else 1))
            c_in = width << stage
    return nn.Sequential(*layers, *_head(c_in, classes))


class Residual(nn.Module):
    """What a block computes, added to its input."""

    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.body = nn.Sequential(*layers)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.body(x)


def resnet9(*, full: bool) -> nn.Module:
    """Needle's ResNet9 for CIFAR-10: two residual blocks between strided convolutions."""
    scale = 1 if full else 4
    sizes = [16 // scale, 32 // scale, 64 // scale, 128 // scale]

    def pair(c: int) -> nn.Module:
        return Residual(ConvNorm(c, c), ConvNorm(c, c))

    return nn.Sequential(
        ConvNorm(3, sizes[0], 7, 4), ConvNorm(sizes[0], sizes[1], 3, 2), pair(sizes[1]),
        ConvNorm(sizes[1], sizes[2], 3, 2), ConvNorm(sizes[2], sizes[3], 3, 2), pair(sizes[3]),
        nn.Flatten(), nn.Linear(sizes[3], 128), nn.ReLU(), nn.Linear(128, 10))


def _head(channels: int, classes: int) -> list[nn.Module]:
    return [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, classes)]


class SqueezeExcite(nn.Module):
    """Scale channels by gates that a small network computes from their means."""

    def __init__(self, channels: int, hidden: int) -> None:
        super().__init__()
        self.gate = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(channels, hidden, 1),
                                  nn.SiLU(), nn.Conv2d(hidden, channels, 1), nn.Sigmoid())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.gate(x)


class InvertedResidual(nn.Module):
    """Expand, depthwise, project; with squeeze-excite it is the block of EfficientNet."""

    def __init__(self, c_in: int, c_out: int, stride: int, expand: int, kernel: int,
                 act: type[nn.Module], *, squeeze: bool) -> None:
        super().__init__()
        hidden = c_in * expand
        layers: list[nn.Module] = [] if expand == 1 else [ConvNorm(c_in, hidden, 1, act=act)]
        layers.append(ConvNorm(hidden, hidden, kernel, stride, groups=hidden, act=act))
        if squeeze:
            layers.append(SqueezeExcite(hidden, max(1, c_in // 4)))
        self.body = nn.Sequential(*layers, ConvNorm(hidden, c_out, 1, act=None))
        self.residual = stride == 1 and c_in == c_out

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.body(x) if self.residual else self.body(x)


# Expansion, channels, repeats, stride of the first, kernel.
_MOBILENET = ((1, 16, 1, 1, 3), (6, 24, 2, 2, 3), (6, 32, 3, 2, 3), (6, 64, 4, 2, 3),
              (6, 96, 3, 1, 3), (6, 160, 3, 2, 3), (6, 320, 1, 1, 3))
_EFFICIENTNET = ((1, 16, 1, 1, 3), (6, 24, 2, 2, 3), (6, 40, 2, 2, 5), (6, 80, 3, 2, 3),
                 (6, 112, 3, 1, 5), (6, 192, 4, 2, 5), (6, 320, 1, 1, 3))


def _inverted(settings: tuple[tuple[int, ...], ...], act: type[nn.Module], *, squeeze: bool,
              full: bool) -> nn.Module:
    scale, classes = (1, 1000) if full else (4, 10)
    settings = settings if full else settings[:3]
    c_in = 32 // scale
    layers: list[nn.Module] = [ConvNorm(3, c_in, 3, 2, act=act)]
    for expand, channels, repeats, stride, kernel in settings:
        for index in range(repeats):
            c_out = channels // scale
            layers.append(InvertedResidual(c_in, c_out, stride if not index else 1, expand, kernel,
                                           act, squeeze=squeeze))
            c_in = c_out
    last = 1280 // scale**2
    return nn.Sequential(*layers, ConvNorm(c_in, last, 1, act=act), *_head(last, classes))


def mobilenet_v2(*, full: bool) -> nn.Module:
    return _inverted(_MOBILENET, nn.ReLU6, squeeze=False, full=full)


def efficientnet(*, full: bool) -> nn.Module:
    """EfficientNet-B0."""
    return _inverted(_EFFICIENTNET, nn.SiLU, squeeze=True, full=full)


class ChannelsLastNorm(nn.LayerNorm):
    """Layer norm over the channels of an image."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class ConvNextBlock(nn.Module):
    """Depthwise 7x7 convolution, then an MLP on each pixel."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(channels, channels, 7, padding=3, groups=channels)
        self.pixel = nn.Sequential(nn.LayerNorm(channels), nn.Linear(channels, 4 * channels),
                                   nn.GELU(), nn.Linear(4 * channels, channels))
        self.scale = nn.Parameter(torch.full((channels,), 0.1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.pixel(self.depthwise(x).permute(0, 2, 3, 1)) * self.scale
        return x + y.permute(0, 3, 1, 2)


def convnext(*, full: bool) -> nn.Module:
    """ConvNeXt-T."""
    counts, widths = ((3, 3, 9, 3), (96, 192, 384, 768)) if full else ((1, 1), (8, 16))
    layers: list[nn.Module] = [nn.Conv2d(3, widths[0], 4, 4), ChannelsLastNorm(widths[0])]
    for stage, (count, width) in enumerate(zip(counts, widths, strict=True)):
        if stage:
            layers += [ChannelsLastNorm(widths[stage - 1]),
                       nn.Conv2d(widths[stage - 1], width, 2, 2)]
        layers += [ConvNextBlock(width) for _ in range(count)]
    return nn.Sequential(*layers, *_head(widths[-1], 1000 if full else 10))


class UNet(nn.Module):
    """Max pooling down, transposed convolutions up, and a final bilinear upsampling."""

    def __init__(self, width: int, depth: int) -> None:
        super().__init__()
        sizes = [width << level for level in range(depth + 1)]
        self.down = nn.ModuleList(self._pair(c_in, c_out)
                                  for c_in, c_out in zip([3, *sizes], sizes, strict=False))
        pairs = list(zip(sizes[:0:-1], sizes[-2::-1], strict=True))
        self.up = nn.ModuleList(nn.ConvTranspose2d(a, b, 2, 2) for a, b in pairs)
        self.join = nn.ModuleList(self._pair(2 * b, b) for _, b in pairs)
        self.last = nn.Conv2d(width, 2, 1)

    @staticmethod
    def _pair(c_in: int, c_out: int) -> nn.Module:
        return nn.Sequential(ConvNorm(c_in, c_out), ConvNorm(c_out, c_out))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        seen = []
        for level, block in enumerate(self.down):
            x = block(F.max_pool2d(x, 2) if level else x)
            seen.append(x)
        for up, join, skip in zip(self.up, self.join, seen[-2::-1], strict=True):
            x = join(torch.cat([skip, up(x)], 1))
        return F.interpolate(self.last(x), scale_factor=2.0, mode="bilinear")


def unet(*, full: bool) -> nn.Module:
    return UNet(32, 4) if full else UNet(4, 2)


class Detector(nn.Module):
    """A backbone, a head that gives boxes and scores, and greedy non-maximum suppression."""

    def __init__(self, width: int, kept: int) -> None:
        super().__init__()
        self.backbone = nn.Sequential(ConvNorm(3, width, 3, 2), ConvNorm(width, width, 3, 2),
                                      ConvNorm(width, 2 * width, 3, 2))
        self.boxes = nn.Conv2d(2 * width, 4, 1)
        self.scores = nn.Conv2d(2 * width, 1, 1)
        self.kept = kept

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        features = self.backbone(x)
        corner, size = self.boxes(features).flatten(2).transpose(1, 2).split(2, -1)
        boxes = torch.cat([corner, corner + F.softplus(size)], -1)
        scores = torch.sigmoid(self.scores(features)).flatten(1)
        return suppress(boxes, scores, self.kept, 0.5)


def suppress(boxes: torch.Tensor, scores: torch.Tensor, kept: int, threshold: float
             ) -> tuple[torch.Tensor, torch.Tensor]:
    """Greedy non-maximum suppression of boxes (batch, n, 4): the ``kept`` best boxes and scores.

    A box is suppressed if its IoU with a better kept box exceeds ``threshold``.
    """
    low = torch.maximum(boxes[:, :, None, :2], boxes[:, None, :, :2])
    high = torch.minimum(boxes[:, :, None, 2:], boxes[:, None, :, 2:])
    common = (high - low).clamp(min=0).prod(-1)
    area = (boxes[..., 2:] - boxes[..., :2]).prod(-1)
    overlap = common / (area[:, :, None] + area[:, None] - common)
    chosen, best = [], []
    for _ in range(kept):
        score, index = scores.max(1)
        row = overlap.gather(1, index[:, None, None].expand(-1, 1, overlap.shape[2]))[:, 0]
        scores = torch.where(row > threshold, torch.full_like(scores, -1.0), scores)
        chosen.append(index)
        best.append(score)
    indices = torch.stack(chosen, 1)
    return boxes.gather(1, indices[..., None].expand(-1, -1, 4)), torch.stack(best, 1)


def detector(*, full: bool) -> nn.Module:
    return Detector(32, 20) if full else Detector(4, 3)
