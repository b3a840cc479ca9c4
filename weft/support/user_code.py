"""Source locations in user code, for error messages."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

_PACKAGE_ROOT = str(Path(__file__).resolve().parents[1])


def location_of(function: Callable[..., Any], line: int | None = None) -> str:
    """The source location of a function, or of one line of it: ``file:line in name``."""
    function = getattr(function, "py_func", function)  # below numba's decorator
    code = getattr(function, "__code__", None)
    name = getattr(function, "__qualname__", type(function).__name__)
    if code is None:
        return name
    file = code.co_filename
    if file.startswith(_PACKAGE_ROOT):  # without the installation path and line, which vary
        return f"weft{file.removeprefix(_PACKAGE_ROOT)} in {name}"
    return f"{file}:{line or code.co_firstlineno} in {name}"


def location_in_traceback(traceback: TracebackType | None) -> str | None:
    """The innermost line outside the weft package through which an error came."""
    location = None
    while traceback is not None:
        code = traceback.tb_frame.f_code
        if not code.co_filename.startswith(_PACKAGE_ROOT):
            location = f"{code.co_filename}:{traceback.tb_lineno} in {code.co_qualname}"
        traceback = traceback.tb_next
    return location
