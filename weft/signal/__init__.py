"""Signals: ``weft.signal.windows`` has the window functions of torch."""

from weft.signal import windows

__all__ = ["windows"]
