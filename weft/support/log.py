"""Loggers, the verbosity levels of ``WEFT_DEBUG``, and the files of ``WEFT_DUMP_DIR``.

weft logs to the standard loggers ``weft.*`` and never configures the root logger. Messages up to
the level of ``WEFT_DEBUG`` (or ``config(debug=...)``) are also written to standard error, which
keeps them apart from the output of the program.
"""

from __future__ import annotations

import enum
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from weft.support.config import config
from weft.support.errors import OptionError

if TYPE_CHECKING:
    import logging


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
    import logging  # 3 ms, for messages alone

    return logging.getLogger(f"weft.{name}")


def enabled(level: Level) -> bool:
    """Whether messages of ``level`` are shown; check before building a long text."""
    return config.debug >= level


def debug(level: Level, part: str, message: str) -> None:
    """Log ``message``, and write it to standard error if ``level`` is enabled."""
    if "logging" in sys.modules:  # otherwise no handler is waiting for the message
        logger(part).debug("%s", message)
    if enabled(level):
        sys.stderr.write(f"[weft.{part}] {message}\n")
        sys.stderr.flush()


def write_dump(folder: Path, name: str, text: str) -> None:
    """Write ``folder/name``, creating the folder; ``OptionError`` if it cannot be written."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    except OSError as error:
        raise OptionError("cannot write to the dump folder", where=folder / name,
                          got=error.strerror or error,
                          help="set WEFT_DUMP_DIR to a writable folder") from None
