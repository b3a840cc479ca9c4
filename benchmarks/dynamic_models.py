"""The models of ``benchmarks.dynamic_shapes``: torch modules with seeded weights, as ONNX files."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from benchmarks.torch_export import quiet_exporter

VOCABULARY = 2000


@dataclass(frozen=True)
class DynamicCase:
    """A model, its named sizes, and the points at which it is measured.

    ``names`` are the names of the dynamic axes of the input, by axis; ``inputs`` makes the input
    for a point, one size for each name.
    """

    name: str
    module: Callable[[], nn.Module]
    names: Mapping[int, str]
    make: Callable[..., torch.Tensor]
    points: Sequence[tuple[int, ...]]
    by_dynamo: bool = False

    def feeds(self, point: tuple[int, ...]) -> dict[str, np.ndarray]:
        """The inputs at a point, by name."""
        return {"x": self.make(*point).numpy()}

    def export(self, path: Path) -> None:
        """Write the ONNX file."""
        module = self.module().eval()
        example = self.make(*(3 if size == 1 else size for size in self.points[1]))
        shapes = {axis: torch.export.Dim(name, min=1, max=512)
                  for axis, name in self.names.items()}
        how: dict[str, Any] = {"dynamic_axes": {"x": dict(self.names)}, "dynamo": False}
        if self.by_dynamo:
            how = {"dynamic_shapes": (shapes,), "dynamo": True, "verbose": False}
        with quiet_exporter():
            torch.onnx.export(module, (example,), str(path), input_names=["x"],
                              output_names=["y"], **how)


class First(nn.Module):
    """The first result of a transformers model."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.model(x)[0]


def bert() -> nn.Module:
    """BERT base with 2 of 12 layers."""
    from transformers import BertConfig, BertModel

    return First(BertModel(BertConfig(num_hidden_layers=2, vocab_size=VOCABULARY)))


def vit() -> nn.Module:
    """ViT base with 2 of 12 layers, 224 x 224 images."""
    from transformers import ViTConfig, ViTModel

    return First(ViTModel(ViTConfig(num_hidden_layers=2)))


def gpt2() -> nn.Module:
    """GPT-2 with 2 of 12 layers, without caches."""
    from transformers import GPT2Config, GPT2Model

    return First(GPT2Model(GPT2Config(n_layer=2, vocab_size=VOCABULARY, use_cache=False)))


def llama() -> nn.Module:
    """A Llama-like decoder of width 1024 with 2 layers and grouped heads, without caches."""
    from transformers import LlamaConfig, LlamaModel

    return First(LlamaModel(LlamaConfig(
        hidden_size=1024, intermediate_size=2816, num_hidden_layers=2, num_attention_heads=16,
        num_key_value_heads=4, vocab_size=VOCABULARY, use_cache=False)))


class Lstm(nn.Module):
    """Two LSTM layers of width 512 over 256 features."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.LSTM(256, 512, 2, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)[0]


class Block(nn.Module):
    """A residual block of two 3x3 convolutions."""

    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(before, after, 3, stride, 1, bias=False)
        self.second = nn.Conv2d(after, after, 3, 1, 1, bias=False)
        self.norms = nn.ModuleList([nn.BatchNorm2d(after), nn.BatchNorm2d(after)])
        self.shortcut = nn.Conv2d(before, after, 1, stride, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.relu(self.norms[0](self.first(x)))
        return torch.relu(self.norms[1](self.second(y)) + self.shortcut(x))


def backbone() -> nn.Sequential:
    """The stem and three stages of a ResNet-18."""
    return nn.Sequential(
        nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1),
        Block(64, 64, 1), Block(64, 128, 2), Block(128, 256, 2))


def cnn() -> nn.Module:
    """A classifier on the backbone."""
    return nn.Sequential(backbone(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(256, 1000))


class Detector(nn.Module):
    """Class scores and boxes of every cell of two feature maps, without suppression."""

    def __init__(self) -> None:
        super().__init__()
        self.backbone = backbone()
        self.down = Block(256, 256, 2)
        self.heads = nn.ModuleList([nn.Conv2d(256, 4 * 24, 3, 1, 1) for _ in range(2)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        near = self.backbone(x)
        maps = [head(f) for head, f in zip(self.heads, (near, self.down(near)), strict=True)]
        rows = [m.permute(0, 2, 3, 1).reshape(m.shape[0], -1, 24) for m in maps]
        return torch.sigmoid(torch.cat(rows, 1))


def _ids(batch: int, length: int) -> torch.Tensor:
    return torch.randint(0, VOCABULARY, (batch, length))


def _image(batch: int, height: int, width: int) -> torch.Tensor:
    return torch.randn(batch, 3, height, width)


_TOKENS: Any = {0: "batch", 1: "seq"}
_IMAGES: Any = {0: "batch", 2: "height", 3: "width"}
_LENGTHS = ((1, 1), (1, 16), (1, 128), (1, 500), (4, 33), (8, 64), (32, 16))
_SIZES = ((1, 64, 64), (2, 96, 128), (1, 224, 224), (4, 160, 160), (1, 320, 256))

MODELS = (
    DynamicCase("bert", bert, _TOKENS, _ids, _LENGTHS),
    DynamicCase("vit", vit, {0: "batch"}, lambda n: _image(n, 224, 224), ((1,), (2,), (4,), (8,))),
    DynamicCase("gpt2", gpt2, _TOKENS, _ids, _LENGTHS, by_dynamo=True),
    DynamicCase("llama", llama, _TOKENS, _ids, _LENGTHS, by_dynamo=True),
    DynamicCase("lstm", Lstm, _TOKENS, lambda b, t: torch.randn(b, t, 256),
                ((1, 1), (1, 16), (1, 100), (8, 20), (32, 50))),
    DynamicCase("cnn", cnn, _IMAGES, _image, _SIZES),
    DynamicCase("detector", Detector, _IMAGES, _image, _SIZES),
)
