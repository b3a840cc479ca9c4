"""Loggers, and the ladder of ``WEFT_DEBUG``.

weft logs through the standard library under ``weft.*`` and never configures the root logger. Where
``WEFT_DEBUG`` (or ``config(debug=...)``) asks for output, a ladder message is written to standard
error, so that it can never mix with what a program prints.
"""

from __future__ import annotations

import enum
import logging
import sys

from weft.support.config import config


class Level(enum.IntEnum):
    """The rungs of ``WEFT_DEBUG``; a rung shows itself and all below."""

    CACHE = 1
    KERNELS = 2
    CHOICES = 3
    LLVM = 4
    PHASES = 5
    PASSES = 6
    ASSEMBLY = 7


def logger(name: str) -> logging.Logger:
    """The logger of a part of weft: ``logger("compiler")`` is ``weft.compiler``."""
    return logging.getLogger(f"weft.{name}")


def enabled(level: Level) -> bool:
    """Whether the ladder shows ``level``: ask before building a long text."""
    return config.debug >= level


def debug(level: Level, part: str, message: str) -> None:
    """Log ``message``; also write it to standard error where the ladder reaches ``level``."""
    logger(part).debug("%s", message)
    if enabled(level):
        sys.stderr.write(f"[weft.{part}] {message}\n")
        sys.stderr.flush()
