"""The architecture of a decoder-only language model, and its weights under names of weft's own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from weft.support.errors import UnsupportedModelError

Activation = Literal["gelu", "gelu_tanh", "silu", "relu"]


@dataclass(frozen=True)
class Rotary:
    """Rotary position embeddings (Su et al., 2021): a frequency per pair of elements.

    Pairs are element i and element i + pairs, or neighbours if ``interleaved``; elements beyond the
    pairs stay. ``factor`` multiplies cosines and sines (YaRN's attention factor).
    """

    frequencies: tuple[float, ...]
    factor: float = 1.0
    interleaved: bool = False

    def tables(self, positions: int) -> tuple[np.ndarray, np.ndarray]:
        """Cosines and sines, float32 [positions, pairs], rounded as PyTorch rounds them."""
        angles = np.outer(np.arange(positions, dtype=np.float32),
                          np.array(self.frequencies, np.float32))
        factor = np.float32(self.factor)
        return np.cos(angles) * factor, np.sin(angles) * factor


@dataclass(frozen=True, kw_only=True)
class Layer:
    """Attention of one layer: the factor of its scores, its window, and its rotary embedding.

    A query sees its own position and the ``window - 1`` before it; ``None`` for all.
    """

    scale: float
    window: int | None = None
    rotary: Rotary | None = None


@dataclass(frozen=True, kw_only=True)
class Architecture:
    """What a decoder computes, apart from its weights (``Weights``).

    ``parallel`` blocks add attention and MLP of the same input to it. ``softcap`` and
    ``logit_softcap`` bound scores and logits by tanh; 0 for no bound. ``experts`` is the number of
    experts per token of a mixture; 0 without a mixture. ALiBi (Press et al., 2022) has a slope per
    head.
    """

    vocab_size: int
    hidden_size: int
    heads: int
    kv_heads: int
    head_dim: int
    layers: tuple[Layer, ...]
    norm: Literal["layer", "rms"]
    epsilon: float
    activation: Activation
    alibi_slopes: tuple[float, ...] = ()
    parallel: bool = False
    softcap: float = 0.0
    logit_softcap: float = 0.0
    embedding_scale: float = 1.0
    experts: int = 0
    max_positions: int | None = field(default=None)


# Names of the weights of a model, and of those of layer i under "layers.{i}.". Names are followed
# by ".weight" or ".bias"; matrices are (outputs, inputs). Which of them exist says what a layer
# does: a gate makes an MLP gated, a post norm normalises the output of a sub-layer.
MODEL_WEIGHTS = ("embedding", "position_embedding", "embedding_norm", "final_norm", "output")
LAYER_WEIGHTS = (
    "attention_norm", "q", "k", "v", "q_norm", "k_norm", "attention_output", "attention_post_norm",
    "mlp_norm", "gate", "up", "down", "mlp_post_norm", "router", "experts_gate", "experts_up",
    "experts_down",
)


class Weights:
    """Float arrays by name (``MODEL_WEIGHTS``, ``LAYER_WEIGHTS``)."""

    def __init__(self, arrays: Mapping[str, np.ndarray]) -> None:
        self._arrays = dict(arrays)

    def __getitem__(self, name: str) -> np.ndarray:
        if name not in self._arrays:
            raise UnsupportedModelError(f"the model lacks the weight {name!r}",
                                        expected=", ".join(sorted(self._arrays)))
        return self._arrays[name]

    def get(self, name: str) -> np.ndarray | None:
        return self._arrays.get(name)

    def __contains__(self, name: str) -> bool:
        return name in self._arrays

    def names(self) -> tuple[str, ...]:
        return tuple(self._arrays)

    @property
    def nbytes(self) -> int:
        """Bytes of all weights; arrays that two names share count once."""
        return sum({id(a): a.nbytes for a in self._arrays.values()}.values())
