"""The modules of Needle (the framework of CMU's course 10-714) that torch does not have.

Beside those that ``weft.nn`` has under torch's names: ``Residual`` and ``SoftmaxLoss``, and the
attention and transformer layers of its last homework.
"""

from __future__ import annotations

from typing import Any

from weft.eager.emitter import call
from weft.eager.functions.creation import as_tensor
from weft.eager.tensor import Tensor
from weft.nn import functional as F
from weft.nn.modules.activation import ReLU
from weft.nn.modules.containers import Sequential
from weft.nn.modules.conv import Conv2d
from weft.nn.modules.dropout import Dropout
from weft.nn.modules.linear import Linear
from weft.nn.modules.module import Module, ModuleError
from weft.nn.modules.normalization import LayerNorm
from weft.nn.modules.sparse import Embedding


class Residual(Module):
    """x + fn(x)"""

    def __init__(self, fn: Module) -> None:
        super().__init__()
        self.fn = fn

    def forward(self, x: Tensor) -> Tensor:
        return x + self.fn(x)


class SoftmaxLoss(Module):
    """The mean cross entropy of logits (N, classes) and classes (N)."""

    def forward(self, logits: Tensor, y: Tensor) -> Tensor:
        y = as_tensor(y)
        return F.cross_entropy(logits, y.to("int64") if y.dtype.is_floating_point else y)


class LayerNorm1d(LayerNorm):
    """Layer norm of (N, dim)."""

    def __init__(
        self, dim: int, eps: float = 1e-5, device: Any = None, dtype: Any = "float32"
    ) -> None:
        super().__init__(dim, eps, device=device, dtype=dtype)
        self.dim = dim


class Conv(Conv2d):
    """A convolution of odd kernels that keeps the size of (N, C, H, W) where the stride is 1."""

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: int, stride: int = 1,
        bias: bool = True, device: Any = None, dtype: Any = "float32",
    ) -> None:
        super().__init__(in_channels, out_channels, kernel_size, stride, (kernel_size - 1) // 2,
                         bias=bias, device=device, dtype=dtype)


class MultiHeadAttention(Module):
    """Attention of heads that are given: (N, heads, length, size) each."""

    def __init__(self, *, dropout: float = 0.0, causal: bool = False) -> None:
        super().__init__()
        self.causal = causal
        self.dropout = Dropout(dropout)

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        rate = self.dropout.p if self.training else 0.0
        return F.scaled_dot_product_attention(q, k, v, None, rate, self.causal)


class AttentionLayer(Module):
    """Layer norms, projections to ``num_head`` heads, attention, and a projection back."""

    def __init__(
        self, q_features: int, num_head: int, dim_head: int, *, k_features: int | None = None,
        v_features: int | None = None, out_features: int | None = None, dropout: float = 0.0,
        causal: bool = True, device: Any = None, dtype: Any = None,
    ) -> None:
        super().__init__()
        made = {"device": device, "dtype": dtype}
        widths = {"q": q_features, "k": k_features or q_features, "v": v_features or q_features}
        inner = num_head * dim_head
        self.num_head, self.dim_head = num_head, dim_head
        for name, width in widths.items():
            self.add_module(f"prenorm_{name}", LayerNorm(width, **made))
            self.add_module(f"{name}_projection", Linear(width, inner, bias=False, **made))
        self.attn = MultiHeadAttention(dropout=dropout, causal=causal)
        self.out_projection = Linear(inner, out_features or q_features, bias=False, **made)

    def forward(self, q: Tensor, k: Tensor | None = None, v: Tensor | None = None) -> Tensor:
        """(N, length, features) to (N, length, out_features); self-attention without k and v."""
        if (k is None) != (v is None):
            raise ModuleError("AttentionLayer takes both keys and values, or neither")
        heads = [self._heads(self.q_projection(self.prenorm_q(q))),
                 self._heads(self.k_projection(self.prenorm_k(q if k is None else k))),
                 self._heads(self.v_projection(self.prenorm_v(q if v is None else v)))]
        joined = call("transpose", self.attn(*heads), axes=(0, 2, 1, 3))
        inner = self.num_head * self.dim_head
        return self.out_projection(joined.reshape((q.shape[0], q.shape[1], inner)))

    def _heads(self, x: Tensor) -> Tensor:
        split = x.reshape((x.shape[0], x.shape[1], self.num_head, self.dim_head))
        return call("transpose", split, axes=(0, 2, 1, 3))


class TransformerLayer(Module):
    """Attention and a feed-forward network, each with a residual; norms come first."""

    def __init__(
        self, q_features: int, num_head: int, dim_head: int, hidden_size: int, *,
        dropout: float = 0.0, causal: bool = True, device: Any = None, dtype: Any = None,
    ) -> None:
        super().__init__()
        made = {"device": device, "dtype": dtype}
        self.attention = AttentionLayer(q_features, num_head, dim_head, dropout=dropout,
                                        causal=causal, **made)
        self.dropout = Dropout(dropout)
        self.feed_forward = Sequential(
            LayerNorm(q_features, **made), Linear(q_features, hidden_size, **made),
            ReLU(), Dropout(dropout), Linear(hidden_size, q_features, **made),
            Dropout(dropout))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.dropout(self.attention(x))
        return x + self.feed_forward(x)


class NeedleTransformer(Module):
    """A stack of ``TransformerLayer`` over learned positions (needle's ``Transformer``).

    Takes (N, length, size) with ``batch_first``, else (length, N, size); returns the result and a
    state that is always ``None``, so that it may replace an RNN in a language model.
    """

    def __init__(
        self, embedding_size: int, hidden_size: int, num_layers: int, *, num_head: int = 8,
        dim_head: int = 32, dropout: float = 0.0, causal: bool = True, batch_first: bool = False,
        sequence_len: int = 2048, device: Any = None, dtype: Any = None,
    ) -> None:
        super().__init__()
        self.batch_first, self.sequence_len = batch_first, sequence_len
        made = {"device": device, "dtype": dtype}
        self.positions = Embedding(sequence_len, embedding_size, **made)
        self.layers = Sequential(*(
            TransformerLayer(embedding_size, num_head, dim_head, hidden_size, dropout=dropout,
                             causal=causal, **made) for _ in range(num_layers)))

    def forward(self, x: Tensor, h: Any = None) -> tuple[Tensor, None]:
        x = x if self.batch_first else call("transpose", x, axes=(1, 0, 2))
        length = x.shape[1]
        if length > self.sequence_len:
            raise ModuleError("the sequence is too long", expected=f"at most {self.sequence_len}",
                              got=length)
        x = self.layers(x + self.positions(call("arange", start=0, stop=length, dtype="int64")))
        return (x if self.batch_first else call("transpose", x, axes=(1, 0, 2))), None
