"""The tile of products of bytes by ``dp4a``."""

from __future__ import annotations

from typing import ClassVar

from weft.support.dataclass import dataclass

THREADS = 16  # along rows and along columns


@dataclass(frozen=True, slots=True)
class DotTile:
    """Each of 16 x 16 threads sums ``per_thread`` x ``per_thread`` elements; ``bk`` of K a time."""

    threads: ClassVar[int] = THREADS**2

    per_thread: int = 4
    bk: int = 64

    @property
    def size(self) -> int:
        """Rows, and columns, of a block."""
        return THREADS * self.per_thread

    def __str__(self) -> str:
        return f"{self.size}x{self.size}x{self.bk} in {THREADS**2} threads"
