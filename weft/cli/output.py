"""Writing what a command made, with a plain message where the place refuses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import click
import numpy as np


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turns an ``OSError`` of the block into ``click.FileError``, which ends with code 1."""
    try:
        yield
    except OSError as error:
        raise click.FileError(str(path), hint=error.strerror or str(error)) from None


def write_text(path: Path, text: str) -> None:
    """Write a text file; ``click.FileError`` where that fails."""
    with writing(path):
        path.write_text(text, encoding="utf-8")


def write_npz(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Write arrays under any names to exactly ``path``; ``click.FileError`` where that fails."""
    import zipfile

    # numpy.savez takes names as keywords, of which "file" is its own, and appends a suffix.
    with writing(path), zipfile.ZipFile(path, "w", allowZip64=True) as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, np.asanyarray(array), allow_pickle=False)
