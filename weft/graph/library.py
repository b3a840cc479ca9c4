"""Functions of a graph: definitions from graphs, and libraries with more functions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from weft.frontend.graphdef.definitions import FunctionDef, Library
from weft.support.errors import InvalidModelError


def with_functions(library: Library, added: Library, where: object) -> Library:
    """``library`` with the functions and gradients of ``added``.

    Raises ``InvalidModelError`` for a name that has another definition already.
    """
    for name, function in added.functions.items():
        known = library.functions.get(name)
        if known is not None and not same_function(known, function):
            raise InvalidModelError(f"the library has another function {name!r} already",
                                    where=where)
    for name, gradient in added.gradients.items():
        if library.gradients.get(name, gradient) != gradient:
            raise InvalidModelError(f"function {name!r} has another gradient already", where=where,
                                    expected=library.gradients[name], got=gradient)
    return Library({**library.functions, **added.functions},
                   {**library.gradients, **added.gradients})


def same_function(a: FunctionDef, b: FunctionDef) -> bool:
    """Whether two definitions are equal, constants compared by value."""
    return a is b or _text(a) == _text(b)


def _text(function: FunctionDef) -> str:
    """A text that equal definitions share; nodes in the order of names."""
    nodes = sorted(function.nodes, key=lambda node: node.name)
    bodies = [(n.name, n.op, n.inputs, n.device, _attrs_text(n.attrs)) for n in nodes]
    return repr((function.name, function.inputs, function.outputs, bodies,
                 sorted(function.returns.items()), sorted(function.control_returns.items()),
                 function.attr_defs, _attrs_text(function.attrs)))


def _attrs_text(attrs: Mapping[str, Any]) -> str:
    values = {n: (v.dtype.name, v.shape, v.tobytes()) if isinstance(v, (np.ndarray, np.generic))
              else v for n, v in attrs.items()}
    return repr(sorted(values.items(), key=lambda item: item[0]))
