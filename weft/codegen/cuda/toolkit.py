"""Where the programs and libraries of the CUDA toolkit are, and numba-cuda, which finds them.

numba-cuda and its search (``cuda.pathfinder``: wheels, conda, the system's loader, ``CUDA_HOME``,
the toolkit beside ``libcudart``) come with ``weft[cuda]``. None of them needs a driver.
"""

from __future__ import annotations

import functools
import importlib
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from weft.support.errors import CodegenError, MissingToolError

_TIMEOUT = 600  # seconds; ptxas takes a few for the largest kernels
_LIBDEVICE = "libdevice/libdevice.10.bc"
_INSTALL = "pip install weft[cuda]"
OLDEST_NUMBA_CUDA = (0, 30)


@functools.cache
def find_program(name: str) -> Path | None:
    """The path of a program such as ``ptxas``; ``None`` if it is not installed."""
    pathfinder = _pathfinder()
    found = None if pathfinder is None else pathfinder.find_nvidia_binary_utility(name)
    found = found or shutil.which(name)
    return None if found is None else Path(found)


@functools.cache
def find_library(name: str) -> Path | None:
    """The path of a library such as ``nvvm``, which is loaded; ``None`` if it is not installed."""
    pathfinder = _pathfinder()
    if pathfinder is None:
        return None
    try:
        return Path(pathfinder.load_nvidia_dynamic_lib(name).abs_path)
    except RuntimeError:  # what all of the errors of the search are
        return None


@functools.cache
def libdevice() -> bytes | None:
    """The bitcode of NVIDIA's library of mathematical functions; ``None`` if it is absent.

    Where the search for bitcode finds nothing, it is beside libnvvm, as in every toolkit.
    """
    pathfinder = _pathfinder()
    if pathfinder is None:
        return None
    try:
        return Path(pathfinder.locate_bitcode_lib("device").abs_path).read_bytes()
    except (RuntimeError, OSError):
        library = find_library("nvvm")
    for folder in () if library is None else library.resolve().parents[1:3]:
        for path in (folder / _LIBDEVICE, folder / "nvvm" / _LIBDEVICE):
            if path.is_file():
                return path.read_bytes()
    return None


def numba_cuda(module: str, purpose: str) -> Any:
    """``numba.cuda.MODULE`` of the package numba-cuda.

    Raises ``MissingToolError`` if the package is absent or too old, or if ``numba.cuda`` is the
    older one inside numba.
    """
    try:
        version = importlib.import_module("numba_cuda").__version__
        found = importlib.import_module(f"numba.cuda.{module}")
        origin = importlib.import_module("numba.cuda").implementation
    except ImportError as error:
        raise MissingToolError(f"numba-cuda, which {purpose}, cannot be imported", got=error,
                               help=_INSTALL) from None
    if _release(version) < OLDEST_NUMBA_CUDA or origin != "NVIDIA":
        raise MissingToolError(
            f"the installed numba-cuda, which {purpose}, is too old",
            expected=f"numba-cuda {'.'.join(map(str, OLDEST_NUMBA_CUDA))} or later",
            got=f"numba-cuda {version}, numba.cuda {origin}", help=_INSTALL)
    return found


def program(name: str) -> Path:
    """The path of a program; ``MissingToolError`` if it is not installed."""
    path = find_program(name)
    if path is None:
        raise MissingToolError(f"{name} of the CUDA toolkit was not found", help=_INSTALL)
    return path


def run(command: Sequence[str | Path]) -> subprocess.CompletedProcess[str]:
    """Run a program and capture its text; ``CodegenError`` if it does not end."""
    try:
        return subprocess.run(list(map(str, command)), capture_output=True, text=True,
                              check=False, timeout=_TIMEOUT)
    except subprocess.TimeoutExpired as error:
        raise CodegenError(f"{Path(command[0]).name} did not end", got=error) from None


def _pathfinder() -> Any:
    try:
        return importlib.import_module("cuda.pathfinder")
    except ImportError:
        return None


def _release(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:2] if part.isdecimal())
