"""All converters of StableHLO and CHLO, and ``weft.stablehlo_converter`` for those of users.

Importing this module registers the converters of weft, which those of users replace.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft.frontend.common.registry import import_converters
from weft.frontend.common.user_converters import C, UserConverter, attribute_names, typed_results
from weft.frontend.stablehlo.node import Node
from weft.frontend.stablehlo.ops import elementwise
from weft.frontend.stablehlo.registry import CONVERTERS
from weft.frontend.stablehlo.syntax import Literal
from weft.frontend.stablehlo.types import array_of
from weft.support.errors import RegistryError

import_converters("weft.frontend.stablehlo.ops")


def is_elementwise(name: str) -> bool:
    """Whether an operation computes each element of its results from the same ones of operands."""
    return name in elementwise.NAMES


def stablehlo_converter(name: str) -> Callable[[C], C]:
    """Register the decorated function as the converter of an operation of StableHLO modules.

    ``name`` is that of an operation (``"stablehlo.fft"``), of a custom call's target behind ``@``
    (``"@my_kernel"``), or of a composite, and replaces weft's converter. The function is
    ``convert(node, *operands, **attributes)``: operands as typed expressions, the attributes with
    the names of its keyword-only parameters as Python values. It returns the result, or a sequence
    of results, as expressions. ``weft.onnx_converter`` is the same for ONNX.
    """
    if "." not in name and not name.startswith("@"):
        raise RegistryError("not the name of an operation", got=repr(name),
                            expected='such as "stablehlo.fft", or "@target" of a custom call')

    def wrap(function: C) -> C:
        CONVERTERS.register(name, _converter(function))
        return function

    return wrap


def _converter(function: UserConverter) -> Callable[..., Any]:
    named = attribute_names(function)

    def convert(node: Node, *operands: Any) -> Any:
        given = {name: _plain(node.attributes[name]) for name in named if name in node.attributes}
        lacking = [name for name, parameter in named.items()
                   if name not in given and parameter.default is parameter.empty]
        if lacking:
            raise node.fail("the operation lacks attributes that its converter needs",
                            expected=", ".join(lacking), got=", ".join(node.attributes))
        return typed_results(function(node, *operands, **given), node.op, node.span)

    convert.__module__ = function.__module__  # which says that a user registered it
    return convert


def _plain(value: Any) -> Any:
    return array_of(value) if isinstance(value, Literal) else value
