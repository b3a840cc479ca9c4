"""Where the programs and libraries of the CUDA toolkit are: the packages of ``weft[cuda]``.

They come from NVIDIA's wheels (``nvidia/cu13`` in site-packages), else from ``CUDA_HOME`` or
``CUDA_PATH``, else, for programs, from ``PATH``. None of them needs a driver.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

from weft.support.errors import CodegenError, MissingToolError

_TIMEOUT = 600  # seconds; ptxas takes a few for the largest kernels


def _roots() -> Iterator[Path]:
    try:
        spec = importlib.util.find_spec("nvidia.cu13")
    except ModuleNotFoundError:
        spec = None
    if spec is not None:
        yield from map(Path, spec.submodule_search_locations or ())
    for name in ("CUDA_HOME", "CUDA_PATH"):
        if os.environ.get(name):
            yield Path(os.environ[name])


@functools.cache
def find_program(name: str) -> Path | None:
    """The path of a program such as ``ptxas``; ``None`` if it is not installed."""
    for root in _roots():
        path = root / "bin" / name
        if path.is_file():
            return path
    found = shutil.which(name)
    return None if found is None else Path(found)


@functools.cache
def find_file(pattern: str) -> Path | None:
    """The first file of the toolkit that matches a glob such as ``lib/libnvvm.so*``."""
    for root in _roots():
        for path in sorted(root.glob(pattern)):
            return path
    return None


def program(name: str) -> Path:
    """The path of a program; ``MissingToolError`` if it is not installed."""
    path = find_program(name)
    if path is None:
        raise MissingToolError(f"{name} of the CUDA toolkit was not found",
                               help="pip install weft[cuda], or set CUDA_HOME")
    return path


def run(command: Sequence[str | Path]) -> subprocess.CompletedProcess[str]:
    """Run a program and capture its text; ``CodegenError`` if it does not end."""
    try:
        return subprocess.run(list(map(str, command)), capture_output=True, text=True,
                              check=False, timeout=_TIMEOUT)
    except subprocess.TimeoutExpired as error:
        raise CodegenError(f"{Path(command[0]).name} did not end", got=error) from None
