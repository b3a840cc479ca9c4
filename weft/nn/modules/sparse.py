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


class _Table(Module):
    """Rows ``weight`` (num_embeddings, embedding_dim) and what the lookups of them share."""

    weight: Parameter

    def _build(
        self, num_embeddings: int, embedding_dim: int, padding_idx: int | None,
        weight: Tensor | None, freeze: bool, device: Any, dtype: Any,
    ) -> None:
        shape = (num_embeddings, embedding_dim)
        self.num_embeddings, self.embedding_dim = shape
        self.padding_idx = _row(padding_idx, num_embeddings)
        if weight is None:
            self.weight = new_parameter(shape, dtype, device)
            self.weight.requires_grad = not freeze
            self.reset_parameters()
        elif tuple(weight.shape) != shape:
            raise ModuleError(f"{type(self).__name__}: wrong shape of the rows", expected=shape,
                              got=tuple(weight.shape))
        else:
            self.weight = Parameter(weight, requires_grad=not freeze)

    def reset_parameters(self) -> None:
        """Standard normal numbers; zeros in the row ``padding_idx``."""
        init.normal_(self.weight)
        _clear_row(self.weight, self.padding_idx)

    @classmethod
    def _from_rows(cls, embeddings: Tensor, freeze: bool, *options: Any, **named: Any) -> Any:
        if embeddings.ndim != 2:
            raise ModuleError(f"{cls.__name__}.from_pretrained takes a matrix",
                              got=f"shape {tuple(embeddings.shape)}")
        table: Any = cls
        made = table(*embeddings.shape, *options, **named, _weight=embeddings.detach())
        made.weight.requires_grad = not freeze
        return made

    def extra_repr(self) -> str:
        text = f"{self.num_embeddings}, {self.embedding_dim}"
        for name, default in (("padding_idx", None), ("max_norm", None), ("norm_type", 2.0),
                              ("scale_grad_by_freq", False), ("sparse", False)):
            if getattr(self, name) != default:
                text += f", {name}={getattr(self, name)}"
        return text


class Embedding(_Table):
    """Rows of a table ``weight`` (num_embeddings, embedding_dim) at integer indices.

    Gradients are dense, also with ``sparse``.
    """

    def __init__(
        self, num_embeddings: int, embedding_dim: int, padding_idx: int | None = None,
        max_norm: float | None = None, norm_type: float = 2.0, scale_grad_by_freq: bool = False,
        sparse: bool = False, _weight: Tensor | None = None, _freeze: bool = False,
        device: Any = None, dtype: Any = None,
    ) -> None:
        super().__init__()
        self.max_norm, self.norm_type = max_norm, norm_type
        self.scale_grad_by_freq, self.sparse = scale_grad_by_freq, sparse
        self._build(num_embeddings, embedding_dim, padding_idx, _weight, _freeze, device, dtype)

    @classmethod
    def from_pretrained(
        cls, embeddings: Tensor, freeze: bool = True, padding_idx: int | None = None,
        max_norm: float | None = None, norm_type: float = 2.0, scale_grad_by_freq: bool = False,
        sparse: bool = False,
    ) -> Embedding:
        """A table with the rows ``embeddings``, which training changes unless ``freeze``."""
        return cls._from_rows(embeddings, freeze, padding_idx, max_norm, norm_type,
                              scale_grad_by_freq, sparse)

    def forward(self, input: Tensor) -> Tensor:
        return F.embedding(input, self.weight, self.padding_idx, self.max_norm, self.norm_type,
                           self.scale_grad_by_freq, self.sparse)


class EmbeddingBag(_Table):
    """Sums, means or maxima of rows of a table over bags of indices."""

    def __init__(
        self, num_embeddings: int, embedding_dim: int, max_norm: float | None = None,
        norm_type: float = 2.0, scale_grad_by_freq: bool = False, mode: str = "mean",
        sparse: bool = False, _weight: Tensor | None = None, include_last_offset: bool = False,
        padding_idx: int | None = None, device: Any = None, dtype: Any = None,
    ) -> None:
        super().__init__()
        self.max_norm, self.norm_type = max_norm, norm_type
        self.scale_grad_by_freq, self.mode, self.sparse = scale_grad_by_freq, mode, sparse
        self.include_last_offset = include_last_offset
        self._build(num_embeddings, embedding_dim, padding_idx, _weight, False, device, dtype)

    @classmethod
    def from_pretrained(
        cls, embeddings: Tensor, freeze: bool = True, max_norm: float | None = None,
        norm_type: float = 2.0, scale_grad_by_freq: bool = False, mode: str = "mean",
        sparse: bool = False, include_last_offset: bool = False, padding_idx: int | None = None,
    ) -> EmbeddingBag:
        """A table with the rows ``embeddings``, which training changes unless ``freeze``."""
        return cls._from_rows(embeddings, freeze, max_norm, norm_type, scale_grad_by_freq, mode,
                              sparse, include_last_offset=include_last_offset,
                              padding_idx=padding_idx)

    def forward(
        self, input: Tensor, offsets: Tensor | None = None,
        per_sample_weights: Tensor | None = None,
    ) -> Tensor:
        return F.embedding_bag(
            input, self.weight, offsets, self.max_norm, self.norm_type, self.scale_grad_by_freq,
            self.mode, self.sparse, per_sample_weights, self.include_last_offset,
            self.padding_idx)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, mode={self.mode!r}"


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
