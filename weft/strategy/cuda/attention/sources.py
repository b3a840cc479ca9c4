"""The operands of attention for the loops on GPUs: whole tensors, or caches of keys and values.

Which keys a query sees and how a score is masked is the same on all targets
(``weft.strategy.cpu.attention``); tensor cores read the operands as they are stored.
"""

from __future__ import annotations

from typing import Protocol

from weft.strategy.cpu.attention.cached_keys import CachedKeys
from weft.strategy.cpu.attention.dense_keys import DenseKeys
from weft.strategy.cpu.attention.streamed_loops import At, KeySource, Row
from weft.support.dataclass import dataclass
from weft.tir.expr import PrimExpr


class StoredKeys(KeySource, Protocol):
    """``KeySource`` that also gives queries as they are stored."""

    @property
    def scale(self) -> float:
        """The factor of the scores."""
        ...

    def stored_query(self, at: At, row: Row, d: PrimExpr) -> PrimExpr:
        """The load of an element of a query."""
        ...


@dataclass(frozen=True, slots=True)
class DenseOperands(DenseKeys):
    """Whole tensors of queries, keys and values."""

    @property
    def scale(self) -> float:
        return self.attrs.scale

    def stored_query(self, at: At, row: Row, d: PrimExpr) -> PrimExpr:
        return self.q.load(*self._lead(at, row), row.query, d)


@dataclass(frozen=True, slots=True)
class CachedOperands(CachedKeys):
    """Queries, and caches of keys and values."""

    @property
    def scale(self) -> float:
        return self.how.scale

    def stored_query(self, at: At, row: Row, d: PrimExpr) -> PrimExpr:
        return self.q.load(*self._lead(at, row), row.query, d)
