"""Architectures of torch and transformers, small for tests and full-size for benchmarks.

All are built from configurations with seeded random weights; nothing is downloaded. The
convolutional ones are in ``torch_vision.py``, those of transformers in ``torch_language.py``.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from benchmarks import torch_language as language
from benchmarks import torch_vision as vision

Inputs = tuple[torch.Tensor, ...]
Axes = dict[int, str]


@dataclass(frozen=True)
class Architecture:
    """``build(full=...)`` gives the module, ``inputs(batch, length, full=...)`` its arguments.

    ``open_axes`` names the dynamic axes of each argument. ``length`` is the sequence length;
    images ignore it. torch unrolls an LSTM, so its length is static.
    """

    build: Callable[..., torch.nn.Module]
    inputs: Callable[..., Inputs]
    open_axes: Sequence[Axes] = field(default_factory=lambda: ({0: "batch"},))

    def module(self, *, full: bool = False) -> torch.nn.Module:
        """Build the module in eval mode, with the same weights every time."""
        torch.manual_seed(0)
        module = self.build(full=full).eval()
        _randomize_statistics(module)
        return module


def _randomize_statistics(module: torch.nn.Module) -> None:
    """Randomize batch norm statistics: with the defaults, errors in folding would not show."""
    for part in module.modules():
        if isinstance(part, torch.nn.BatchNorm2d):
            part.running_mean.uniform_(-0.1, 0.1)
            part.running_var.uniform_(0.8, 1.2)


def images(small: int, large: int = 224) -> Callable[..., Inputs]:
    """Square images; ``small`` is the side length in tests, ``large`` in benchmarks."""

    def make(batch: int = 1, length: int = 0, *, full: bool = False) -> Inputs:  # noqa: ARG001
        side = large if full else small
        return (torch.randn(batch, 3, side, side, generator=_generator()),)

    return make


def tokens(vocabulary: int) -> Callable[..., Inputs]:
    def make(batch: int = 1, length: int = 7, *, full: bool = False) -> Inputs:  # noqa: ARG001
        return (torch.randint(0, vocabulary, (batch, length), generator=_generator()),)

    return make


def masked_tokens(batch: int = 1, length: int = 7, *, full: bool = False) -> Inputs:
    """Token ids and their mask; the last sequence is padded, unless it is the only one."""
    (ids,) = tokens(language.VOCABULARY)(batch, length, full=full)
    mask = torch.ones_like(ids)
    if batch > 1:
        mask[-1, length // 2 :] = 0
    return ids, mask


def next_token(batch: int = 1, length: int = 7, *, full: bool = False) -> Inputs:
    """One token, and keys and values of ``length`` tokens before it."""
    layers, heads, size = language.gpt2_form(full=full)
    generator = _generator()
    past = [torch.randn(batch, heads, length, size, generator=generator)
            for _ in range(2 * layers)]
    return torch.randint(0, language.VOCABULARY, (batch, 1), generator=generator), *past


def series(batch: int = 1, length: int = 7, *, full: bool = False) -> Inputs:
    return (torch.randn(batch, length, 64 if full else 5, generator=_generator()),)


def _generator() -> torch.Generator:
    return torch.Generator().manual_seed(1)


_SEQUENCE: Axes = {0: "batch", 1: "length"}
_PAST: Axes = {0: "batch", 2: "past"}
_TOKENS = tokens(language.VOCABULARY)

ARCHITECTURES: dict[str, Architecture] = {
    "resnet50": Architecture(vision.resnet50, images(32)),
    "mobilenet_v2": Architecture(vision.mobilenet_v2, images(32)),
    "efficientnet": Architecture(vision.efficientnet, images(32)),
    "convnext": Architecture(vision.convnext, images(32)),
    "unet": Architecture(vision.unet, images(16, 128)),
    "detector": Architecture(vision.detector, images(32, 224)),
    "lstm": Architecture(language.lstm, series),
    "bert": Architecture(language.bert, masked_tokens, (_SEQUENCE, _SEQUENCE)),
    "vit": Architecture(language.vit, images(32)),
    "gpt2": Architecture(language.gpt2, _TOKENS, (_SEQUENCE,)),
    "gpt2_past": Architecture(language.gpt2_past, next_token, ({0: "batch"}, *(_PAST,) * 4)),
    "llama": Architecture(language.llama, _TOKENS, (_SEQUENCE,)),
}


def dynamic_shapes(name: str, module: torch.nn.Module) -> tuple[Any, ...]:
    """The dynamic axes in the form of ``torch.export``, where ``*args`` are one argument."""
    dims: dict[str, Any] = {}

    def named(axes: Axes) -> dict[int, Any]:
        return {axis: dims.setdefault(label, torch.export.Dim(label, max=512))
                for axis, label in axes.items()}

    given = [named(axes) for axes in ARCHITECTURES[name].open_axes]
    kinds = [p.kind for p in inspect.signature(module.forward).parameters.values()]
    if inspect.Parameter.VAR_POSITIONAL not in kinds:
        return tuple(given)
    first = kinds.index(inspect.Parameter.VAR_POSITIONAL)
    return (*given[:first], tuple(given[first:]))
