"""Where tuning records are kept, and what changes with them; imports nothing of the compiler."""

from __future__ import annotations

import os
from pathlib import Path

from weft.support.cache import default_directory
from weft.support.config import config

NO_RECORDS = Path(os.devnull)  # as ``config.records``: not even those in the cache folder


def default_records() -> Path:
    """The file of records in the cache folder."""
    return default_directory() / "tuning.sqlite"


def records_file() -> Path | None:
    """The file that ``config.records`` names, else the one in the cache folder if it exists."""
    if config.records is not None:
        return config.records
    default = default_records()
    return default if default.exists() else None


def records_state(path: Path) -> tuple[int, ...]:
    """Times and sizes of a file of records, and of the log of what is not yet in it.

    Raises ``OSError`` for a file that does not exist.
    """
    status = path.stat()
    try:
        log = Path(f"{path}-wal").stat()
    except OSError:
        return status.st_mtime_ns, status.st_size
    return status.st_mtime_ns, status.st_size, log.st_mtime_ns, log.st_size
