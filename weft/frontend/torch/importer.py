"""Import of a graph of core ATen operators as a typed module, in one pass over the nodes."""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
import torch.fx

from weft import op
from weft.frontend.common.random_keys import RandomKeys
from weft.frontend.common.typed import tensor_type, typed
from weft.frontend.torch.callback import called, called_operator, report_calls
from weft.frontend.torch.calls import (
    attribute_tensor,
    bound_arguments,
    converter_of,
    is_size_query,
    needed_nodes,
    size_function,
)
from weft.frontend.torch.complex_pairs import (
    Complex,
    complex_converter,
    constant_of,
    has_complex,
    is_complex,
    pair_of,
    parts_of,
)
from weft.frontend.torch.control import control_flow
from weft.frontend.torch.data_sizes import DataSizes, has_data_sizes
from weft.frontend.torch.decompositions import draws_numbers
from weft.frontend.torch.dtypes import array_of
from weft.frontend.torch.node import Node, shape_in, size_of
from weft.frontend.torch.program import TorchProgram, all_nodes, module_paths
from weft.frontend.torch.registry import ConvertFunction
from weft.frontend.torch.sizes import applied, at_sizes, conditions, input_types
from weft.frontend.torch.spans import body_of, span_of, target_name
from weft.ir import IRModule, Span, SymDim, TensorType, infer_type, is_static, size_of_dim
from weft.ir.expr import Constant, Expr, Function, Tuple, Var
from weft.ir.symbol import name_of
from weft.support.allocation import allocation_budget
from weft.support.errors import InternalError, UnsupportedModelError, WeftError


def import_program(program: TorchProgram, shapes: Mapping[str, Sequence[object]]) -> IRModule:
    """See ``weft.frontend.torch.from_torch``."""
    types = input_types(program, shapes)
    needed: tuple[SymDim, ...] = ()
    try:
        needed = conditions(program, types)
    except UnsupportedModelError:
        if not all(map(is_static, types)):
            raise
        program = at_sizes(program, types)
    report_calls(all_nodes(program.graph))
    importer = GraphImporter(program, RandomKeys(_free_name("key", program)))
    importer.sizes = DataSizes({name_of(symbol) for type_ in types for dim in type_.shape
                                if isinstance(dim, SymDim) for symbol in dim.symbols()})
    importer.conditions = tuple(str(size_of_dim(size)) for size in needed)
    complex_inputs = {node.name for node in program.graph.nodes
                      if node.op == "placeholder" and is_complex(node.meta.get("val"))}
    for port, type_ in zip(program.inputs, types, strict=True):
        importer.add_input(port.name, Var(port.name, type_, span=Span("<torch>", node=port.name)),
                           is_pair=port.name in complex_inputs)
    return importer.run()


