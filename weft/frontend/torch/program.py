"""A torch model as a graph of core ATen operators with its weights, ready to be imported.

``weft.grad`` stops at the results of ``torch.no_grad()`` blocks. ``torch.export`` represents such a
block as a call of a submodule; the decomposition to core ATen inlines the submodule and drops the
mode, so ``detach`` nodes mark the results before.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import field
from typing import Any

import sympy
import torch
import torch.fx
from torch._ops import OpOverload
from torch.export.graph_signature import ConstantArgument, InputKind, OutputKind, TensorArgument

from weft.frontend.common.coverage import counted, unsupported_operators
from weft.frontend.torch import converters as _converters  # noqa: F401 - fills the table
from weft.frontend.torch.calls import is_converted
from weft.frontend.torch.complex_pairs import has_complex, is_complex, pair_type, real_dtype
from weft.frontend.torch.control import control_flow
from weft.frontend.torch.decompositions import draws_numbers, missing_decompositions
from weft.frontend.torch.dims import expression_of, noted_questions, shape_of, symbol_value
from weft.frontend.torch.dtypes import dtype_of
from weft.frontend.torch.export import Shapes, export_module, quiet
from weft.frontend.torch.spans import (
    bodies_of,
    module_path,
    place_bodies,
    span_of,
    target_name,
)
from weft.frontend.torch.trace import Trace
from weft.frontend.torch.trace_limits import needed_guards, ranges_of
from weft.ir import Dim, Shape, SymDim, TensorType, as_shape, is_static
from weft.support.dataclass import dataclass
from weft.support.errors import (
    InternalError,
    InvalidModelError,
    OptionError,
    UnsupportedModelError,
)


def check_coverage(graph: torch.fx.Graph, model: str) -> None:
    """Raise ``UnsupportedModelError`` with all unsupported operators, counts and locations."""
    missing: dict[str, list[torch.fx.Node]] = {}
    for node in all_nodes(graph):
        if node.op in ("placeholder", "output") or is_converted(node):
            continue
        of_pairs = " of complex numbers" if has_complex(node) else ""
        missing.setdefault(target_name(node) + of_pairs, []).append(node)
    if not missing:
        return
    raise unsupported_operators(
        f"the model uses {counted(len(missing), 'operator')} that weft does not support",
        {name: [_position(node) for node in nodes] for name, nodes in missing.items()}, model,
        _help(missing), noun="time")


def all_nodes(graph: torch.fx.Graph) -> Iterator[torch.fx.Node]:
    """The nodes of a graph, and those of the bodies of control flow that weft converts."""
    for node in graph.nodes:
        yield node
        if control_flow(node) is not None:
            for body in bodies_of(node):
                yield from all_nodes(body.graph)


_OTHER_WAY = 'torch.compile(module, backend="weft") leaves what weft does not support to torch'


def _help(missing: dict[str, list[torch.fx.Node]]) -> str:
    """How to add an operator, if one of those that are ``missing`` can be added."""
    operators = sorted(n for n, nodes in missing.items() if isinstance(nodes[0].target, OpOverload))
    if not operators:
        return _OTHER_WAY
    library, name, _ = operators[0].partition(" ")[0].split(".", 2)
    return (f'register @weft.torch_converter("{library}::{name}"), as in '
            f"docs/tutorials/add_converter.md; or {_OTHER_WAY}")


def _position(node: torch.fx.Node) -> str:
    span = span_of(node)
    path = module_path(node)
    return path if span.line is None else f"{path} at {span.source}:{span.line}"


@contextmanager
def no_grad_as_detach(exported: torch.export.ExportedProgram) -> Iterator[None]:
    """Within the context, the results of ``torch.no_grad()`` blocks in the program are detached."""
    graph = exported.graph
    added = [_detached(graph, node) for node in _results_without_gradient(graph)]
    try:
        yield
    finally:
        for node in added:  # restore the user's program
            (source,) = node.all_input_nodes
            node.replace_all_uses_with(source)
            graph.erase_node(node)


def _results_without_gradient(graph: torch.fx.Graph) -> list[torch.fx.Node]:
    block = torch.ops.higher_order.wrap_with_set_grad_enabled
    return [result for node in graph.nodes if node.target is block and node.args[0] is False
            for result in node.users if isinstance(result.meta.get("val"), torch.Tensor)]


def _detached(graph: torch.fx.Graph, node: torch.fx.Node) -> torch.fx.Node:
    with graph.inserting_after(node):
        detached = graph.call_function(torch.ops.aten.detach.default, (node,))
    detached.meta = dict(node.meta)
    node.replace_all_uses_with(detached, delete_user_cb=lambda user: user is not detached)
    return detached


# Operators that weft converts as a whole; torch must not decompose them.
_KEPT = ("scaled_dot_product_attention.default", "linear.default", "matmul.default",
         "layer_norm.default", "adaptive_avg_pool2d.default", "silu.default", "hardswish.default",
         "hardsigmoid.default", "_scaled_dot_product_flash_attention_for_cpu.default",
         "take.default", "roll.default", "lstm.input", "gru.input", "rnn_tanh.input",
         "rnn_relu.input")


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
    named symbols. A graph with dynamic sizes has the ``trace`` that it comes from. It holds where
    torch's symbols are in ``ranges`` and ``guards`` are true. ``names`` are those that the module
    gives to weights.
    """

    graph: torch.fx.Graph
    weights: Mapping[str, torch.Tensor]
    numbers: Mapping[str, Any]
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    output_nodes: tuple[str, ...]
    ranges: Mapping[str, range] = field(default_factory=dict)
    trace: Trace | None = None
    guards: tuple[sympy.Basic, ...] = ()
    names: Mapping[str, str] = field(default_factory=dict)

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
    questions: list[sympy.Basic] = []
    if isinstance(model, torch.nn.Module):
        source = model
        with noted_questions() as questions:
            exported = export_module(model, example_inputs, shapes)
    elif example_inputs is not None:
        raise OptionError("example_inputs were given for an exported program, which has its own",
                          help="leave example_inputs out")
    else:
        exported, source = model, None
    decomposed = _decomposed(exported)
    check_coverage(decomposed.graph, type(model).__name__)
    program = _program_of(decomposed, shapes)
    if not program.is_dynamic:
        return program
    trace = Trace(exported.module() if source is None else source, exported, decomposed,
                  tuple(questions))
    guards = needed_guards(trace)
    # The user may train the weights before the program is compiled again.
    weights = {name: tensor.clone() for name, tensor in program.weights.items()}
    return dataclasses.replace(program, weights=weights, trace=trace, guards=guards,
                               ranges=ranges_of(trace, guards))


