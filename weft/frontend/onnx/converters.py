"""All converters of ONNX operators, and ``weft.onnx_converter`` for those of users.

Importing this module registers the converters of weft, which those of users replace.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from onnx import AttributeProto

from weft.frontend.common.registry import import_converters
from weft.frontend.common.user_converters import (
    C,
    UserConverter,
    attribute_names,
    most_inputs,
    required_attributes,
    typed_results,
)
from weft.frontend.onnx.node import Attributes, Node
from weft.frontend.onnx.registry import register
from weft.frontend.onnx.tensors import tensor_to_numpy
from weft.ir.expr import Expr
from weft.support.errors import RegistryError

import_converters("weft.frontend.onnx.contrib", "weft.frontend.onnx.ml", "weft.frontend.onnx.ops")


_MANY = 1 << 20


def onnx_converter(name: str, *, since: int = 1) -> Callable[[C], C]:
    """Register the decorated function as the converter of an ONNX operator.

    ``name`` is ``"domain::Operator"``, without a domain for ONNX's own operators; the converter is
    used from opset ``since`` of the domain on, and replaces weft's of the same opset. The function
    is ``convert(node, *inputs, **attributes)``: inputs as typed expressions, ``None`` for omitted
    ones; attributes, its keyword-only parameters, as numbers, texts, tuples of them, and arrays.
    It returns the result, or a sequence of results, as expressions. ``weft.torch_converter`` is the
    same for torch (docs/tutorials/add_converter.md).
    """
    if not name or name.endswith("::"):
        raise RegistryError("not the name of an operator", got=repr(name),
                            expected='such as "my.domain::Twice"')

    def wrap(function: C) -> C:
        register(name, _converter(function), since=since, attributes=attribute_names(function),
                 outputs=_MANY)
        return function

    return wrap


def _converter(function: UserConverter) -> Callable[[Node], Sequence[Expr]]:
    most, required = most_inputs(function), required_attributes(function)

    @functools.wraps(function)
    def convert(node: Node) -> Sequence[Expr]:
        inputs = [node.input(i) if node.has_input(i) else None for i in range(len(node.inputs))]
        if most is not None:
            if len(inputs) > most:
                raise node.fail("more inputs than the converter takes", expected=str(most),
                                got=str(len(inputs)))
            inputs += [None] * (most - len(inputs))
        given = {name: _value(node, name) for name in node.attrs.values}
        for name in required:
            if name not in given:
                raise node.fail(f"attribute {name!r} is missing")
        return typed_results(function(node, *inputs, **given), node.op, node.span)

    return convert


def _value(node: Node, name: str) -> Any:
    """An attribute in the type that the file gives it."""
    attrs: Attributes = node.attrs
    kind = attrs.values[name].type
    if kind == AttributeProto.TENSOR:
        tensor = attrs.tensor(name)
        return None if tensor is None else tensor_to_numpy(tensor, node.folder, str(node.span))
    readers: dict[int, Callable[[], Any]] = {
        AttributeProto.INT: lambda: attrs.integer(name, 0),
        AttributeProto.INTS: lambda: attrs.integers(name),
        AttributeProto.FLOAT: lambda: attrs.number(name, 0.0),
        AttributeProto.FLOATS: lambda: attrs.numbers(name),
        AttributeProto.STRING: lambda: attrs.text(name, ""),
        AttributeProto.STRINGS: lambda: attrs.texts(name),
    }
    if kind not in readers:
        raise node.fail(f"attribute {name!r} is neither a number, a text nor a tensor")
    return readers[kind]()
