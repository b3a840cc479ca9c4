"""Reading and writing GraphDef files: the binary form (``.pb``) and the text form (``.pbtxt``)."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from weft.compat.graphdef import definitions
from weft.compat.graphdef.attr_values import attrs_of, value_of, write_attrs, write_value
from weft.compat.graphdef.messages import graph_message
from weft.compat.graphdef.tensor_values import type_number, type_of
from weft.ir.span import Span
from weft.support.errors import InvalidModelError, OptionError

BINARY_SUFFIXES = (".pb", ".graphdef")
TEXT_SUFFIXES = (".pbtxt",)
GRAPHDEF_SUFFIXES = (*BINARY_SUFFIXES, *TEXT_SUFFIXES)


def read_graph_def(source: str | os.PathLike[str] | bytes) -> definitions.GraphDef:
    """A GraphDef from a file, by its suffix, or from the bytes of the binary form.

    Raises ``InvalidModelError`` for a file that cannot be read or is damaged,
    ``UnsupportedModelError`` without the package protobuf.
    """
    if isinstance(source, bytes):
        return parse_graph_def(source, "<bytes>")
    path = Path(source)
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InvalidModelError(f"{path} cannot be read", got=str(error)) from None
    if path.suffix in TEXT_SUFFIXES:
        try:
            return parse_graph_def(data.decode("utf-8"), str(path))
        except UnicodeDecodeError as error:
            raise InvalidModelError(f"{path} is no text", got=str(error)) from None
    return parse_graph_def(data, str(path))


def parse_graph_def(data: bytes | str, source: str = "<graph>") -> definitions.GraphDef:
    """A GraphDef from its binary form, or from its text form if ``data`` is a string."""
    message = graph_message()()
    from google.protobuf import text_format
    from google.protobuf.message import DecodeError

    try:
        if isinstance(data, str):
            text_format.Parse(data, message)
        else:
            message.ParseFromString(data)
    except (DecodeError, text_format.ParseError) as error:
        raise InvalidModelError("not a GraphDef", where=source, got=str(error),
                                expected="a frozen graph in protobuf's binary form (.pb), or its "
                                         "text form (.pbtxt)") from None
    return graph_of(message, source)


def write_graph_def(graph: definitions.GraphDef, path: str | os.PathLike[str]) -> None:
    """Write a graph in the form that the suffix names: ``.pb`` or ``.pbtxt``.

    Raises ``UnsupportedModelError`` for values that the format cannot hold, ``OptionError`` for
    another suffix.
    """
    path = Path(path)
    if path.suffix in TEXT_SUFFIXES:
        path.write_text(graph_def_text(graph), encoding="utf-8")
    elif path.suffix in BINARY_SUFFIXES:
        path.write_bytes(graph_def_bytes(graph))
    else:
        raise OptionError("unknown suffix of a GraphDef", got=path.name,
                          expected=", ".join(GRAPHDEF_SUFFIXES))


def graph_def_bytes(graph: definitions.GraphDef) -> bytes:
    """The binary form; equal graphs give equal bytes."""
    data: bytes = _message_of(graph).SerializeToString(deterministic=True)
    return data


def graph_def_text(graph: definitions.GraphDef) -> str:
    """The text form."""
    message = _message_of(graph)
    from google.protobuf import text_format

    text: str = text_format.MessageToString(message)
    return text


def graph_of(message: Any, source: str) -> definitions.GraphDef:
    """The graph of a message ``GraphDef``."""
    versions = definitions.Versions(message.versions.producer or message.version,
                                    message.versions.min_consumer,
                                    tuple(message.versions.bad_consumers))
    functions = {f.signature.name: _function_of(f, source) for f in message.library.function}
    if len(functions) < len(message.library.function):
        raise InvalidModelError("two functions of the library have one name", where=source)
    gradients = {g.function_name: g.gradient_func for g in message.library.gradient}
    nodes = tuple(_node_of(node, source) for node in message.node)
    return definitions.GraphDef(nodes, versions, definitions.Library(functions, gradients), source)


def _node_of(message: Any, source: str) -> definitions.NodeDef:
    span = Span(source, node=f"{message.name} ({message.op})")
    if not message.op:
        raise InvalidModelError("a node without an operator", where=span)
    return definitions.NodeDef(message.name, message.op, tuple(message.input), message.device,
                               attrs_of(message.attr, span), span)


def _function_of(message: Any, source: str) -> definitions.FunctionDef:
    signature = message.signature
    where = f"function {signature.name!r} of {source}"
    attr_defs = tuple(definitions.AttrDef(a.name, a.type, value_of(a.default_value, where))
                      for a in signature.attr)
    return definitions.FunctionDef(
        signature.name, tuple(map(_arg_of, signature.input_arg)),
        tuple(map(_arg_of, signature.output_arg)),
        tuple(_node_of(node, where) for node in message.node_def),
        dict(message.ret), dict(message.control_ret), attr_defs,
        attrs_of(message.attr, where), signature.is_stateful)


def _arg_of(message: Any) -> definitions.ArgDef:
    return definitions.ArgDef(message.name, type_of(message.type) if message.type else None,
                              message.type_attr, message.number_attr, message.type_list_attr)


def _message_of(graph: definitions.GraphDef) -> Any:
    message = graph_message()()
    for node in graph.nodes:
        _write_node(message.node.add(), node)
    message.versions.producer = graph.versions.producer
    message.versions.min_consumer = graph.versions.min_consumer
    message.versions.bad_consumers.extend(graph.versions.bad_consumers)
    for function in graph.library.functions.values():
        _write_function(message.library.function.add(), function)
    for name, gradient in graph.library.gradients.items():
        message.library.gradient.add(function_name=name, gradient_func=gradient)
    return message


def _write_node(message: Any, node: definitions.NodeDef) -> None:
    message.name, message.op, message.device = node.name, node.op, node.device
    message.input.extend(node.inputs)
    write_attrs(message.attr, node.attrs, node.label)


def _write_function(message: Any, function: definitions.FunctionDef) -> None:
    signature = message.signature
    signature.name = function.name
    signature.is_stateful = function.is_stateful
    for args, messages in ((function.inputs, signature.input_arg),
                           (function.outputs, signature.output_arg)):
        for arg in args:
            messages.add(name=arg.name, type=0 if arg.type is None else type_number(arg.type),
                         type_attr=arg.type_attr, number_attr=arg.number_attr,
                         type_list_attr=arg.type_list_attr)
    for attr in function.attr_defs:
        made = signature.attr.add(name=attr.name, type=attr.type)
        if attr.default is not None:
            write_value(made.default_value, attr.default, attr.name)
    signature.control_output.extend(function.control_returns)
    write_attrs(message.attr, function.attrs, function.name)
    for node in function.nodes:
        _write_node(message.node_def.add(), node)
    message.ret.update(function.returns)
    message.control_ret.update(function.control_returns)
