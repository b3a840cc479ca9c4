"""What stands for a value in a digest: its content, never its address or the order of a hash.

``builtin_name`` finds functions of C by module and qualified name; ``content_of`` gives values that
are neither code nor containers as numbers, texts and bytes.
"""

from __future__ import annotations

import hashlib
import re
import sys
from collections.abc import Callable
from types import (
    BuiltinFunctionType,
    ClassMethodDescriptorType,
    GetSetDescriptorType,
    MemberDescriptorType,
    MethodDescriptorType,
    MethodWrapperType,
    ModuleType,
    WrapperDescriptorType,
)
from typing import Any

import numpy as np

_DESCRIPTORS = (MethodDescriptorType, WrapperDescriptorType, ClassMethodDescriptorType,
                GetSetDescriptorType, MemberDescriptorType)


def content_of(value: Any) -> tuple[object, ...] | None:
    """The content of a value as plain parts whose ``repr`` is the same in all processes.

    ``None`` for values that are code, containers or unknown.
    """
    kind = type(value)
    for types, content in _CONTENTS.items():
        if isinstance(value, types):
            return content(value)
    if kind.__name__ == "_tuplegetter":  # a field of a named tuple
        return ("field", *value.__reduce__()[1])
    return None


def _array(value: np.ndarray) -> tuple[object, ...] | None:
    if value.dtype.hasobject or type(value) is not np.ndarray:
        return None
    data = np.ascontiguousarray(value).tobytes()
    return "array", value.shape, value.strides, repr(value.dtype), hashlib.sha256(data).hexdigest()


def _ufunc(value: np.ufunc) -> tuple[object, ...] | None:
    return ("ufunc", value.__name__) if getattr(np, value.__name__, None) is value else None


_CONTENTS: dict[type, Callable[[Any], tuple[object, ...] | None]] = {
    np.dtype: lambda v: None if v.hasobject else ("dtype", repr(v)),
    np.generic: lambda v: ("scalar", repr(v.dtype), v.tobytes()),
    np.ndarray: _array,
    np.ufunc: _ufunc,
    re.Pattern: lambda v: ("pattern", v.pattern, v.flags),
}


def builtin_name(value: Any) -> tuple[str, str] | None:
    """The module and qualified name that lead to a function or descriptor of C.

    ``None`` for other values, for methods of C bound to objects, and if the name leads elsewhere.
    """
    owner = owner_of(value)
    candidates: list[tuple[Any, str]] = []
    if isinstance(owner, ModuleType):
        candidates = [(owner.__name__, value.__name__)]
    elif isinstance(owner, type):
        candidates = [(owner.__module__, f"{owner.__qualname__}.{value.__name__}")]
    elif owner is None and is_of_c(value):  # a static method, which knows its module alone
        module = getattr(value, "__module__", None)
        candidates = [(module, value.__qualname__), (module, value.__name__)]
    return next(((module, name) for module, name in candidates
                 if isinstance(module, str) and _leads_to(module, name, value)), None)


def is_of_c(value: Any) -> bool:
    """Whether a value is a function of C, or a descriptor of a class that C defines."""
    return isinstance(value, (BuiltinFunctionType, MethodWrapperType, *_DESCRIPTORS))


def owner_of(value: Any) -> Any:
    """The module, class or object that a function or descriptor of C belongs to, or ``None``."""
    if isinstance(value, (BuiltinFunctionType, MethodWrapperType)):
        return value.__self__
    return value.__objclass__ if isinstance(value, _DESCRIPTORS) else None


def _leads_to(module: str, name: str, value: Any) -> bool:
    found: Any = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    return found is not None and bool(found == value)  # methods of classes are made when asked for
