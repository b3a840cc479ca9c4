"""Methods of tensors about their memory: views, strides, and what they share."""

from __future__ import annotations

from typing import Any

from weft.eager.axes import axis_of
from weft.eager.cell import memory_of, node_of
from weft.eager.functions import indexing as i
from weft.eager.functions import shape as s
from weft.eager.record import record, wrap


class Views:
    """Views of tensors, and where the elements of a tensor are in the memory of its base.

    The result of an operator is in row-major order.
    """

    __slots__ = ()

    view, unfold = s.view, i.unfold

    def view_as(self, other: Any) -> Any:
        """A view in the shape of ``other``."""
        return s.view(self, other.shape)

    def reshape_as(self, other: Any) -> Any:
        """In the shape of ``other``."""
        return s.reshape(self, other.shape)

    @property
    def T(self) -> Any:
        """The tensor with its axes in reverse order."""
        return s.permute(self, tuple(range(len(s.layout_of(self).shape)))[::-1])

    @property
    def mT(self) -> Any:
        """The transposes of the matrices of the last two axes."""
        return s.transpose(self, -2, -1)

    @property
    def mH(self) -> Any:
        """``mT`` of real numbers."""
        return self.mT

    @property
    def H(self) -> Any:
        """The transpose of a matrix of real numbers."""
        return s.t(self)

    def stride(self, dim: int | None = None) -> Any:
        """How far apart in memory neighbours along each axis are, in elements; or along one."""
        strides = s.layout_of(self).strides
        return strides if dim is None else strides[axis_of(dim, len(strides))]

    @property
    def strides(self) -> tuple[int, ...]:
        """How far apart in memory neighbours along each axis are, in elements."""
        return s.layout_of(self).strides

    def storage_offset(self) -> int:
        """Where in the memory of its base the first element is."""
        return s.layout_of(self).offset

    def is_contiguous(self) -> bool:
        """Whether the elements are in row-major order in memory, without gaps."""
        return s.layout_of(self).is_contiguous

    def contiguous(self) -> Any:
        """The tensor itself if it is in row-major order, else a copy that is."""
        if self.is_contiguous():
            return self
        return wrap(record("copy", (node_of(self),), {}))  # type: ignore[arg-type]

    def _is_view(self) -> bool:
        return self._view is not None  # type: ignore[attr-defined]

    @property
    def _base(self) -> Any:
        """The tensor that this one is a view of."""
        view = self._view  # type: ignore[attr-defined]
        return None if view is None else view.base

    @property
    def _version(self) -> int:
        """How often the memory of this tensor was changed in place."""
        return memory_of(self).version  # type: ignore[arg-type]

    def untyped_storage(self) -> Any:
        """What all tensors that share this one's memory have in common, compared by identity."""
        return memory_of(self)  # type: ignore[arg-type]
