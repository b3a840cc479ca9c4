"""Further architectures for benchmarks: none of them was at hand when schedules were written.

Transformers and a network over series; the convolutional ones are in ``torch_further_vision.py``.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from benchmarks import torch_further_vision as vision
from benchmarks.torch_language import VOCABULARY, Output
from benchmarks.torch_zoo import ARCHITECTURES, Architecture, Inputs, images, tokens


def swin(*, full: bool) -> nn.Module:
    """Swin-T (Liu et al., 2021): attention in shifted windows."""
    from transformers import SwinConfig, SwinModel

    config = SwinConfig() if full else SwinConfig(
        image_size=32, patch_size=4, embed_dim=8, depths=(1, 1), num_heads=(1, 2), window_size=4)
    return Output(SwinModel(config, add_pooling_layer=False), "last_hidden_state",
                  ("pixel_values",))


def segformer(*, full: bool) -> nn.Module:
    """SegFormer-B0 (Xie et al., 2021): attention over reduced keys, depthwise convolutions."""
    from transformers import SegformerConfig, SegformerForSemanticSegmentation

    config = SegformerConfig(num_labels=19) if full else SegformerConfig(
        num_labels=3, hidden_sizes=[8, 8, 16, 16], depths=[1, 1, 1, 1],
        num_attention_heads=[1, 1, 2, 2], decoder_hidden_size=16)
    return Output(SegformerForSemanticSegmentation(config), "logits", ("pixel_values",))


def regnet(*, full: bool) -> nn.Module:
    """RegNetY-4GF (Radosavovic et al., 2020): grouped convolutions, squeeze and excitation."""
    from transformers import RegNetConfig, RegNetModel

    config = RegNetConfig() if full else RegNetConfig(
        hidden_sizes=[16, 32], depths=[1, 1], groups_width=8)
    return Output(RegNetModel(config), "last_hidden_state", ("pixel_values",))


def distilbert(*, full: bool) -> nn.Module:
    """DistilBERT (Sanh et al., 2019)."""
    from transformers import DistilBertConfig, DistilBertModel

    config = DistilBertConfig(vocab_size=VOCABULARY) if full else DistilBertConfig(
        vocab_size=VOCABULARY, dim=32, n_layers=2, n_heads=4, hidden_dim=64)
    return Output(DistilBertModel(config), "last_hidden_state", ("input_ids",))


def t5_encoder(*, full: bool) -> nn.Module:
    """The encoder of T5-small (Raffel et al., 2019): relative positions, RMS norms."""
    from transformers import T5Config, T5EncoderModel

    config = T5Config(vocab_size=VOCABULARY) if full else T5Config(
        vocab_size=VOCABULARY, d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4)
    return Output(T5EncoderModel(config), "last_hidden_state", ("input_ids",))


def speech_encoder(*, full: bool) -> nn.Module:
    """The encoder of Whisper tiny (Radford et al., 2022): 1-d convolutions, 1500 positions."""
    from transformers import WhisperConfig
    from transformers.models.whisper.modeling_whisper import WhisperEncoder

    config = WhisperConfig() if full else WhisperConfig(
        d_model=32, encoder_layers=2, encoder_attention_heads=4, encoder_ffn_dim=64,
        max_source_positions=20)
    return Output(WhisperEncoder(config), "last_hidden_state", ("input_features",))


class DilatedBlock(nn.Module):
    """A gated dilated causal convolution with skip and residual results (WaveNet)."""

    def __init__(self, channels: int, dilation: int) -> None:
        super().__init__()
        self.pad = nn.ConstantPad1d((dilation, 0), 0.0)
        self.conv = nn.Conv1d(channels, 2 * channels, 2, dilation=dilation)
        self.out = nn.Conv1d(channels, 2 * channels, 1)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        value, gate = self.conv(self.pad(x)).chunk(2, 1)
        residual, skip = self.out(torch.tanh(value) * torch.sigmoid(gate)).chunk(2, 1)
        return x + residual, skip


class Dilated(nn.Module):
    def __init__(self, channels: int, layers: int) -> None:
        super().__init__()
        self.first = nn.Conv1d(1, channels, 1)
        self.blocks = nn.ModuleList(DilatedBlock(channels, 2 ** (n % 10)) for n in range(layers))
        self.last = nn.Sequential(nn.ReLU(), nn.Conv1d(channels, channels, 1), nn.ReLU(),
                                  nn.Conv1d(channels, 256, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        total = torch.zeros(())
        for block in self.blocks:
            x, skip = block(x)
            total = total + skip
        return self.last(total)


def wavenet(*, full: bool) -> nn.Module:
    """WaveNet (van den Oord et al., 2016), 20 layers of 64 channels."""
    return Dilated(64, 20) if full else Dilated(8, 4)


class Recommender(nn.Module):
    """Embeddings, an MLP of dense features, products of all pairs, an MLP (DLRM)."""

    def __init__(self, rows: int, tables: int, size: int, inner: int) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(rows, size) for _ in range(tables))
        self.bottom = nn.Sequential(nn.Linear(13, inner), nn.ReLU(), nn.Linear(inner, size),
                                    nn.ReLU())
        pairs = torch.tril_indices(tables + 1, tables + 1, -1)
        self.register_buffer("pairs", pairs[0] * (tables + 1) + pairs[1])
        self.top = nn.Sequential(nn.Linear(size + pairs.shape[1], inner), nn.ReLU(),
                                 nn.Linear(inner, inner // 2), nn.ReLU(), nn.Linear(inner // 2, 1))

    def forward(self, dense: torch.Tensor, sparse: torch.Tensor) -> torch.Tensor:
        x = self.bottom(dense)
        rows = [table(sparse[:, n]) for n, table in enumerate(self.tables)]
        features = torch.stack([x, *rows], 1)
        products = (features @ features.transpose(1, 2)).flatten(1)[:, self.pairs]
        return torch.sigmoid(self.top(torch.cat([x, products], 1)))


def recommender(*, full: bool) -> nn.Module:
    """DLRM (Naumov et al., 2019), 26 tables."""
    return Recommender(10_000, 26, 64, 512) if full else Recommender(50, 4, 8, 16)


def _features(batch: int = 1, length: int = 0, *, full: bool = False) -> Inputs:  # noqa: ARG001
    generator = torch.Generator().manual_seed(1)
    tables, rows = (26, 10_000) if full else (4, 50)
    return (torch.randn(16 * batch, 13, generator=generator),
            torch.randint(0, rows, (16 * batch, tables), generator=generator))


def _sound(channels: int, small: int, large: int) -> Any:
    def make(batch: int = 1, length: int = 0, *, full: bool = False) -> Inputs:  # noqa: ARG001
        generator = torch.Generator().manual_seed(1)
        return (torch.randn(batch, channels, large if full else small, generator=generator),)

    return make


FURTHER: dict[str, Architecture] = {
    "vgg16": Architecture(vision.vgg16, images(32)),
    "densenet": Architecture(vision.densenet, images(32)),
    "shufflenet": Architecture(vision.shufflenet, images(32)),
    "inception": Architecture(vision.inception, images(32)),
    "pyramid_detector": Architecture(vision.pyramid_detector, images(64, 320)),
    "mixer": Architecture(vision.mixer, images(32)),
    "regnet": Architecture(regnet, images(32)),
    "swin": Architecture(swin, images(32)),
    "segformer": Architecture(segformer, images(64, 256)),
    "distilbert": Architecture(distilbert, tokens(VOCABULARY)),
    "t5_encoder": Architecture(t5_encoder, tokens(VOCABULARY)),
    "speech_encoder": Architecture(speech_encoder, _sound(80, 40, 3000)),
    "wavenet": Architecture(wavenet, _sound(1, 64, 4096)),
    "recommender": Architecture(recommender, _features),
}
BENCHMARKED: dict[str, Architecture] = {**ARCHITECTURES, **FURTHER}
