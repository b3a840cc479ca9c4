"""Writing the files of a command, with plain messages for paths that cannot be written."""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    import numpy as np


def check_writable(path: Path, *, folder: bool = False) -> None:
    """Raise ``click.FileError`` if ``path`` cannot be written.

    Commands call this first, so that a wrong path does not cost a compilation. With ``folder`` the
    path is a folder, which is created with its parents.
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
    """Convert an ``OSError`` in the block to ``click.FileError``, whose exit code is 1."""
    try:
        yield
    except OSError as error:
        raise click.FileError(str(path), hint=error.strerror or str(error)) from None


def write_text(path: Path, text: str) -> None:
    """Write a text file; ``click.FileError`` on failure."""
    with writing(path):
        path.write_text(text, encoding="utf-8")


def write_npz(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Write arrays to ``path``, whatever their names; ``click.FileError`` on failure."""
    import zipfile

    import numpy as np

    # numpy.savez reserves the name "file" and appends a suffix to the path.
    with writing(path), zipfile.ZipFile(path, "w", allowZip64=True) as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, np.asanyarray(array), allow_pickle=False)
