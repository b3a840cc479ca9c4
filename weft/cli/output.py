"""Writing the files of a command, with plain messages for paths that cannot be written."""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

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


def write_plot(path: Path | None, draw: Callable[[], str]) -> None:
    """Write an SVG file if its path is given; the note goes to the stream of errors."""
    if path is not None:
        write_text(path, draw())
        click.echo(f"wrote {path}", err=True)


def plots() -> ModuleType:
    """The drawings, which are imported when one is wanted."""
    return import_module("weft.compiler.report.plots")


def plot_option(what: str) -> Callable[[Any], Any]:
    """The option ``--plot``, which draws ``what`` to an SVG file."""
    return click.option("--plot", type=click.Path(path_type=Path, dir_okay=False), default=None,
                        callback=_check_plot, help=f"also draw {what} to this SVG file")


def _check_plot(ctx: click.Context, param: click.Parameter, value: Path | None) -> Path | None:  # noqa: ARG001 - click's names
    if value is not None and not ctx.resilient_parsing:
        check_writable(value)
    return value


def write_npz(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Write arrays to ``path``, whatever their names; ``click.FileError`` on failure."""
    import zipfile

    import numpy as np

    # numpy.savez reserves the name "file" and appends a suffix to the path.
    with writing(path), zipfile.ZipFile(path, "w", allowZip64=True) as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, np.asanyarray(array), allow_pickle=False)
