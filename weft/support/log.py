"""Loggers, and the verbosity levels of ``WEFT_DEBUG``.

weft logs to the standard loggers ``weft.*`` and never configures the root logger. Messages up to
the level of ``WEFT_DEBUG`` (or ``config(debug=...)``) are also written to standard error, which
keeps them apart from the output of the program.
"""

from __future__ import annotations

import enum
import logging
import sys

from weft.support.config import config


class Level(enum.IntEnum):
    """The levels of ``WEFT_DEBUG``; each includes those below."""

    CACHE = 1
    KERNELS = 2
    CHOICES = 3
    LLVM = 4
    PHASES = 5
    PASSES = 6
    ASSEMBLY = 7


def logger(name: str) -> logging.Logger:
    """The logger of a component: ``logger("compiler")`` is ``weft.compiler``."""
    return logging.getLogger(f"weft.{name}")


def enabled(level: Level) -> bool:
    """Whether messages of ``level`` are shown; check before building a long text."""
    return config.debug >= level


def debug(level: Level, part: str, message: str) -> None:
    """Log ``message``, and write it to standard error if ``level`` is enabled."""
    logger(part).debug("%s", message)
    if enabled(level):
        sys.stderr.write(f"[weft.{part}] {message}\n")
        sys.stderr.flush()
