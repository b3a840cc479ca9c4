"""Which ONNX and torch operators convert to an operator, found in the converters' code."""

from __future__ import annotations

import dis
import functools
from collections.abc import Callable, Iterator, Mapping
from types import FunctionType, ModuleType
from typing import Any

from weft.ir.op import OPS, Op, get_op

_LOADS = ("LOAD_ATTR", "LOAD_METHOD")
_COMPOSITES = "weft.op.composites."
_ARITHMETIC = ("BINARY_OP", "COMPARE_OP", "UNARY_NEGATIVE")
_SYMBOLS = {"+": "add", "-": "subtract", "*": "multiply", "/": "divide", "-x": "negative",
            "<": "less", "<=": "less_equal", ">": "greater", ">=": "greater_equal"}


def onnx_names() -> Mapping[str, list[str]]:
    """The ONNX operators whose conversion uses each operator, by operator name."""
    from weft.frontend.onnx import converters, registry

    _ = converters  # importing the module registers the converters
    names = ((name, converter.convert) for name in registry.CONVERTERS.names()
             for converter in registry.CONVERTERS.versions(name))
    return _by_operator(names)


def torch_names() -> Mapping[str, list[str]]:
    """The ATen operators of torch whose conversion uses each operator, by operator name."""
    from weft.frontend.torch import converters, registry

    _ = converters
    names = ((f"aten.{name}", registry.find_converter(f"aten.{name}"))
             for name in registry.CONVERTERS.names())
    return _by_operator((name, function) for name, function in names if function is not None)


def _by_operator(names: Iterator[tuple[str, Callable[..., Any]]]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name, function in names:
        for op in _operators_of(function):
            known = found.setdefault(op.name, [])
            if name not in known:
                known.append(name)
    return found


def _operators_of(converter: Callable[..., Any]) -> dict[Op, None]:
    """The operators that a converter, or a helper of its package, refers to."""
    found: dict[Op, None] = {}
    seen: set[int] = set()
    pending: list[Any] = [converter]
    while pending:
        value = pending.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        if isinstance(value, Op):
            found[value] = None
        elif isinstance(value, functools.partial):
            pending += [value.func, *value.args, *value.keywords.values()]
        elif isinstance(value, tuple | list):
            pending += value
        elif isinstance(value, dict):
            pending += value.values()
        elif isinstance(value, FunctionType) and value.__module__.startswith("weft.frontend."):
            pending += mentioned(value)
        elif isinstance(value, FunctionType) and value.__module__.startswith(_COMPOSITES):
            pending += mentioned(value)
            found |= dict.fromkeys(get_op(name) for name in _applied(value))
    return found


def _applied(composite: FunctionType) -> Iterator[str]:
    """The operators that a composite applies: names in its code, and arithmetic."""
    yield from (c for c in composite.__code__.co_consts if isinstance(c, str) and c in OPS)
    for instruction in dis.get_instructions(composite):
        symbol = "-x" if instruction.opname == "UNARY_NEGATIVE" else instruction.argrepr
        symbol = symbol.removeprefix("bool(").removesuffix(")")
        if instruction.opname in _ARITHMETIC and symbol in _SYMBOLS:
            yield _SYMBOLS[symbol]


def mentioned(function: FunctionType) -> Iterator[Any]:
    """The values that a function refers to: closure cells, defaults, and globals.

    A dotted global such as ``op.nn.conv2d`` is one value.
    """
    yield from (cell.cell_contents for cell in function.__closure__ or ())
    yield from function.__defaults__ or ()
    current: Any = None
    for instruction in dis.get_instructions(function):
        if instruction.opname == "LOAD_GLOBAL":
            yield current
            current = function.__globals__.get(instruction.argval)
        elif instruction.opname in _LOADS and isinstance(current, ModuleType):
            current = getattr(current, instruction.argval, None)
    yield current
