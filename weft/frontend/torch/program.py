"""A torch model as a graph of core ATen operators with its weights, ready to be imported."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any

import torch
from torch.export.graph_signature import ConstantArgument, InputKind, OutputKind, TensorArgument

from weft.frontend.torch.coverage import check_coverage
from weft.frontend.torch.decompositions import draws_numbers, missing_decompositions
from weft.frontend.torch.dims import shape_of, symbol_of
from weft.frontend.torch.dtypes import dtype_of
from weft.frontend.torch.export import Shapes, export_module, quiet
from weft.frontend.torch.no_grad import no_grad_as_detach
from weft.ir.shape import Shape
from weft.ir.types import TensorType, is_static
from weft.support.dataclass import dataclass
from weft.support.errors import OptionError, UnsupportedModelError

# Operators that weft converts as a whole; torch must not decompose them.
_KEPT = ("scaled_dot_product_attention.default", "linear.default", "matmul.default",
         "layer_norm.default", "adaptive_avg_pool2d.default", "silu.default", "hardswish.default",
         "hardsigmoid.default", "_scaled_dot_product_flash_attention_for_cpu.default",
         "take.default", "lstm.input", "gru.input", "rnn_tanh.input", "rnn_relu.input")


@dataclass(frozen=True, slots=True)
class Port:
    """An input or output: its name and type."""

    name: str
    type: TensorType


@dataclass(frozen=True, slots=True, eq=False)
class TorchProgram:
    """A traced torch model; ``graph`` holds core ATen operators.

    By placeholder name, ``weights`` has the tensors that are not inputs, and ``numbers`` the
    values that are not tensors. ``output_nodes`` are the nodes of the outputs; outputs that are
    not tensors are omitted. A buffer that the model updates (a running average) is an input after
    the others, and its new value is an output of the same name after the others. Dynamic sizes are
    named symbols; ``ranges`` has the values of each name for which the graph is valid.
    """

    graph: torch.fx.Graph
    weights: Mapping[str, torch.Tensor]
    numbers: Mapping[str, Any]
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    output_nodes: tuple[str, ...]
    ranges: Mapping[str, range] = field(default_factory=dict)

    def tensor_names(self) -> set[str]:
        """The names of nodes, and the paths of modules, which name their results."""
        found = {node.name for node in self.graph.nodes}
        for node in self.graph.nodes:
            found.update(module_paths(node))
        return found

    @property
    def is_dynamic(self) -> bool:
        """Whether an input has a dynamic size."""
        return not all(is_static(port.type) for port in self.inputs)


def module_paths(node: torch.fx.Node) -> list[str]:
    """The paths of the modules that a node belongs to, the outermost first."""
    stack = node.meta.get("nn_module_stack") or {}
    return [path for path, _ in stack.values() if path]


def make_program(
    model: Any, example_inputs: Sequence[Any] | Mapping[str, Any] | None, shapes: Shapes
) -> TorchProgram:
    """See ``weft.frontend.torch.torch_program``."""
    exported = model
    if isinstance(model, torch.nn.Module):
        exported = export_module(model, example_inputs, shapes)
    elif example_inputs is not None:
        raise OptionError("example_inputs were given for an exported program, which has its own",
                          help="leave example_inputs out")
    with quiet(), no_grad_as_detach(exported):
        exported = exported.run_decompositions(_decompositions())
    check_coverage(exported.graph, type(model).__name__)
    return _program_of(exported, shapes)


def _decompositions() -> Any:
    table = without_kept(torch.export.default_decompositions())
    table.pop(torch.ops.aten.detach.default, None)  # ``weft.grad`` must see it
    for overload, function in missing_decompositions().items():
        if overload not in table and not draws_numbers(overload):
            table[overload] = function
    return table


def without_kept(table: Any) -> Any:
    """Remove the operators that weft converts as a whole from ``table``; returns ``table``."""
    for name in _KEPT:
        packet, overload = name.split(".")
        table.pop(getattr(getattr(torch.ops.aten, packet), overload), None)
    return table


def _program_of(exported: torch.export.ExportedProgram, shapes: Shapes) -> TorchProgram:
    signature = exported.graph_signature
    nodes = {node.name: node for node in exported.graph.nodes}
    tensors = {**exported.state_dict, **exported.constants}
    written = _written_buffers(signature)
    weights, numbers, inputs, buffers = {}, {}, [], []
    for spec in signature.input_specs:
        if isinstance(spec.arg, TensorArgument):
            if spec.kind is InputKind.USER_INPUT:
                inputs.append(nodes[spec.arg.name])
            elif spec.target in written:
                buffers.append(spec)
            else:
                weights[spec.arg.name] = tensors[spec.target].detach()
        elif isinstance(spec.arg, ConstantArgument):
            numbers[spec.arg.name] = spec.arg.value
        else:
            raise UnsupportedModelError(f"input {spec.arg.name!r} is not a tensor",
                                        got=type(spec.arg).__name__)
    names = _symbol_names(inputs, shapes)
    inputs += [nodes[spec.arg.name] for spec in buffers]
    outputs = [nodes[name] for name in _output_names(signature)]
    outgoing = [_port(node, names) for node in outputs]
    for spec in buffers:
        outputs.append(nodes[written[spec.target]])
        outgoing.append(Port(spec.arg.name, _port(outputs[-1], names).type))
    program = TorchProgram(exported.graph, weights, numbers,
                           tuple(_port(node, names) for node in inputs), tuple(outgoing),
                           tuple(node.name for node in outputs), _ranges(exported, names))
    return _with_own_weights(program) if program.is_dynamic else program


def _with_own_weights(program: TorchProgram) -> TorchProgram:
    """Copy the weights: the user may train them before the program is compiled again."""
    weights = {name: tensor.clone() for name, tensor in program.weights.items()}
    return dataclasses.replace(program, weights=weights)


def _written_buffers(signature: Any) -> dict[str, str]:
    """For each buffer that the model updates, the node of its new value."""
    return {spec.target: spec.arg.name for spec in signature.output_specs
            if spec.kind is OutputKind.BUFFER_MUTATION}


def _output_names(signature: Any) -> list[str]:
    names, written = [], []
    for spec in signature.output_specs:
        if spec.kind is OutputKind.BUFFER_MUTATION:
            continue
        if spec.kind is not OutputKind.USER_OUTPUT:
            written.append(f"{spec.kind.name.lower()} of {spec.target!r}")
        elif isinstance(spec.arg, TensorArgument):
            names.append(spec.arg.name)
    if written:
        raise UnsupportedModelError("the model mutates its tensors", notes=written,
                                    help="return the new values instead")
    return names


def _symbol_names(inputs: Sequence[torch.fx.Node], shapes: Shapes) -> dict[str, str]:
    """The names that the caller gave to torch's symbols."""
    names: dict[str, str] = {}
    for node in inputs:
        declared = shapes.get(node.name, ())
        for size, name in zip(node.meta["val"].shape, declared, strict=False):
            symbol = symbol_of(size)
            if symbol is not None and isinstance(name, str) and name.isidentifier():
                names[symbol] = name
    return names


def _ranges(exported: torch.export.ExportedProgram, names: Mapping[str, str]
            ) -> dict[str, range]:
    """The values of each name for which the graph is valid."""
    ranges: dict[str, range] = {}
    for symbol, values in exported.range_constraints.items():
        name = names.get(str(symbol), str(symbol))
        low = max(int(values.lower), 0) if values.lower.is_Integer else 0
        high = int(values.upper) if values.upper.is_Integer else sys.maxsize - 1
        before = ranges.get(name, range(sys.maxsize))
        ranges[name] = range(max(low, before.start), min(high + 1, before.stop))
    return ranges


def _port(node: torch.fx.Node, names: Mapping[str, str]) -> Port:
    value = node.meta["val"]
    shape: Shape = shape_of(value.shape, names)
    return Port(node.name, TensorType(shape, dtype_of(value.dtype, f"tensor {node.name!r}")))
