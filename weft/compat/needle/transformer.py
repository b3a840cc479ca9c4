"""Needle's attention and transformer layers, over (N, length, features)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from weft.compat.needle import init
from weft.compat.needle.autograd import OPERATORS
from weft.compat.needle.nn import Dropout, LayerNorm1d, Linear, Module, ReLU, Sequential
from weft.compat.needle.ops import Tensor
from weft.compat.needle.recurrent import Embedding
from weft.support.errors import InvalidInputError


class MultiHeadAttention(Module):
    """Attention of heads that are given, (N, heads, length, size) each; gives the result and the
    weights of the values, after dropout.
    """

    def __init__(self, *, dropout: float = 0.0, causal: bool = False, device: Any = None,
                 dtype: str = "float32") -> None:
        super().__init__()
        self.causal, self.device, self.dtype = causal, device, dtype
        self.dropout = Dropout(dropout)

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        scores = q @ k.transpose() / math.sqrt(q.shape[-1])
        if self.causal:
            rows, columns = scores.shape[-2:]
            later = np.triu(np.ones((rows, columns)), columns - rows + 1)
            mask = Tensor(later * np.finfo(np.float32).min, device=q.device, requires_grad=False)
            scores = scores + mask.reshape((1, 1, rows, columns)).broadcast_to(scores.shape)
        weights = self.dropout(OPERATORS.exp(OPERATORS.logsoftmax(scores)))
        return weights @ v, weights


class AttentionLayer(Module):
    """Layer norms, projections to ``num_head`` heads, attention, and a projection back."""

    def __init__(
        self, q_features: int, num_head: int, dim_head: int, *, k_features: int | None = None,
        v_features: int | None = None, out_features: int | None = None, dropout: float = 0.0,
        causal: bool = True, device: Any = None, dtype: str = "float32",
    ) -> None:
        super().__init__()
        made: dict[str, Any] = {"device": device, "dtype": dtype}
        widths = (q_features, k_features or q_features, v_features or q_features)
        inner = num_head * dim_head
        self.num_head, self.dim_head = num_head, dim_head
        self.prenorm_q, self.prenorm_k, self.prenorm_v = (LayerNorm1d(w, **made) for w in widths)
        self.q_projection, self.k_projection, self.v_projection = (
            Linear(w, inner, bias=False, **made) for w in widths)
        self.attn = MultiHeadAttention(dropout=dropout, causal=causal, **made)
        self.out_projection = Linear(inner, out_features or q_features, bias=False, **made)

    def forward(self, q: Tensor, k: Tensor | None = None, v: Tensor | None = None) -> Tensor:
        """(N, length, features) to (N, length, out_features); keys and values are ``q`` if not
        given.
        """
        k, v = (q if x is None else x for x in (k, v))
        mixed, _ = self.attn(
            self._heads(Sequential(self.prenorm_q, self.q_projection), q),
            self._heads(Sequential(self.prenorm_k, self.k_projection), k),
            self._heads(Sequential(self.prenorm_v, self.v_projection), v))
        inner = self.num_head * self.dim_head
        joined = mixed.transpose((1, 2)).reshape((q.shape[0], q.shape[1], inner))
        return of_rows(self.out_projection, joined)

    def _heads(self, project: Module, x: Tensor) -> Tensor:
        sizes = (x.shape[0], x.shape[1], self.num_head, self.dim_head)
        return of_rows(project, x).reshape(sizes).transpose((1, 2))


def of_rows(module: Module, x: Tensor) -> Tensor:
    """A module of matrices applied to all vectors of (N, length, features)."""
    n, length, width = x.shape
    y = module(x.reshape((n * length, width)))
    return y.reshape((n, length, y.shape[1]))


class TransformerLayer(Module):
    """Attention and a feed-forward network, each with a residual; norms come first."""

    def __init__(
        self, q_features: int, num_head: int, dim_head: int, hidden_size: int, *,
        dropout: float = 0.0, causal: bool = True, device: Any = None, dtype: str = "float32",
    ) -> None:
        super().__init__()
        made: dict[str, Any] = {"device": device, "dtype": dtype}
        self.attention = AttentionLayer(q_features, num_head, dim_head, dropout=dropout,
                                        causal=causal, **made)
        self.dropout = Dropout(dropout)
        self.feed_forward = Sequential(
            LayerNorm1d(q_features, **made), Linear(q_features, hidden_size, **made), ReLU(),
            Dropout(dropout), Linear(hidden_size, q_features, **made), Dropout(dropout))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.dropout(self.attention(x))
        return x + of_rows(self.feed_forward, x)


class Transformer(Module):
    """A stack of ``TransformerLayer`` over learned positions.

    Takes (N, length, size) with ``batch_first``, else (length, N, size); returns the result and a
    state of zeros, so that it may stand for an RNN in a language model.
    """

    def __init__(
        self, embedding_size: int, hidden_size: int, num_layers: int, *, num_head: int = 8,
        dim_head: int = 32, dropout: float = 0.0, causal: bool = True, device: Any = None,
        dtype: str = "float32", batch_first: bool = False, sequence_len: int = 2048,
    ) -> None:
        super().__init__()
        self.batch_first, self.sequence_len = batch_first, sequence_len
        made: dict[str, Any] = {"device": device, "dtype": dtype}
        self.positions = Embedding(sequence_len, embedding_size, **made)
        self.layers = Sequential(*(
            TransformerLayer(embedding_size, num_head, dim_head, hidden_size, dropout=dropout,
                             causal=causal, **made) for _ in range(num_layers)))

    def forward(self, x: Tensor, h: Any = None) -> tuple[Tensor, Tensor]:
        del h  # the state of a model that has none
        x = x if self.batch_first else x.transpose((0, 1))
        _, length, _ = x.shape
        if length > self.sequence_len:
            raise InvalidInputError("the sequence is too long", got=length,
                                    expected=f"at most {self.sequence_len}")
        at = Tensor(np.arange(length)[:, None], device=x.device, requires_grad=False)
        places = self.positions(at).reshape((1, length, x.shape[2])).broadcast_to(x.shape)
        x = self.layers(x + places)
        x = x if self.batch_first else x.transpose((0, 1))
        return x, init.zeros_like(x, device=x.device)
