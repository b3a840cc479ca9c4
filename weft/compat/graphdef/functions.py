"""Functions of the library: values for their attributes, and the tensors that bodies refer to."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from weft.compat.graphdef.definitions import (
    ArgDef,
    AttrPlaceholder,
    ForeignType,
    FunctionDef,
    FunctionRef,
    Library,
    NodeDef,
    TypeAttr,
)
from weft.compat.graphdef.names import is_node_name
from weft.compat.graphdef.registry import CONVERTERS
from weft.ir.op import OPS
from weft.ir.types import TensorType
from weft.support.dataclass import dataclass
from weft.support.errors import InvalidModelError

HANDLE = "DT_RESOURCE"
_MOST_TENSORS = 1 << 20


@dataclass(frozen=True, slots=True)
class FunctionBody:
    """A function with values for its attributes: nodes whose inputs are ``node:index``.

    ``arguments`` and ``results`` are one entry for each tensor; ``effects`` are the nodes that run
    although no result needs them.
    """

    arguments: tuple[str, ...]
    nodes: tuple[NodeDef, ...]
    results: tuple[str, ...]
    effects: tuple[str, ...]


def find_function(library: Library, name: str, where: object) -> FunctionDef:
    """The function ``name``; ``InvalidModelError`` if the library has none."""
    found = library.functions.get(name)
    if found is None:
        raise InvalidModelError(f"the library has no function {name!r}", where=where,
                                expected=", ".join(sorted(library.functions)) or "no functions")
    return found


def instantiate(library: Library, ref: FunctionRef, types: Sequence[TensorType], where: object
                ) -> FunctionBody:
    """The body of a function for arguments of ``types``.

    Attributes that ``ref`` does not give follow from the types of the arguments, or have their
    default. Raises ``InvalidModelError`` for a wrong number or type of arguments, for an attribute
    without a value, and for a reference to a tensor that the body does not have.
    """
    function = find_function(library, ref.name, where)
    values = _attributes(function, ref.attrs, types, where)
    arguments = _arguments(function, values, types, where)
    nodes = tuple(_instantiated(node, values, where) for node in function.nodes)
    known = {node.name: node for node in nodes}
    names = {arg.name: arguments[arg.name] for arg in function.inputs}
    resolve = _Resolver(library, known, names, function.name, where)
    resolved = tuple(dataclasses.replace(n, inputs=tuple(map(resolve.input, n.inputs)))
                     for n in nodes)
    unknown = sorted(set(function.control_returns.values()) - known.keys())
    if unknown:
        raise InvalidModelError(f"function {function.name!r} waits for nodes that it does not have",
                                where=where, got=", ".join(unknown))
    results = tuple(text for arg in function.outputs
                    for text in _returned(function, arg, values, resolve, where))
    return FunctionBody(tuple(n for arg in function.inputs for n in arguments[arg.name]),
                        resolved, results, tuple(function.control_returns.values()))


def returned_arguments(body: FunctionBody) -> frozenset[int]:
    """The positions of arguments that are results at the same position, also through Identity."""
    nodes = {node.name: node for node in body.nodes}
    found: set[int] = set()
    for index, (argument, result) in enumerate(zip(body.arguments, body.results, strict=False)):
        name = result.removesuffix(":0")
        for _ in nodes:
            node = nodes.get(name)
            if node is None or node.op != "Identity" or node.control_inputs:
                break
            name = node.inputs[0].removesuffix(":0")
        if name == argument:
            found.add(index)
    return frozenset(found)


def _count(arg: ArgDef, values: Mapping[str, Any]) -> int | None:
    """The number of tensors of a list argument; ``None`` for a single tensor."""
    if arg.number_attr:
        number = values[arg.number_attr]
        if not isinstance(number, int) or not 0 <= number <= _MOST_TENSORS:
            raise InvalidModelError(f"argument {arg.name!r} is no list of tensors",
                                    expected=f"a number of at most {_MOST_TENSORS}",
                                    got=f"{arg.number_attr} = {number!r:.60}")
        return number
    types = values[arg.type_list_attr] if arg.type_list_attr else None
    if types is not None and not isinstance(types, tuple):
        raise InvalidModelError(f"argument {arg.name!r} has no list of types",
                                got=f"{arg.type_list_attr} = {types!r:.60}")
    return None if types is None else len(types)


def _arguments(function: FunctionDef, values: Mapping[str, Any], types: Sequence[TensorType],
               where: object) -> dict[str, tuple[str, ...]]:
    """The names of the tensors of each argument, whose types are checked."""
    names: dict[str, tuple[str, ...]] = {}
    expected: list[TypeAttr | None] = []
    for arg in function.inputs:
        count = _count(arg, values)
        size = 1 if count is None else count
        names[arg.name] = (arg.name,) if count is None \
            else tuple(f"{arg.name}.{i}" for i in range(count))
        if arg.type_list_attr:
            expected.extend(values[arg.type_list_attr])
        else:
            expected.extend([values[arg.type_attr] if arg.type_attr else arg.type] * size)
    if len(expected) != len(types):
        raise InvalidModelError(f"function {function.name!r} takes {len(expected)} arguments",
                                where=where, got=str(len(types)))
    flat = [name for group in names.values() for name in group]
    for name, wanted, given in zip(flat, expected, types, strict=True):
        if isinstance(wanted, ForeignType) and wanted.name in (HANDLE, "DT_VARIANT"):
            continue  # variables and lists have the types of their values
        if wanted is not None and wanted is not given.dtype:
            raise InvalidModelError(
                f"argument {name!r} of function {function.name!r} has the wrong type",
                where=where, expected=str(wanted), got=str(given))
    return names


def _attributes(function: FunctionDef, given: Mapping[str, Any], types: Sequence[TensorType],
                where: object) -> dict[str, Any]:
    """The values of the attributes of a function, those of types from single arguments."""
    values = {d.name: d.default for d in function.attr_defs if d.default is not None}
    known = {d.name for d in function.attr_defs}
    values.update({name: value for name, value in given.items() if name in known})
    if not any(arg.number_attr or arg.type_list_attr for arg in function.inputs):
        for arg, type_ in zip(function.inputs, types, strict=False):
            if arg.type_attr:
                values.setdefault(arg.type_attr, type_.dtype)
    named = {name for arg in (*function.inputs, *function.outputs)
             for name in (arg.type_attr, arg.number_attr, arg.type_list_attr) if name}
    missing = sorted((known | named) - values.keys())
    if missing:
        raise InvalidModelError(
            f"function {function.name!r} needs a value for attribute "
            f"{', '.join(map(repr, missing))}", where=where)
    return values


def _instantiated(node: NodeDef, values: Mapping[str, Any], where: object) -> NodeDef:
    return dataclasses.replace(node, attrs={
        name: _value(value, values, node, where) for name, value in node.attrs.items()})


def _value(value: Any, values: Mapping[str, Any], node: NodeDef, where: object) -> Any:
    if isinstance(value, AttrPlaceholder):
        if value.name not in values:
            raise InvalidModelError(
                f"node {node.name!r} takes the attribute {value.name!r}, which its function "
                "does not have", where=node.span or where)
        return values[value.name]
    if isinstance(value, FunctionRef):
        inner = {n: _value(v, values, node, where) for n, v in value.attrs.items()}
        return FunctionRef(value.name, inner)
    if isinstance(value, tuple):
        return tuple(_value(v, values, node, where) for v in value)
    return value


def _returned(function: FunctionDef, arg: ArgDef, values: Mapping[str, Any], resolve: _Resolver,
              where: object) -> list[str]:
    text = function.returns.get(arg.name)
    if text is None:
        raise InvalidModelError(f"function {function.name!r} returns nothing for {arg.name!r}",
                                where=where, expected=", ".join(function.returns) or "a result")
    count = _count(arg, values)
    if count is None:
        return [resolve.input(text)]
    stem = text if text.count(":") == 1 else text.rpartition(":")[0]
    return [resolve.input(f"{stem}:{i}") for i in range(count)]


@dataclass(frozen=True, slots=True)
class _Resolver:
    """Turns ``node:output_name:index`` and names of arguments into ``node:index``."""

    library: Library
    nodes: Mapping[str, NodeDef]
    arguments: Mapping[str, tuple[str, ...]]
    function: str
    where: object

    def input(self, text: str) -> str:
        if text.startswith("^"):
            return text
        name, *rest = text.split(":")
        if name in self.arguments:
            group = self.arguments[name]
            index = int(rest[-1]) if rest and rest[-1].isdecimal() else 0
            if index < len(group):
                return group[index]
        elif name in self.nodes and is_node_name(name, inner=True):
            if len(rest) == 2 and rest[1].isdecimal():
                return f"{name}:{self._first(self.nodes[name], rest[0]) + int(rest[1])}"
            if not rest or (len(rest) == 1 and rest[0].isdecimal()):
                return text
            if len(rest) == 1:
                return f"{name}:{self._first(self.nodes[name], rest[0])}"
        raise InvalidModelError(
            f"function {self.function!r} refers to {text!r}, which it does not have",
            where=self.where, expected="an argument, or 'node:output:index'")

    def _first(self, node: NodeDef, output: str) -> int:
        """The index of the first tensor of an output, by its name."""
        converter = CONVERTERS.find(node.op)
        if node.op in self.library.functions:
            names = tuple(a.name for a in self.library.functions[node.op].outputs)
        else:
            names = converter.outputs if converter is not None else ("output",)
        is_unknown = converter is None and node.op not in self.library.functions \
            and node.op not in OPS  # which another error reports
        if is_unknown or (len(names) == 1 and converter is not None):
            return 0  # TensorFlow names the only result of an operator in many ways
        if output not in names:
            raise InvalidModelError(f"{node.label} has no output {output!r}", where=self.where,
                                    expected=", ".join(names))
        return names.index(output)
