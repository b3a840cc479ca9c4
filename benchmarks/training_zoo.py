"""Models to train: small ones for tests, larger ones for benchmarks, and a loss for each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812 - torch's own convention

from benchmarks import torch_vision as vision
from benchmarks.torch_language import Output

Batch = tuple[torch.Tensor, torch.Tensor]
LENGTH = 64


@dataclass(frozen=True)
class Training:
    """``build(full)`` makes a module in training mode, ``batch(size, seed, full)`` a batch."""

    build: Callable[[bool], nn.Module]
    batch: Callable[[int, int, bool], Batch]

    def module(self, *, full: bool = False) -> nn.Module:
        """The module, with the same weights every time."""
        torch.manual_seed(0)
        return self.build(full).train()


def loss_of(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """The cross entropy of classes in the last dimension, or in dimension 1 of images."""
    result = model(x)
    if y.ndim == x.ndim - 1 and x.ndim == 4:  # a class for each pixel
        return F.cross_entropy(result, y)
    return F.cross_entropy(result.reshape(-1, result.shape[-1]), y.reshape(-1))


def _generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def _images(small: int, large: int, *, of_pixels: int = 0) -> Callable[[int, int, bool], Batch]:
    def make(size: int, seed: int, full: bool) -> Batch:
        side, g = large if full else small, _generator(seed)
        shape = (size, side * of_pixels, side * of_pixels) if of_pixels else (size,)
        return (torch.randn(size, 3, side, side, generator=g),
                torch.randint(0, 2 if of_pixels else 10, shape, generator=g))

    return make


def _rows(size: int, seed: int, full: bool) -> Batch:
    g = _generator(seed)
    return (torch.randn(size, 784 if full else 20, generator=g),
            torch.randint(0, 10, (size,), generator=g))


def _tokens(vocabulary: int) -> Callable[[int, int, bool], Batch]:
    def make(size: int, seed: int, full: bool) -> Batch:
        length = LENGTH if full else 7
        words = torch.randint(0, vocabulary, (size, length + 1), generator=_generator(seed))
        return words[:, :-1].contiguous(), words[:, 1:].contiguous()

    return make


def mlp(full: bool) -> nn.Module:
    """Two hidden layers."""
    sizes = (784, 512, 256) if full else (20, 32, 16)
    return nn.Sequential(nn.Linear(sizes[0], sizes[1]), nn.ReLU(), nn.Linear(sizes[1], sizes[2]),
                         nn.ReLU(), nn.Linear(sizes[2], 10))


class LanguageModel(nn.Module):
    """An embedding, layers of LSTM, and a projection to the words."""

    def __init__(self, vocabulary: int, size: int, layers: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, size)
        self.lstm = nn.LSTM(size, size, num_layers=layers, batch_first=True)
        self.last = nn.Linear(size, vocabulary)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.lstm(self.embedding(x))[0])


def _transformer_sizes(full: bool) -> dict[str, int]:
    return {"hidden": 256 if full else 16, "layers": 4 if full else 1, "heads": 4 if full else 2}


def gpt2(full: bool, dropout: float = 0.0) -> nn.Module:
    """GPT-2 with few layers."""
    from transformers import GPT2Config, GPT2LMHeadModel

    s = _transformer_sizes(full)
    config = GPT2Config(vocab_size=VOCABULARY, n_positions=128, n_embd=s["hidden"],
                        n_layer=s["layers"], n_head=s["heads"], resid_pdrop=dropout,
                        embd_pdrop=dropout, attn_pdrop=dropout, bos_token_id=0, eos_token_id=0)
    return Output(GPT2LMHeadModel(config), "logits", ("input_ids",), use_cache=False)


def bert(full: bool, dropout: float = 0.0) -> nn.Module:
    """BERT with few layers, which predicts words."""
    from transformers import BertConfig, BertForMaskedLM

    s = _transformer_sizes(full)
    config = BertConfig(vocab_size=VOCABULARY, hidden_size=s["hidden"],
                        num_hidden_layers=s["layers"], num_attention_heads=s["heads"],
                        intermediate_size=4 * s["hidden"], max_position_embeddings=128,
                        hidden_dropout_prob=dropout, attention_probs_dropout_prob=dropout)
    return Output(BertForMaskedLM(config), "logits", ("input_ids",))


VOCABULARY = 1000

TRAININGS: Mapping[str, Training] = {
    "mlp": Training(mlp, _rows),
    "resnet9": Training(lambda full: vision.resnet9(full=full), _images(32, 32)),
    "resnet18": Training(lambda full: vision.resnet18(full=full), _images(32, 64)),
    "mobilenet_v2": Training(lambda full: vision.mobilenet_v2(full=full), _images(32, 64)),
    "lstm": Training(lambda full: LanguageModel(VOCABULARY, 128 if full else 8, 2),
                     _tokens(VOCABULARY)),
    "bert": Training(bert, _tokens(VOCABULARY)),
    "gpt2": Training(gpt2, _tokens(VOCABULARY)),
    "unet": Training(lambda full: vision.unet(full=full), _images(16, 64, of_pixels=2)),
}
