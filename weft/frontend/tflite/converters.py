"""All converters of operators, and ``weft.tflite_converter`` for those of users.

Importing this module registers the converters of weft, which those of users replace.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from flatbuffers import flexbuffers

from weft.frontend.common.registry import import_converters
from weft.frontend.common.user_converters import (
    C,
    UserConverter,
    attribute_names,
    most_inputs,
    required_attributes,
    typed_results,
)
from weft.frontend.tflite.node import Node
from weft.frontend.tflite.registry import CONVERTERS
from weft.ir.expr import Expr
from weft.support.errors import RegistryError

import_converters("weft.frontend.tflite.ops")


def tflite_converter(name: str) -> Callable[[C], C]:
    """Register the decorated function as the converter of an operator of TensorFlow Lite files.

    ``name`` is the code of a custom operator, or that of a builtin one (``"CONV_2D"``), whose
    converter it replaces. The function is ``convert(node, *inputs, **options)``: inputs as typed
    expressions, those of quantized tensors as real numbers, ``None`` for omitted ones; its
    keyword-only parameters are the options of a custom operator by name. It returns the result, or
    a sequence of results. ``weft.onnx_converter`` is the same for ONNX.
    """
    if not name:
        raise RegistryError("not the name of an operator", got=repr(name),
                            expected='such as "TFLite_Detection_PostProcess"')

    def wrap(function: C) -> C:
        CONVERTERS.register(name, _converter(function))
        return function

    return wrap


def _converter(function: UserConverter) -> Callable[[Node], Sequence[Expr]]:
    most, named = most_inputs(function), attribute_names(function)
    required = required_attributes(function)

    def convert(node: Node) -> Sequence[Expr]:
        inputs = [node.input(i) if node.has(i) else None for i in range(len(node.operands))]
        if most is not None:
            if len(inputs) > most:
                raise node.fail("more inputs than the converter takes", expected=str(most),
                                got=str(len(inputs)))
            inputs += [None] * (most - len(inputs))
        told = custom_options(node) if named else {}
        given = {name: told[name] for name in named if name in told}
        lacking = [name for name in required if name not in given]
        if lacking:
            raise node.fail("the operator lacks options that its converter needs",
                            expected=", ".join(lacking), got=", ".join(told))
        return typed_results(function(node, *inputs, **given), node.op, node.span)

    convert.__module__ = function.__module__  # which says that a user registered it
    return convert


def custom_options(node: Node) -> dict[str, Any]:
    """The options of a custom operator, which are a flexbuffer with a map."""
    try:
        found = flexbuffers.Loads(node.custom) if node.custom else {}
    except Exception as error:  # noqa: BLE001 - damaged bytes, which the package does not check
        raise node.fail("the custom options are no flexbuffer", got=str(error)) from None
    return found if isinstance(found, dict) else {}
