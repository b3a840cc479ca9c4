"""Buffers: typed memory regions, compared by identity, that loads and stores access."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import field

from weft.ir.dtype import DType
from weft.support.dataclass import dataclass
from weft.tir.expr import BufferLoad, ExprLike, PrimExpr, as_prim, int_value

_uids = itertools.count()


def next_uid() -> int:
    """A fresh buffer number, for ``dataclasses.replace``."""
    return next(_uids)


SCOPES = ("global", "local", "shared", "constant")


@dataclass(frozen=True, slots=True, eq=False)
class Buffer:
    """A row-major array of ``shape``; ``strides``, in elements, only if it is not compact.

    ``scope`` is ``global`` (memory: parameters, workspace, or per-thread scratch), ``local``
    (registers: every index must be constant after unrolling), ``shared`` (memory of a GPU block) or
    ``constant`` (read-only data of the program). ``alignment`` is in bytes.
    """

    name: str
    shape: tuple[PrimExpr, ...]
    dtype: DType
    scope: str = "global"
    strides: tuple[PrimExpr, ...] | None = None
    alignment: int = 64
    uid: int = field(default_factory=_uids.__next__)

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def static_shape(self) -> tuple[int, ...] | None:
        """The shape as integers; ``None`` if a dimension is symbolic."""
        sizes = tuple(int_value(s) for s in self.shape)
        return None if None in sizes else sizes  # type: ignore[return-value]

    @property
    def static_bytes(self) -> int | None:
        """The size in bytes; ``None`` if a dimension is symbolic."""
        shape = self.static_shape
        if shape is None:
            return None
        total = self.dtype.itemsize
        for size in shape:
            total *= size
        return total

    def load(self, *indices: ExprLike) -> BufferLoad:
        """The expression ``self[indices]``."""
        return BufferLoad(self, tuple(as_prim(i) for i in indices))


def buffer(
    name: str, shape: Sequence[ExprLike], dtype: DType | str = "float32", scope: str = "global"
) -> Buffer:
    """A compact buffer; sizes may be integers or expressions."""
    return Buffer(name, tuple(as_prim(s) for s in shape), DType.of(dtype), scope)