class GraphImporter:
    """Converts the nodes of a graph; ``values`` maps names to expressions or Python values."""

    def __init__(self, program: TorchProgram, keys: RandomKeys | None = None) -> None:
        """``keys`` is ``None`` where random operators have no input for a key."""
        self.program = program
        self.keys = keys
        self.sizes: DataSizes | None = None
        # Equal calls have one value, so that reads at equal masks have one size.
        self._made: dict[object, Any] | None = {} if has_data_sizes(program.graph) else None
        self.params: list[Var] = []
        self.values: dict[str, Any] = {}
        # Sizes that may not be negative, as texts.
        self.conditions: tuple[str, ...] = ()

    def add_input(self, name: str, var: Var, *, is_pair: bool = False) -> None:
        """Add a parameter; the last axis of a pair holds the two parts of a complex tensor."""
        param = var.with_type(var.annotation)  # type: ignore[arg-type]
        self.params.append(param)
        self.values[name] = parts_of(param, Span("<torch>", node=name)) if is_pair else param

    def add_transposed_input(self, name: str, var: Var, axes: Sequence[int]) -> None:
        """Add an input laid out as ``var``; the graph sees ``transpose(var, axes)``."""
        self.add_input(name, var)
        self.values[name] = typed(op.transpose(self.values[name], axes=tuple(axes)))

    def run(self, orders: Mapping[str, Sequence[int]] | None = None) -> IRModule:
        """Convert all nodes; ``orders`` maps output nodes to permutations of their axes."""
        with allocation_budget():
            self.convert_nodes()
        return self._module(orders or {})

    def convert_nodes(self) -> None:
        """Convert all nodes that results or other nodes read."""
        needed = needed_nodes(self.program.graph, self.program.output_nodes)
        for node in self.program.graph.nodes:
            if node.op == "placeholder":
                if node.name not in self.values:
                    self.values[node.name] = self._placeholder(node)
            elif node.op == "get_attr" and body_of(node) is None:
                self.values[node.name] = _weight(attribute_tensor(node), node.name)
            elif node.op == "call_function" and node in needed:
                self.values[node.name] = self._call(node)

    def _placeholder(self, node: torch.fx.Node) -> Any:
        weight = self.program.weights.get(node.name)
        if weight is None:
            return self.program.numbers.get(node.name)
        return _weight(weight, self.program.names.get(node.name, node.name))

    def _call(self, node: torch.fx.Node) -> Any:
        if node.target is operator.getitem:
            return self._item(node)
        convert = control_flow(node)
        if convert is not None:
            return convert(self, self._seen(node, node.args), list(map(_body_or_value, node.args)))
        if is_size_query(node):
            source = self.value(node.args[0])
            return size_of(source) if len(node.args) == 1 else shape_in(source)[node.args[1]]
        function = size_function(node)
        if function is not None:
            return self._size(node, function)
        if called_operator(node) is not None:
            return called(node, self._seen(node, node.args), self.value)
        return self._convert(node)

    def _size(self, node: torch.fx.Node, function: Callable[..., Any]) -> Any:
        """Arithmetic on sizes."""
        try:
            return applied(function, [self.value(argument) for argument in node.args])
        except TypeError as error:
            raise UnsupportedModelError(f"{target_name(node)} of a symbolic size",
                                        where=span_of(node), got=str(error)) from error

    def _item(self, node: torch.fx.Node) -> Any:
        source, index = node.args
        items = self.value(source)
        if isinstance(index, int) and index >= len(items):
            raise UnsupportedModelError(
                f"result {index} of {target_name(source)} is not computed", where=span_of(source),
                help="gradients need this result; to run without gradients, use torch.no_grad()",
            )
        return items[index]

    def _convert(self, node: torch.fx.Node) -> Any:
        converter = converter_of(node)
        if converter is None:
            raise InternalError(f"{target_name(node)} has no converter")
        raw = bound_arguments(node)
        self._refuse_data_as_sizes(node, raw)
        if self._made is None or draws_numbers(node.target):
            return self._converted(node, converter, raw)
        key = node.target, self._key(raw)
        if key not in self._made:
            self._made[key] = self._converted(node, converter, raw)
        return self._made[key]

    def _key(self, argument: Any) -> object:
        """An argument as a key of equal calls."""
        if isinstance(argument, (tuple, list)):
            return tuple(map(self._key, argument))
        value = self.value(argument)
        return id(value) if isinstance(value, (Expr, list, tuple)) else (type(value), value)

    def _converted(self, node: torch.fx.Node, converter: ConvertFunction, raw: Sequence[Any]
                   ) -> Any:
        seen = self._seen(node, raw)
        if has_complex(node):
            converter = complex_converter(str(node.target)) or converter
        try:
            return converter(seen, *map(self.value, raw))
        except (TypeError, ValueError) as error:
            # Comparisons and divisions that a symbolic dimension does not take.
            has_symbols = not all(is_static(tensor_type(param)) for param in self.params)
            if not has_symbols or isinstance(error, WeftError):
                raise
            raise UnsupportedModelError(f"{target_name(node)} needs fixed sizes", where=seen.span,
                                        got=str(error)) from error
        except WeftError as error:
            if error.where is not None:
                raise
            raise error.at(str(seen.span)) from None

    def _seen(self, node: torch.fx.Node, raw: Sequence[Any]) -> Node:
        return Node(target_name(node), span_of(node), tuple(map(_traced, raw)),
                    node.meta.get("val"), self.keys, self.sizes, _fields_read(node))

    def convert_body(self, body: torch.fx.GraphModule, arguments: Sequence[Any]) -> list[Any]:
        """The results of a body of control flow, which draws no random numbers."""
        inner = GraphImporter(dataclasses.replace(self.program, graph=body.graph))
        inner.sizes, inner.params = self.sizes, self.params
        names = [node.name for node in body.graph.nodes if node.op == "placeholder"]
        inner.values = dict(zip(names, arguments, strict=True))
        inner.convert_nodes()
        (results,) = next(node for node in body.graph.nodes if node.op == "output").args
        return inner.value(results if isinstance(results, (list, tuple)) else [results])

    def _refuse_data_as_sizes(self, node: torch.fx.Node, arguments: Sequence[Any]) -> None:
        """Raise ``UnsupportedModelError`` for a tensor's number as a size, without a bound."""
        schema = node.target._schema.arguments  # type: ignore[union-attr]  # noqa: SLF001
        for parameter, argument in zip(schema, arguments, strict=True):
            sizes = argument if isinstance(argument, (list, tuple)) else [argument]
            if "int" in str(parameter.real_type) and any(
                    isinstance(self.value(size), Expr) for size in sizes):
                raise UnsupportedModelError(
                    f"{target_name(node)} with a size that is a tensor's number, without a bound",
                    where=span_of(node),
                    help="bound it by torch._check(n <= 4096) where the module calls .item()")

    def value(self, argument: Any) -> Any:
        if isinstance(argument, torch.fx.Node):
            return self.values[argument.name]
        if isinstance(argument, (tuple, list)):
            return [self.value(a) for a in argument]
        return argument

    def _module(self, orders: Mapping[str, Sequence[int]]) -> IRModule:
        program = self.program
        results = [self._result(name, orders.get(name)) for name in program.output_nodes]
        results = results if self.sizes is None else self.sizes.kept(results)
        outputs: list[Expr] = [
            r if isinstance(r, Expr) else Constant(np.asarray(r, p.type.dtype.numpy))
            for r, p in zip(results, program.outputs, strict=True)
        ]
        body = outputs[0] if len(outputs) == 1 else Tuple(tuple(outputs))
        params, names = list(self.params), [port.name for port in program.inputs]
        if self.keys is not None and self.keys.parameter is not None:
            params.append(self.keys.parameter)
            names.append(self.keys.name)
        attrs = {
            "input_names": tuple(names),
            "output_names": tuple(port.name for port in program.outputs),
        }
        if self.conditions:
            attrs["size_conditions"] = self.conditions
        main = Function(tuple(params), body)
        return infer_type(IRModule({"main": main}, attrs=attrs, named=self._named()))

    def _named(self) -> dict[str, Expr]:
        """Tensors by the names of nodes, and the results of modules by their paths."""
        found: dict[str, Expr] = {}
        for node in self.program.graph.nodes:
            value = self.values.get(node.name)
            if not isinstance(value, Expr) or isinstance(value, Constant) \
                    or not isinstance(value.checked_type, TensorType):
                continue
            # The node of a module that runs last gives its result.
            for path in module_paths(node):
                found[path] = value
            found[node.name] = value
        return found

    def _result(self, name: str, axes: Sequence[int] | None) -> Any:
        value = self.values[name]
        if isinstance(value, Complex):
            return pair_of(value)
        if axes is None or not isinstance(value, Expr):
            return value
        return typed(op.transpose(value, axes=tuple(axes)))


def _fields_read(node: torch.fx.Node) -> frozenset[int] | None:
    """The fields of a tuple that anything reads; ``None`` if something takes all of them."""
    if any(user.target is not operator.getitem for user in node.users):
        return None
    return frozenset(user.args[1] for user in node.users)  # type: ignore[misc] - integers


def _free_name(name: str, program: TorchProgram) -> str:
    """``name``, with underscores if an input has it."""
    while any(port.name == name for port in program.inputs):
        name += "_"
    return name


def _weight(tensor: torch.Tensor | None, name: str) -> Constant | Complex:
    if tensor is None:
        raise InternalError(f"{name} has no tensor")
    span = Span("<torch>", node=name)
    if is_complex(tensor):
        return constant_of(tensor, span)
    return Constant(array_of(tensor), span=span)


def _body_or_value(argument: Any) -> Any:
    body = body_of(argument) if isinstance(argument, torch.fx.Node) else None
    return argument if body is None else body


def _traced(argument: Any) -> Any:
    return argument.meta.get("val") if isinstance(argument, torch.fx.Node) else argument
