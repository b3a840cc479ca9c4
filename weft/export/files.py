"""Files that are replaced atomically."""

from __future__ import annotations

import contextlib
import errno
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


@contextmanager
def replacing(path: Path, check: Callable[[Path], None] | None = None) -> Iterator[BinaryIO]:
    """Write a file, which replaces ``path`` when the block ends without an exception.

    ``check`` gets the complete file first, under another name; the file is removed if it raises.
    """
    if path.is_dir():  # the error of a rename to a folder depends on its content
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    handle, name = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
        if check is not None:
            check(Path(name))
        umask = os.umask(0)
        os.umask(umask)
        Path(name).chmod(0o666 & ~umask)  # mkstemp makes files that one user can read
        Path(name).replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            Path(name).unlink()
        raise
