"""Where in the user's files something stands, for errors about code that a user has given weft."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

_PACKAGE_ROOT = str(Path(__file__).resolve().parents[1])


def place_of(function: Callable[..., Any], line: int | None = None) -> str:
    """Where a function (or one line of it) stands: ``file:line in name``."""
    function = getattr(function, "py_func", function)  # below numba's decorator
    code = getattr(function, "__code__", None)
    name = getattr(function, "__qualname__", type(function).__name__)
    if code is None:
        return name
    file = code.co_filename
    if file.startswith(_PACKAGE_ROOT):  # weft's own, the same wherever it is installed
        return f"weft{file.removeprefix(_PACKAGE_ROOT)} in {name}"
    return f"{file}:{line or code.co_firstlineno} in {name}"


def place_in_traceback(traceback: TracebackType | None) -> str | None:
    """The innermost line outside the weft package through which an error came."""
    place = None
    while traceback is not None:
        code = traceback.tb_frame.f_code
        if not code.co_filename.startswith(_PACKAGE_ROOT):
            place = f"{code.co_filename}:{traceback.tb_lineno} in {code.co_qualname}"
        traceback = traceback.tb_next
    return place
