"""The architecture of a decoder-only language model, and its weights under names of weft's own."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import field
from functools import cached_property
from typing import Literal

import numpy as np

from weft.ir import Constant
from weft.support.dataclass import dataclass
from weft.support.errors import UnsupportedModelError
from weft.topi.nn.block_formats import block_format

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


@dataclass(frozen=True)
class RelativePositions:
    """Biases of scores by relative position (T5, Raffel et al., 2020): one per head and bucket.

    Half of the buckets hold one distance each, the others logarithmic ranges of distances; those
    from ``max_distance`` on share the last one. Encoders have buckets for either direction.
    """

    buckets: int
    max_distance: int

    def bucket_of(self, relative: np.ndarray, *, bidirectional: bool) -> np.ndarray:
        """Buckets of key positions less query positions, int64; rounded as PyTorch rounds them."""
        count, first = self.buckets, np.zeros(relative.shape, np.int64)
        if bidirectional:
            count //= 2
            first = np.where(relative > 0, count, 0)
            distance = np.abs(relative)
        else:
            distance = np.maximum(-relative, 0)
        exact = count // 2
        ratio = np.maximum(distance, 1).astype(np.float32) / np.float32(exact)
        steps = np.log(ratio) / np.float32(math.log(self.max_distance / exact))
        far = exact + (steps * np.float32(count - exact)).astype(np.int64)
        return first + np.where(distance < exact, distance, np.minimum(far, count - 1))


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
    head. ``relative`` biases are those of all layers.
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
    relative: RelativePositions | None = None
    max_positions: int | None = field(default=None)


@dataclass(frozen=True, kw_only=True)
class Encoder:
    """An encoder: blocks whose positions all see each other, and the form of its source.

    A source is a sequence of tokens; or, of an encoder with ``bins``, a spectrogram float32
    [bins, frames], two frames of which two convolutions (Whisper, Radford et al., 2022) make a
    position.
    """

    blocks: Architecture
    bins: int = 0
    frames: int = 0


@dataclass(frozen=True, kw_only=True)
class EncoderDecoderArchitecture:
    """A decoder with cross-attention to the output of an encoder.

    The weights of the encoder have names after ``encoder.``; generation begins with
    ``start_token``.
    """

    encoder: Encoder
    decoder: Architecture
    start_token: int


# Names of the weights of a model, and of those of layer i under "layers.{i}.". Names are followed
# by ".weight" or ".bias"; matrices are (outputs, inputs). Which of them exist says what a layer
# does: a gate makes an MLP gated, a post norm normalises the output of a sub-layer.
# "relative" is (buckets, heads); the convolutions of an encoder are (outputs, inputs, 3).
MODEL_WEIGHTS = ("embedding", "position_embedding", "embedding_norm", "final_norm", "output",
                 "relative", "conv1", "conv2")
LAYER_WEIGHTS = (
    "attention_norm", "q", "k", "v", "q_norm", "k_norm", "attention_output", "attention_post_norm",
    "mlp_norm", "gate", "up", "down", "mlp_post_norm", "router", "experts_gate", "experts_up",
    "experts_down", "cross_norm", "cross_q", "cross_k", "cross_v", "cross_output",
)


class BlockWeight:
    """A matrix quantised in blocks, as stored: uint8 [rows, bytes], and the name of the format.

    It has one constant in a program, also where two layers use it.
    """

    def __init__(self, data: np.ndarray, format: str) -> None:
        self.data = data
        self.format = format

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the elements."""
        form = block_format(self.format)
        *rows, size = self.data.shape
        return (*rows, size // form.nbytes * form.elements)

    @property
    def nbytes(self) -> int:
        return self.data.nbytes

    @cached_property
    def constant(self) -> Constant:
        return Constant(self.data)

    def __getitem__(self, rows: slice) -> BlockWeight:
        return BlockWeight(self.data[rows], self.format)


class Weights:
    """Float arrays by name (``MODEL_WEIGHTS``, ``LAYER_WEIGHTS``); matrices may be in blocks."""

    def __init__(self, arrays: Mapping[str, np.ndarray | BlockWeight]) -> None:
        self._arrays = dict(arrays)

    def blocks(self, name: str) -> BlockWeight | None:
        """A matrix that is quantised in blocks; ``None`` for any other weight."""
        found = self._arrays.get(name)
        return found if isinstance(found, BlockWeight) else None

    def __getitem__(self, name: str) -> np.ndarray:
        found = self._arrays.get(name)
        if isinstance(found, BlockWeight):
            raise UnsupportedModelError(f"the weight {name!r} is quantised in blocks",
                                        expected="floats", got=found.format)
        if found is None:
            raise UnsupportedModelError(f"the model lacks the weight {name!r}",
                                        expected=", ".join(sorted(self._arrays)))
        return found

    def get(self, name: str) -> np.ndarray | None:
        return self[name] if name in self._arrays else None

    def __contains__(self, name: str) -> bool:
        return name in self._arrays

    def shape_of(self, name: str) -> tuple[int, ...]:
        """The shape of the elements of a weight."""
        found = self.blocks(name)
        return self[name].shape if found is None else found.shape

    def formats(self) -> dict[str, int]:
        """The formats and dtypes of the matrices, with the number of matrices of each; those
        that two names share count once.
        """
        found: dict[str, int] = {}
        for array in {id(array): array for array in self._arrays.values()}.values():
            if len(array.shape) > 1:
                kind = array.format if isinstance(array, BlockWeight) else array.dtype.name
                found[kind] = found.get(kind, 0) + 1
        return found

    def changed(self, values: Mapping[str, np.ndarray]) -> Weights:
        """These weights with other arrays for some names."""
        return Weights({**self._arrays, **values})

    def names(self) -> tuple[str, ...]:
        return tuple(self._arrays)

    def without_output(self) -> Weights:
        """All weights but the matrix of the logits: a decoder of these gives states."""
        return Weights({name: array for name, array in self._arrays.items()
                        if not name.startswith("output.")})

    @property
    def dtype(self) -> str:
        """The dtype of the embedding, which is that of most weights; float32 beside blocks."""
        if any(isinstance(array, BlockWeight) for array in self._arrays.values()):
            return "float32"
        return self["embedding.weight"].dtype.name

    @property
    def nbytes(self) -> int:
        """Bytes of all weights; arrays that two names share count once."""
        return sum({id(a): a.nbytes for a in self._arrays.values()}.values())
