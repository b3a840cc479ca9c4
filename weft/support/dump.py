"""Text files for whoever looks inside: what ``WEFT_DUMP_DIR`` asks for."""

from __future__ import annotations

from pathlib import Path

from weft.support.errors import OptionError


def write_dump(folder: Path, name: str, text: str) -> None:
    """Write ``folder/name``, making the folder; ``OptionError`` where the folder refuses."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    except OSError as error:
        raise OptionError("the dump folder cannot be written", where=folder / name,
                          got=error.strerror or error,
                          help="set WEFT_DUMP_DIR to a folder that can") from None
