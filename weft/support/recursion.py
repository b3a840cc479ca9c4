"""Room for walks over deep expressions.

Frames of Python functions that call one another live on the heap since CPython 3.11: a walk that
passes through no C function (no generator, no ``map``) may nest as deep as memory allows.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

_LIMIT = 100_000


@contextmanager
def deep_recursion() -> Iterator[None]:
    """Raise Python's limit meanwhile: fused chains nest deeper than its default."""
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(max(limit, _LIMIT))
    try:
        yield
    finally:
        sys.setrecursionlimit(limit)
