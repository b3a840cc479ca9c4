"""Writing what a command made, with a plain message where the place refuses."""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import click
import numpy as np


def check_writable(path: Path, *, folder: bool = False) -> None:
    """Raise ``click.FileError`` where nothing can be written at ``path``.

    For work that takes long: a mistake in a name should not cost a compilation. ``folder`` is for
    a folder that is made with all above it.
    """
    parent = path if folder else path.parent
    while folder and not parent.exists() and parent != parent.parent:
        parent = parent.parent
    with writing(path):
        if not folder and path.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        if not folder and path.exists() and not path.is_file():
            return  # a device or a pipe
        with tempfile.TemporaryFile(dir=parent):
            pass
        if path.is_file():
            with path.open("ab"):
                pass


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
