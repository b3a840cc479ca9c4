"""Architectures over sequences: transformers from their configurations, and an LSTM."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

VOCABULARY = 97


def _sizes(*, full: bool) -> dict[str, int]:
    """Sizes of the base models, or of small ones with two layers of four heads."""
    hidden = 768 if full else 32
    return {"hidden": hidden, "layers": 12 if full else 2, "heads": 12 if full else 4,
            "inner": 4 * hidden}


class Output(nn.Module):
    """Wrap a model of ``transformers`` to return one field of its output."""

    def __init__(self, model: nn.Module, field: str, names: tuple[str, ...], **options: Any
                 ) -> None:
        super().__init__()
        self.model = model
        self.field = field
        self.names = names
        self.options = options

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        named = dict(zip(self.names, inputs, strict=True))
        return getattr(self.model(**named, **self.options), self.field)


def bert(*, full: bool) -> nn.Module:
    from transformers import BertConfig, BertModel

    s = _sizes(full=full)
    config = BertConfig(vocab_size=VOCABULARY, hidden_size=s["hidden"],
                        num_hidden_layers=s["layers"], num_attention_heads=s["heads"],
                        intermediate_size=s["inner"], max_position_embeddings=512)
    return Output(BertModel(config, add_pooling_layer=False), "last_hidden_state",
                  ("input_ids", "attention_mask"))


def vit(*, full: bool) -> nn.Module:
    from transformers import ViTConfig, ViTModel

    s = _sizes(full=full)
    config = ViTConfig(hidden_size=s["hidden"], num_hidden_layers=s["layers"],
                       num_attention_heads=s["heads"], intermediate_size=s["inner"],
                       image_size=224 if full else 32, patch_size=16 if full else 8)
    return Output(ViTModel(config, add_pooling_layer=False), "last_hidden_state",
                  ("pixel_values",))


def gpt2_form(*, full: bool) -> tuple[int, int, int]:
    """Layers, heads, and the size of a head."""
    s = _sizes(full=full)
    return s["layers"], s["heads"], s["hidden"] // s["heads"]


def _gpt2_model(*, full: bool) -> nn.Module:
    from transformers import GPT2Config, GPT2LMHeadModel

    s = _sizes(full=full)
    config = GPT2Config(vocab_size=VOCABULARY, n_positions=1024, n_embd=s["hidden"],
                        n_layer=s["layers"], n_head=s["heads"], bos_token_id=0, eos_token_id=0)
    return GPT2LMHeadModel(config)


def gpt2(*, full: bool) -> nn.Module:
    return Output(_gpt2_model(full=full), "logits", ("input_ids",), use_cache=False)


class WithPast(nn.Module):
    """One decoder step: takes the keys and values of each layer and returns them extended."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: torch.Tensor, *past: torch.Tensor) -> tuple[torch.Tensor, ...]:
        from transformers.cache_utils import DynamicCache

        cache = DynamicCache()
        for layer in range(len(past) // 2):
            cache.update(past[2 * layer], past[2 * layer + 1], layer)
        found = self.model(input_ids=input_ids, past_key_values=cache, use_cache=True)
        layers = found.past_key_values.layers
        return found.logits, *(t for layer in layers for t in (layer.keys, layer.values))


def gpt2_past(*, full: bool) -> nn.Module:
    return WithPast(_gpt2_model(full=full))


def llama(*, full: bool) -> nn.Module:
    """RMS norm, rotary positions, two query heads per key head."""
    from transformers import LlamaConfig, LlamaForCausalLM

    s = _sizes(full=full)
    config = LlamaConfig(vocab_size=VOCABULARY, hidden_size=s["hidden"],
                         num_hidden_layers=s["layers"], num_attention_heads=s["heads"],
                         num_key_value_heads=s["heads"] // 2, intermediate_size=2 * s["hidden"],
                         max_position_embeddings=1024)
    return Output(LlamaForCausalLM(config), "logits", ("input_ids",), use_cache=False)


class Recurrent(nn.Module):
    """Two layers of LSTM, and a linear layer on the last step."""

    def __init__(self, features: int, hidden: int) -> None:
        super().__init__()
        self.lstm = nn.LSTM(features, hidden, num_layers=2, batch_first=True)
        self.last = nn.Linear(hidden, 3)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        output, _ = self.lstm(x)
        return output, self.last(output[:, -1])


def lstm(*, full: bool) -> nn.Module:
    return Recurrent(64, 256) if full else Recurrent(5, 8)
