"""Sources that load artifacts in programs without Python."""

from __future__ import annotations

import os
from pathlib import Path

from weft.support.errors import ArtifactError, OptionError

HERE = Path(__file__).parent
# Language -> the files that a program in it needs.
_C = ("weft_loader.h", "weft_loader.c")
LOADERS = {"c": _C, "c++": (*_C, "weft_loader.hpp"), "js": ("weft_loader.js",)}


def write_loader(folder: str | os.PathLike[str], language: str = "c") -> list[Path]:
    """Write the sources of the loader for a language into a folder; the files that were written.

    Raises ``OptionError`` for another language, ``ArtifactError`` if they cannot be written.
    """
    if language not in LOADERS:
        raise OptionError("there is no loader for this language", got=repr(language),
                          expected=" or ".join(LOADERS))
    written = []
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
        for name in LOADERS[language]:
            target = Path(folder) / name
            target.write_bytes((HERE / name).read_bytes())
            written.append(target)
    except OSError as error:
        raise ArtifactError("the loader cannot be written", where=folder,
                            got=error.strerror or error) from None
    return written
