"""Reading of pickles that hold plain values and NumPy arrays, without running what they ask for.

``pickle.load`` calls any function that a file names. This reader interprets the opcodes that build
numbers, text, lists, tuples, dictionaries and arrays (PEP 3154 and ``pickletools`` describe them)
and refuses all others. A global is never imported: it is a name, and the three names that the
pickle of an array consists of have their meaning here.
"""

from __future__ import annotations

import pickletools
from collections.abc import Callable
from os import PathLike
from typing import Any

import numpy as np

from weft.support.dataclass import dataclass
from weft.support.errors import DataError


@dataclass(frozen=True)
class _Global:
    name: str


@dataclass
class _Reduced:
    """A call that the file asks for: a dtype or an array that ``BUILD`` completes."""

    function: str
    arguments: tuple[Any, ...]
    state: Any = None


_MARK = object()
_ARRAY = "ndarray"
_DTYPE = "dtype"
_ENCODE = "encode"
_CLASS = "class ndarray"
_GLOBALS = {
    "numpy.core.multiarray _reconstruct": _ARRAY,
    "numpy._core.multiarray _reconstruct": _ARRAY,
    "numpy dtype": _DTYPE,
    "numpy ndarray": _CLASS,
    "_codecs encode": _ENCODE,  # the bytes of a pickle that Python 3 wrote for Python 2
}
_VALUES = {"BININT", "BININT1", "BININT2", "LONG1", "INT", "BINFLOAT", "BINUNICODE",
           "SHORT_BINUNICODE", "BINUNICODE8", "BINBYTES", "SHORT_BINBYTES", "BINBYTES8"}
_TEXT = {"BINSTRING", "SHORT_BINSTRING"}
_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_IGNORED = {"PROTO", "FRAME", "STOP"}
_EMPTY: dict[str, Callable[[], Any]] = {
    "EMPTY_LIST": list, "EMPTY_DICT": dict, "EMPTY_TUPLE": tuple, "MARK": lambda: _MARK}


class _RefusedError(Exception):
    """What the reader does not accept."""


def read_pickle(path: str | PathLike[str], data: bytes) -> Any:
    """The value in a pickle. Text of Python 2 becomes bytes.

    Raises ``DataError`` with the file and the offset for a damaged file, and for one that asks for
    anything but plain values and arrays.
    """
    machine = _Machine()
    offset = 0
    try:
        for opcode, argument, position in pickletools.genops(data):
            offset = position or 0
            machine.run(opcode.name, argument)
        value = _finished(machine.stack.pop())
    except _RefusedError as error:
        raise DataError("a pickle asks for more than plain values", where=f"{path}, offset "
                        f"{offset}", expected="numbers, text, lists, dictionaries, NumPy arrays",
                        got=error, help="it was not executed; do not unpickle such a file"
                        ) from None
    except (ValueError, LookupError, TypeError, AttributeError, OverflowError, RecursionError
            ) as error:
        raise DataError("a pickle is damaged", where=f"{path}, after offset {offset} of "
                        f"{len(data)} bytes", got=error) from None
    return value


class _Machine:
    """The stack machine of pickles, for the opcodes that are allowed."""

    def __init__(self) -> None:
        self.stack: list[Any] = []
        self._memo: dict[int, Any] = {}

    def run(self, name: str, argument: Any) -> None:
        if name in _VALUES:
            self.stack.append(argument)
        elif name in _TEXT:
            self.stack.append(argument.encode("latin-1"))
        elif name in _CONSTANTS:
            self.stack.append(_CONSTANTS[name])
        elif name in _EMPTY:
            self.stack.append(_EMPTY[name]())
        elif name not in _IGNORED:
            step = getattr(self, f"_{name.lower()}", None)
            if step is None:
                raise _RefusedError(f"the opcode {name}")
            step(argument)

    def _after_mark(self) -> list[Any]:
        start = max(i for i, value in enumerate(self.stack) if value is _MARK)
        items = self.stack[start + 1 :]
        del self.stack[start:]
        return items

    def _binput(self, index: int) -> None:
        self._memo[index] = self.stack[-1]

    _long_binput = _binput

    def _memoize(self, _: None) -> None:
        self._memo[len(self._memo)] = self.stack[-1]

    def _binget(self, index: int) -> None:
        self.stack.append(self._memo[index])

    _long_binget = _binget

    def _append(self, _: None) -> None:
        item = self.stack.pop()
        self.stack[-1].append(item)

    def _appends(self, _: None) -> None:
        items = self._after_mark()
        self.stack[-1].extend(items)

    def _setitem(self, _: None) -> None:
        value, key = self.stack.pop(), self.stack.pop()
        self.stack[-1][key] = value

    def _setitems(self, _: None) -> None:
        items = self._after_mark()
        self.stack[-1].update(zip(items[::2], items[1::2], strict=True))

    def _tuple(self, _: None) -> None:
        self.stack.append(tuple(self._after_mark()))

    def _last(self, count: int) -> None:
        self.stack[-count:] = [tuple(self.stack[-count:])]

    def _tuple1(self, _: None) -> None:
        self._last(1)

    def _tuple2(self, _: None) -> None:
        self._last(2)

    def _tuple3(self, _: None) -> None:
        self._last(3)

    def _global(self, name: str) -> None:
        if name not in _GLOBALS:
            raise _RefusedError(f"the function {name.replace(' ', '.')}")
        self.stack.append(_Global(_GLOBALS[name]))

    def _stack_global(self, _: None) -> None:
        name, module = self.stack.pop(), self.stack.pop()
        self._global(f"{module} {name}")

    def _reduce(self, _: None) -> None:
        arguments, function = self.stack.pop(), self.stack.pop()
        if not isinstance(function, _Global) or not isinstance(arguments, tuple):
            raise _RefusedError("a call of something that is no function")
        if function.name == _ENCODE:
            text, encoding = arguments
            if encoding != "latin1":
                raise _RefusedError(f"the encoding {encoding}")
            self.stack.append(text.encode("latin-1"))
            return
        self.stack.append(_Reduced(function.name, arguments))

    def _build(self, _: None) -> None:
        state = self.stack.pop()
        if not isinstance(self.stack[-1], _Reduced):
            raise _RefusedError("the state of something that is no array")
        self.stack[-1].state = state


def _finished(value: Any) -> Any:
    """The value with arrays instead of the calls; containers are of one level or two."""
    if isinstance(value, _Reduced):
        return _array(value)
    if isinstance(value, dict):
        return {key: _finished(part) for key, part in value.items()}
    if isinstance(value, list) and any(isinstance(part, _Reduced) for part in value):
        return [_finished(part) for part in value]
    return value


def _array(value: _Reduced) -> np.ndarray:
    """The array of a ``_reconstruct`` call and its state (version, shape, dtype, order, bytes)."""
    if value.function != _ARRAY:
        raise _RefusedError(f"a value of the class {value.function}")
    _, shape, dtype, is_fortran, data = value.state
    if not isinstance(dtype, _Reduced) or dtype.function != _DTYPE or not isinstance(data, bytes):
        raise _RefusedError("an array whose values are objects")
    code = dtype.arguments[0]
    text = code.decode("ascii") if isinstance(code, bytes) else code
    if text[:1] not in ("b", "i", "u", "f"):
        raise _RefusedError(f"an array of dtype {text}")
    is_big_endian = dtype.state is not None and dtype.state[1] in (">", b">")
    numbers = np.dtype(text).newbyteorder(">" if is_big_endian else "=")
    array = np.frombuffer(data, numbers).reshape(shape, order="F" if is_fortran else "C")
    return array.astype(numbers.newbyteorder("="))
