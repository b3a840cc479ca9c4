"""Methods of tensors about their memory: views, strides, and what they share."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from weft.eager.axes import axis_of
from weft.eager.cell import become_view, memory_of, node_of
from weft.eager.functions import complex as z
from weft.eager.functions import indexing as i
from weft.eager.functions import shape as s
from weft.eager.layouts import strided
from weft.eager.record import record, wrap
from weft.eager.signature import checked
from weft.eager.storage import row_major
from weft.support.errors import InvalidInputError


def _in_place(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    """The method that makes a tensor the view of its memory that a function gives."""

    def method(self: Any, *args: Any, **named: Any) -> Any:
        become_view(self, function(self, *args, **named), name)
        return self

    method.__name__ = method.__qualname__ = name
    method.__doc__ = f"{function.__doc__}\n\nIn place: returns the tensor."
    return method


class Views:
    """Views of tensors, and where the elements of a tensor are in the memory of its base.

    The result of an operator is in row-major order.
    """

    __slots__ = ()

    view, unfold = s.view, i.unfold
    squeeze_, unsqueeze_ = _in_place(s.squeeze, "squeeze_"), _in_place(s.unsqueeze, "unsqueeze_")
    transpose_, t_ = _in_place(s.transpose, "transpose_"), _in_place(s.t, "t_")
    swapaxes_ = swapdims_ = transpose_
    as_strided_ = _in_place(i.as_strided, "as_strided_")

    @checked
    def view_as(self, other: Any) -> Any:
        """A view in the shape of ``other``."""
        return s.view(self, other.shape)

    @checked
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
        """The conjugate transposes of the matrices of the last two axes."""
        return z.adjoint(self)

    @property
    def H(self) -> Any:
        """The conjugate transpose of a matrix."""
        return z.conj(s.t(self))

    @property
    def real(self) -> Any:
        """The real part, a view; a real tensor itself."""
        return z.real(self)

    @real.setter
    def real(self, value: Any) -> None:
        z.real(self).copy_(value)

    @property
    def imag(self) -> Any:
        """The imaginary part, a view."""
        return z.imag(self)

    @imag.setter
    def imag(self, value: Any) -> None:
        z.imag(self).copy_(value)

    @checked
    def resize_(self, *sizes: Any, memory_format: Any = None) -> Any:  # noqa: ARG002 - row-major
        """The first elements of the memory in another shape, in place; more of them are zeros."""
        if self.requires_grad:  # type: ignore[attr-defined]
            raise InvalidInputError("resize_ of a tensor that requires a gradient",
                                    help="use reshape, or x.detach()")
        shape, whole = s.sizes_of(sizes), self
        while whole._view is not None:  # type: ignore[attr-defined]
            whole = whole._view.root  # type: ignore[attr-defined]
        offset, count = self.storage_offset(), math.prod(shape)
        more = offset + count - whole.numel()  # type: ignore[attr-defined]
        if more <= 0:
            become_view(self, i.as_strided(self, shape, row_major(shape).strides), "resize_")  # type: ignore[arg-type]
        else:
            kept = whole.reshape(-1)[offset:]  # type: ignore[attr-defined]
            self.data = s.cat([kept, kept.new_zeros(more)]).reshape(shape)  # type: ignore[misc]
        return self

    @checked
    def resize_as_(self, other: Any, memory_format: Any = None) -> Any:
        """``resize_`` to the shape of ``other``."""
        return self.resize_(other.shape, memory_format=memory_format)

    @checked
    def fill_diagonal_(self, fill_value: Any, wrap: bool = False) -> Any:
        """A number on the main diagonal, in place; ``wrap`` goes on below in tall matrices."""
        mask = np.zeros(s.layout_of(self).shape, np.bool_)
        if mask.ndim < 2 or (mask.ndim > 2 and len({*mask.shape}) > 1):
            raise InvalidInputError("fill_diagonal_ takes matrices, and tensors of equal sizes",
                                    got=f"shape {mask.shape}")
        np.fill_diagonal(mask, True, wrap)
        return self.masked_fill_(mask, fill_value)  # type: ignore[attr-defined]

    @checked
    def stride(self, dim: int | None = None) -> Any:
        """How far apart in memory neighbours along each axis are, in elements; or along one."""
        strides = s.layout_of(self).strides
        return strides if dim is None else strides[axis_of(dim, len(strides))]

    @property
    def strides(self) -> tuple[int, ...]:
        """How far apart in memory neighbours along each axis are, in elements."""
        return s.layout_of(self).strides

    @property
    def layout(self) -> str:
        """``weft.strided``: all tensors are dense."""
        return strided

    is_sparse = is_sparse_csr = is_quantized = is_meta = is_nested = is_mkldnn = False

    @property
    def itemsize(self) -> int:
        """Bytes per element."""
        return self.dtype.itemsize  # type: ignore[attr-defined, no-any-return]

    def ndimension(self) -> int:
        """The number of axes."""
        return len(s.layout_of(self).shape)

    def storage_offset(self) -> int:
        """Where in the memory of its base the first element is."""
        return s.layout_of(self).offset

    def is_contiguous(self) -> bool:
        """Whether the elements are in row-major order in memory, without gaps."""
        return s.layout_of(self).is_contiguous

    @checked
    def pin_memory(self, device: Any = None) -> Any:  # noqa: ARG002 - torch's argument
        """The tensor itself: copies to a device are in order with its work, whatever memory they
        are from.
        """
        return self

    def is_pinned(self) -> bool:
        """False: no tensor is in page-locked memory."""
        return False

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
