"""The features of loop programs that a kind of target supports (``weft.tir.check_limits``)."""

from __future__ import annotations

from weft.support.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """What a back end accepts; ``None`` means that it is not limited.

    ``thread_axes`` are the tags that ``te.bind`` may give to loops (``threadIdx.x``), ``scopes``
    the memory scopes of buffers, ``max_alignment`` is in bytes, and ``max_lanes`` is the largest
    extent of a vectorized loop.
    """

    thread_axes: tuple[str, ...] = ()
    scopes: tuple[str, ...] = ("global", "local", "constant")
    max_alignment: int | None = None
    max_lanes: int | None = None
