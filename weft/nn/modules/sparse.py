"""Embedding and EmbeddingBag."""

from __future__ import annotations

from typing import Any

from weft.eager.grad_mode import no_grad
from weft.eager.tensor import Tensor
from weft.nn import functional as F
from weft.nn import init
from weft.nn.modules.linear import new_parameter
from weft.nn.modules.module import Module, ModuleError
from weft.nn.parameter import Parameter


class Embedding(Module):
    """Rows of a table ``weight`` (num_embeddings, embedding_dim) at integer indices."""

    def __init__(
        self, num_embeddings: int, embedding_dim: int, padding_idx: int | None = None,
        max_norm: float | None = None, norm_type: float = 2.0, scale_grad_by_freq: bool = False,
        sparse: bool = False, device: Any = None, dtype: Any = None,
    ) -> None:
        super().__init__()
        if scale_grad_by_freq or sparse:
            raise ModuleError("Embedding: unsupported option",
                              expected="scale_grad_by_freq=False and sparse=False")
        self.num_embeddings, self.embedding_dim = num_embeddings, embedding_dim
        self.padding_idx = _row(padding_idx, num_embeddings)
        self.max_norm, self.norm_type = max_norm, norm_type
        self.weight = new_parameter((num_embeddings, embedding_dim), dtype, device)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Standard normal numbers; zeros in the row ``padding_idx``."""
        init.normal_(self.weight)
        _clear_row(self.weight, self.padding_idx)

    @classmethod
    def from_pretrained(
        cls, embeddings: Tensor, freeze: bool = True, padding_idx: int | None = None,
        max_norm: float | None = None, norm_type: float = 2.0,
    ) -> Embedding:
        """A table with the rows ``embeddings``, which training changes unless ``freeze``."""
        rows, size = embeddings.shape
        made = cls(rows, size, padding_idx, max_norm, norm_type)
        made.weight = Parameter(embeddings.detach(), requires_grad=not freeze)
        return made

    def forward(self, input: Tensor) -> Tensor:
        return F.embedding(input, self.weight, self.padding_idx, self.max_norm, self.norm_type)

    def extra_repr(self) -> str:
        text = f"{self.num_embeddings}, {self.embedding_dim}"
        return text if self.padding_idx is None else f"{text}, padding_idx={self.padding_idx}"


class EmbeddingBag(Module):
    """Sums, means or maxima of rows of a table over bags of indices."""

    def __init__(
        self, num_embeddings: int, embedding_dim: int, mode: str = "mean", device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        self.num_embeddings, self.embedding_dim, self.mode = num_embeddings, embedding_dim, mode
        self.weight = new_parameter((num_embeddings, embedding_dim), dtype, device)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        init.normal_(self.weight)

    def forward(
        self, input: Tensor, offsets: Tensor | None = None,
        per_sample_weights: Tensor | None = None,
    ) -> Tensor:
        return F.embedding_bag(input, self.weight, offsets, mode=self.mode,
                               per_sample_weights=per_sample_weights)

    def extra_repr(self) -> str:
        return f"{self.num_embeddings}, {self.embedding_dim}, mode={self.mode!r}"


def _row(index: int | None, rows: int) -> int | None:
    if index is None:
        return None
    if not -rows <= index < rows:
        raise ModuleError("padding_idx is out of range", expected=f"{-rows} to {rows - 1}",
                          got=index)
    return index % rows


def _clear_row(weight: Parameter, row: int | None) -> None:
    if row is not None:
        with no_grad():
            weight[row] = 0.0
