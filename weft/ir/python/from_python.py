"""Programs written as typed Python functions.

``@function`` reads the source of a Python function and makes a function of the IR::

    @function
    def power(x: Tensor[(4,), "float32"], n: "int32") -> Tensor[(4,), "float32"]:
        result = const([1.0] * 4)
        while n > 0:
            result = result * x
            n = n - 1
        return result

Statements become lets, conditionals, matches and loops (recursive functions). Python evaluates the
expressions over IR variables, with the line numbers of the user's file, which spans then show.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable
from typing import Any

from weft.ir.dtype import DType
from weft.ir.expr import Call, Constructor, Function, GlobalVar, Var
from weft.ir.module import IRModule
from weft.ir.prelude import prelude
from weft.ir.python.python_blocks import BlockReader, Names
from weft.ir.python.python_source import HELPERS, PythonSource
from weft.ir.text.parser import parse_type
from weft.ir.types import TensorType, Type
from weft.ir.visitor import post_order
from weft.support.errors import WeftError

_SCALARS = {int: "int32", float: "float32", bool: "bool"}


class Tensor:
    """Annotations of parameters: ``Tensor[(1, "n"), "float32"]`` is a ``TensorType``."""

    def __class_getitem__(cls, item: tuple[Any, Any]) -> TensorType:
        shape, dtype = item
        return TensorType.of(shape, dtype)


class PythonFunction:
    """A function of the IR, read from Python when it is first used.

    A call in another such function refers to it by name, also before its definition; the module of
    the caller then contains both.
    """

    def __init__(self, python: Callable[..., Any]) -> None:
        self.python = python
        self._function: Function | None = None
        self._names: Names = {}
        self.__doc__ = python.__doc__
        self.__name__ = python.__name__

    def __call__(self, *args: Any) -> Call:
        """A call of this function by name, for use in expressions."""
        return GlobalVar(self.__name__)(*args)

    @property
    def function(self) -> Function:
        """The function; raises ``ParseError`` for Python that cannot be translated."""
        if self._function is None:
            source = PythonSource(self.python)
            outer = inspect.getclosurevars(self.python)
            self._names = {**self.python.__globals__, **outer.nonlocals, **HELPERS}
            reader = BlockReader(source, lambda tree, names: _annotation(source, tree, names))
            self._function = reader.function(source.tree, self._names)
        return self._function

    def callees(self) -> list[PythonFunction]:
        """The functions that this one calls by name, in order of first use."""
        known = {v.__name__: v for v in self._names.values() if isinstance(v, PythonFunction)}
        used = (n.name for n in post_order(self.function) if isinstance(n, GlobalVar))
        return [known[name] for name in dict.fromkeys(used) if name in known]

    @property
    def module(self) -> IRModule:
        """A module with this function as ``@main``, its callees, and the prelude if it is used."""
        found: dict[str, PythonFunction] = {}
        pending: list[PythonFunction] = [self]
        while pending:
            current = pending.pop()
            if current.__name__ not in found:
                found[current.__name__] = current
                current.function  # noqa: B018 - reading it finds its names
                pending.extend(reversed(current.callees()))
        functions = {name: one.function for name, one in found.items()}
        if not any(self in one.callees() for one in found.values()):
            functions = {"main": functions.pop(self.__name__), **functions}
        elif self.__name__ != "main":
            functions["main"] = _forwarding(self)
        return with_prelude(functions)


def _forwarding(callee: PythonFunction) -> Function:
    fn = callee.function
    params = tuple(Var(p.name, p.annotation, span=p.span) for p in fn.params)
    return Function(params, callee(*params), fn.ret_type, span=fn.span)


def with_prelude(functions: dict[str, Function]) -> IRModule:
    """A module of ``functions``, with the prelude if they refer to it."""
    for fn in functions.values():
        for node in post_order(fn):
            foreign = isinstance(node, GlobalVar) and node.name not in functions
            if foreign or isinstance(node, Constructor):
                library = prelude()
                return IRModule({**library.functions, **functions}, library.type_definitions)
    return IRModule(functions)


def _annotation(source: PythonSource, tree: ast.expr, names: Names) -> Type:
    """A type, weft's text of a type, a dtype, or Python's ``int``, ``float``, ``bool``."""
    value = eval(source.compiled(tree), names)  # noqa: S307 - the user's own code
    if isinstance(value, Type):
        return value
    if isinstance(value, str):
        return parse_type(value, source=str(source.span(tree)))
    try:
        return TensorType((), DType.of(_SCALARS.get(value, value)))
    except (WeftError, TypeError):
        source.fail(
            tree,
            "this annotation is not a type",
            expected='Tensor[(2, "n"), "float32"], a text such as "List[int32]", or a dtype',
            help="the type of a parameter without annotation is inferred",
        )


def function(python: Callable[..., Any]) -> PythonFunction:
    """Make a function of the IR from a Python function; see the docstring of this module."""
    return PythonFunction(python)