def program_at(program: TorchProgram, shapes: Sequence[Sequence[int]]) -> TorchProgram:
    """The program that torch traces for inputs of these shapes, with the weights of ``program``.

    Raises ``InvalidModelError`` if torch refuses them or has no program for them.
    """
    if program.trace is None:
        raise InternalError("a program without a trace has fixed sizes")
    decomposed = _decomposed(program.trace.at(shapes))
    check_coverage(decomposed.graph, type(program.trace.source).__name__)
    found = _program_of(decomposed, {})
    if len(found.outputs) != len(program.outputs):
        raise InvalidModelError("the model has other results at these sizes",
                                expected=f"{len(program.outputs)} tensors",
                                got=str(len(found.outputs)))
    trained = {spec.arg.name for spec in decomposed.graph_signature.input_specs
               if spec.kind in (InputKind.PARAMETER, InputKind.BUFFER)}
    weights = {name: program.weights.get(name, tensor) if name in trained else tensor
               for name, tensor in found.weights.items()}
    outputs = tuple(Port(general.name, own.type) for general, own
                    in zip(program.outputs, found.outputs, strict=True))
    inputs = tuple(Port(general.name, own.type) for general, own
                   in zip(program.inputs, found.inputs, strict=True))
    return dataclasses.replace(found, weights=weights, inputs=inputs, outputs=outputs)


def _decomposed(exported: torch.export.ExportedProgram) -> torch.export.ExportedProgram:
    try:
        with quiet(), no_grad_as_detach(exported):
            decomposed = exported.run_decompositions(decompositions())
    except Exception as error:  # torch runs the program on tensors without data
        raise InvalidModelError("torch cannot decompose the program",
                                got=f"{type(error).__name__}: {error}"[:500]) from error
    place_bodies(decomposed.graph)
    return decomposed


def decompositions() -> Any:
    """What torch decomposes in a program, of which weft takes the rest."""
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
    weights, targets, numbers, inputs, buffers = {}, {}, {}, [], []
    for spec in signature.input_specs:
        if isinstance(spec.arg, TensorArgument):
            if spec.kind is InputKind.USER_INPUT:
                inputs.append(nodes[spec.arg.name])
            elif spec.target in written:
                buffers.append(spec)
            else:
                weights[spec.arg.name] = tensors[spec.target].detach()
                targets[spec.arg.name] = str(spec.target)
        elif spec.kind is InputKind.TOKEN:
            numbers[spec.arg.name] = None
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
    return TorchProgram(exported.graph, weights, numbers,
                        tuple(_port(node, names) for node in inputs), tuple(outgoing),
                        tuple(node.name for node in outputs), names=targets)


def _written_buffers(signature: Any) -> dict[str, str]:
    """For each buffer that the model updates, the node of its new value."""
    return {spec.target: spec.arg.name for spec in signature.output_specs
            if spec.kind is OutputKind.BUFFER_MUTATION}


def _output_names(signature: Any) -> list[str]:
    names, written = [], []
    for spec in signature.output_specs:
        if spec.kind in (OutputKind.BUFFER_MUTATION, OutputKind.TOKEN):
            continue
        if spec.kind is not OutputKind.USER_OUTPUT:
            written.append(f"{spec.kind.name.lower()} of {spec.target!r}")
        elif isinstance(spec.arg, TensorArgument):
            names.append(spec.arg.name)
    if written:
        raise UnsupportedModelError("the model mutates its tensors", notes=written,
                                    help="return the new values instead")
    return names


def _symbol_names(inputs: Sequence[torch.fx.Node], shapes: Shapes) -> dict[str, Dim]:
    """Torch's symbols in the names that the caller gave, where one axis determines them."""
    names: dict[str, Dim] = {}
    for node in inputs:
        declared = shapes.get(node.name)
        if declared is None:
            continue
        for size, dim in zip(node.meta["val"].shape, as_shape(declared), strict=False):
            known = symbol_value(expression_of(size), dim) if isinstance(dim, SymDim) else None
            if known is not None:
                names.setdefault(*known)
    return names


def _port(node: torch.fx.Node, names: Mapping[str, Dim]) -> Port:
    value = node.meta["val"]
    shape: Shape = shape_of(value.shape, names)
    dtype = dtype_of(real_dtype(value.dtype), f"tensor {node.name!r}")
    type_ = TensorType(shape, dtype)
    return Port(node.name, pair_type(type_) if is_complex(value) else type_)
