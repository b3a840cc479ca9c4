"""``Limits``: how much a server takes on."""

from __future__ import annotations

import math

from weft.support.dataclass import dataclass
from weft.support.errors import OptionError


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Bounds of a server; beyond them it refuses (413, 429, 503, 504) instead of growing.

    Sizes are in bytes, times in seconds. ``max_held`` bounds the bodies of all requests together,
    ``timeout`` a whole request with its answer. ``read_timeout`` is for the arrival of its body
    and for a connection without a request. Beyond ``max_errors`` requests in error a
    second, addresses that cause them wait for each connection. A server that is told to stop
    answers what it has accepted for up to ``drain``. ``max_queue`` requests wait per model. A batch
    has up to ``max_batch`` rows; the first request of a batch waits up to ``max_delay`` for others.
    """

    max_body: int = 64 << 20
    max_held: int = 1 << 30
    max_concurrency: int = 256
    max_connections: int = 1024
    max_errors: int = 100
    max_queue: int = 128
    max_batch: int = 32
    max_delay: float = 0.002
    read_timeout: float = 30.0
    timeout: float = 300.0
    drain: float = 30.0

    def __post_init__(self) -> None:
        for name in ("max_body", "max_held", "max_concurrency", "max_connections",
                     "max_errors", "max_queue", "max_batch"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise OptionError(f"invalid limit {name}", expected="an integer >= 1", got=value)
        for name, least in (("max_delay", 0.0), ("read_timeout", 1e-3), ("timeout", 1e-3),
                            ("drain", 0.0)):
            value = getattr(self, name)
            if not isinstance(value, (int, float)) or not least <= value < math.inf:
                raise OptionError(f"invalid limit {name}", expected=f"seconds >= {least:g}",
                                  got=value)
