"""A digest of a Python function, equal for functions that compile to the same machine code.

It covers bytecode, constants, defaults, and the values of the globals and closure variables that
the code uses, which numba treats as constants. Line numbers and file names are not included, so
moving a function does not change its digest.
"""

from __future__ import annotations

import dis
import hashlib
import sys
from collections.abc import Callable, Iterator
from types import CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np

from weft.support.errors import LoweringError
from weft.support.user_code import location_of

# Modules whose functions are identified by name; the library version is part of the cache key.
_LIBRARIES = frozenset(["math", "cmath", "operator", "builtins", "numpy", "numba"])


def plain_function(body: Callable[..., Any]) -> FunctionType:
    """The Python function of ``body``, unwrapped if it is decorated with ``numba.njit``.

    Raises ``LoweringError`` for other callables.
    """
    function = getattr(body, "py_func", body)
    if not isinstance(function, FunctionType):
        raise LoweringError("not a plain Python function",
                            expected="def or lambda", got=type(body).__name__)
    return function


def function_digest(body: Callable[..., Any], *facts: str) -> str:
    """The hexadecimal digest of a function and of further ``facts``.

    Raises ``LoweringError`` if the function refers to a value that cannot be digested.
    """
    digest = hashlib.sha256(f"python {sys.version_info[:2]}".encode())
    for part in (*map(str.encode, facts), *_function(plain_function(body), set())):
        digest.update(len(part).to_bytes(8, "little"))
        digest.update(part)
    return digest.hexdigest()


def _function(function: FunctionType, seen: set[FunctionType]) -> Iterator[bytes]:
    if function in seen:  # recursive
        yield b"again"
        return
    seen.add(function)
    yield from _code(function.__code__)
    cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
    values = {name: cell.cell_contents for name, cell in cells.items()}
    names, globals_ = _names(function.__code__), _globals(function.__code__)
    values |= {n: function.__globals__[n] for n in globals_ if n in function.__globals__}
    values["defaults"] = (function.__defaults__, tuple((function.__kwdefaults__ or {}).items()))
    for name in sorted(values):
        yield name.encode()
        yield from _value(function, name, values[name], names, seen)


def _code(code: CodeType) -> Iterator[bytes]:
    yield code.co_code
    yield repr((code.co_varnames, code.co_names, code.co_freevars, code.co_argcount)).encode()
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _code(constant)
        elif isinstance(constant, frozenset):  # of ``x in {...}``; unordered
            yield repr(sorted(map(repr, constant))).encode()
        else:
            yield repr(constant).encode()


def _names(code: CodeType) -> frozenset[str]:
    """The names of globals and attributes in the code, including nested code."""
    inner = (_names(c) for c in code.co_consts if isinstance(c, CodeType))
    return frozenset(code.co_names).union(*inner)


def _globals(code: CodeType) -> frozenset[str]:
    """The names of globals that the code loads, including nested code."""
    inner = (_globals(c) for c in code.co_consts if isinstance(c, CodeType))
    own = (i.argval for i in dis.get_instructions(code) if i.opname in ("LOAD_GLOBAL", "LOAD_NAME"))
    return frozenset(own).union(*inner)


def _value(
    function: FunctionType, name: str, value: Any, names: frozenset[str], seen: set[FunctionType]
) -> Iterator[bytes]:
    value = getattr(value, "py_func", value)
    if isinstance(value, FunctionType):
        yield from _function(value, seen)
    elif isinstance(value, ModuleType):
        yield value.__name__.encode()
        if _is_library(value.__name__):
            return
        for attribute in sorted(names & vars(value).keys()):
            yield from _value(function, attribute, vars(value)[attribute], names, seen)
    elif isinstance(value, np.ndarray) and not value.dtype.hasobject:
        yield repr((value.shape, value.dtype.str)).encode()
        yield np.ascontiguousarray(value).tobytes()
    elif isinstance(value, tuple | list):
        yield f"{type(value).__name__} {len(value)}".encode()
        for item in value:
            yield from _value(function, name, item, names, seen)
    elif isinstance(value, int | float | complex | str | bytes | np.generic) or value is None:
        yield f"{type(value).__name__} {value!r}".encode()
    elif _is_library(getattr(value, "__module__", None) or ""):
        yield f"{value.__module__}.{getattr(value, '__qualname__', repr(value))}".encode()
    else:
        raise LoweringError(
            f"{function.__qualname__} uses {name}, whose type cannot be compiled",
            where=location_of(function), got=type(value).__name__,
            expected="a number, a string, a tuple, an array, a function or a module",
            help="pass what varies as an argument",
        )


def _is_library(module: str) -> bool:
    return module.split(".", maxsplit=1)[0] in _LIBRARIES
