"""The text form of single values: names, attributes, constants, types."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from weft.ir.dtype import DType
from weft.ir.expr import Constant
from weft.ir.shape import SymDim
from weft.ir.types import FuncType, Type, TypeVar, component_types
from weft.ir.typing.solver import substitute_type

LARGEST_INLINE = 16
# Suffixes of scalar literals; int32 needs none.
SCALAR_SUFFIXES = {
    "float32": "f",
    "float64": "f64",
    "float16": "f16",
    "bfloat16": "bf16",
    "int32": "",
    "int64": "i64",
    "int16": "i16",
    "int8": "i8",
    "uint8": "u8",
    "uint16": "u16",
    "uint32": "u32",
    "uint64": "u64",
}
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_]")


class Names:
    """Assigns unique printable names."""

    def __init__(self) -> None:
        self._taken: set[str] = set()
        self._next: dict[str, int] = {}

    def unique(self, wanted: str) -> str:
        """An unused identifier similar to ``wanted``."""
        name = _NOT_IN_NAMES.sub("_", wanted) or "v"
        if name[0].isdigit():
            name = f"v{name}"
        result = name
        while result in self._taken:
            self._next[name] = self._next.get(name, 0) + 1
            result = f"{name}_{self._next[name]}"
        self._taken.add(result)
        return result


class TypeText:
    """Types as text; type variables with equal names are renamed apart."""

    def __init__(self) -> None:
        self._names = Names()
        self._given: dict[TypeVar, TypeVar] = {}

    def __call__(self, type_: Type) -> str:
        values: dict[TypeVar, TypeVar] = {}
        pending = [type_]
        seen: set[int] = set()
        while pending:
            current = pending.pop()
            if id(current) in seen:
                continue
            seen.add(id(current))
            if isinstance(current, TypeVar):
                values[current] = self.variable(current)
            pending.extend(component_types(current))
            if isinstance(current, FuncType):
                pending.extend(current.type_params)
        return str(substitute_type(type_, values) if values else type_)

    def variable(self, type_var: TypeVar) -> TypeVar:
        """The renamed variable that is printed for ``type_var``."""
        if type_var not in self._given:
            self._given[type_var] = TypeVar(self._names.unique(type_var.name))
        return self._given[type_var]


def value_text(value: Any) -> str:
    """An attribute's value; ``parse_value`` of the parser reads it back."""
    if isinstance(value, bool) or value is None:
        return str(value)
    if isinstance(value, str):
        return json.dumps(value)
    if isinstance(value, bytes):
        return f'bytes("{base64.b64encode(value).decode()}")'
    if isinstance(value, DType):
        return f'"{value}"'
    if isinstance(value, SymDim):
        return str(value)
    if isinstance(value, (tuple, list)):
        return f"[{', '.join(map(value_text, value))}]"
    if isinstance(value, Mapping):
        items = (f"{json.dumps(str(k))}: {value_text(v)}" for k, v in value.items())
        return f"{{{', '.join(items)}}}"
    if isinstance(value, (int, np.integer)):
        return str(int(value))
    if isinstance(value, (float, np.floating)):
        return repr(float(value))
    return json.dumps(str(value))


def constant_text(constant: Constant) -> str | None:
    """The literal of a small constant; ``None`` for one that belongs in the metadata."""
    data = constant.data
    if data.size > LARGEST_INLINE:
        return None
    dtype = DType.of(data.dtype).name
    is_block = data.dtype.names is not None
    numbers = [] if is_block else [number_text(v) for v in data.reshape(-1)]
    if is_block or not _reads_back(numbers, data):
        return f'const("{base64.b64encode(data.tobytes()).decode()}", {_shape_text(data)}, {dtype})'
    if data.ndim == 0 and dtype == "bool":
        return numbers[0]
    if data.ndim == 0 and dtype in SCALAR_SUFFIXES and numbers[0].lstrip("-")[0].isdigit():
        return numbers[0] + SCALAR_SUFFIXES[dtype]
    return f"const([{', '.join(numbers)}], {_shape_text(data)}, {dtype})"


def _shape_text(data: np.ndarray) -> str:
    return str(tuple(int(d) for d in data.shape))


def number_text(value: Any) -> str:
    """One element: the shortest digits that parse back to the same value of its dtype."""
    if value.dtype.kind == "b":
        return "True" if value else "False"
    text = str(value)
    return text.removesuffix(".0")


def _reads_back(numbers: list[str], data: np.ndarray) -> bool:
    """Whether the digits parse to the same bits, which fails for NaN with a payload or sign."""
    return numbers_array(numbers, data.dtype).tobytes() == data.tobytes()


def numbers_array(numbers: list[str], dtype: np.dtype) -> np.ndarray:
    """The flat array for literals of ``number_text``.

    Raises ``ValueError`` or ``OverflowError`` if a number is out of range of the dtype.
    """
    if dtype.kind == "b":
        return np.array([n == "True" for n in numbers], dtype)
    if dtype.kind in "iu":
        return np.array([int(n) for n in numbers], dtype)
    if DType.of(dtype).is_int:
        return np.array([int(n) for n in numbers], np.int64).astype(dtype)
    return np.array([float(n) for n in numbers], np.float64).astype(dtype)
