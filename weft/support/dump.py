"""Writes the dump files that ``WEFT_DUMP_DIR`` enables."""

from __future__ import annotations

from pathlib import Path

from weft.support.errors import OptionError


def write_dump(folder: Path, name: str, text: str) -> None:
    """Write ``folder/name``, creating the folder; ``OptionError`` if it cannot be written."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    except OSError as error:
        raise OptionError("cannot write to the dump folder", where=folder / name,
                          got=error.strerror or error,
                          help="set WEFT_DUMP_DIR to a writable folder") from None
