"""A torch model as a graph of core ATen operators with its weights, ready to be imported."""

from __future__ import annotations

import dataclasses
import inspect
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch.export.graph_signature import ConstantArgument, InputKind, OutputKind, TensorArgument

from weft.frontend.torch.coverage import check_coverage
from weft.frontend.torch.dims import shape_of, symbol_of
from weft.frontend.torch.dtypes import dtype_of
from weft.ir.shape import AnyDim, Shape, SymDim, as_dim
from weft.ir.types import TensorType, is_static
from weft.support.errors import InvalidModelError, OptionError, UnsupportedModelError

Shapes = Mapping[str, Sequence[object]]

# What weft has as one operation and is better not taken apart.
_KEPT = ("scaled_dot_product_attention.default", "linear.default", "matmul.default",
         "layer_norm.default", "silu.default", "hardswish.default", "hardsigmoid.default",
         "_scaled_dot_product_flash_attention_for_cpu.default", "lstm.input", "gru.input",
         "rnn_tanh.input", "rnn_relu.input")


@dataclass(frozen=True, slots=True)
class Port:
    """An input or output: its name and type."""

    name: str
    type: TensorType


@dataclass(frozen=True, slots=True, eq=False)
class TorchProgram:
    """``graph`` holds core ATen operators. ``weights`` has the tensors that are no inputs, and
    ``numbers`` what is no tensor, by the names of their placeholders.

    ``output_nodes`` make the outputs; those that are no tensors are left out. Sizes that torch
    left open are named symbols.
    """

    graph: torch.fx.Graph
    weights: Mapping[str, torch.Tensor]
    numbers: Mapping[str, Any]
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    output_nodes: tuple[str, ...]

    @property
    def is_open(self) -> bool:
        """Whether some size of an input is open."""
        return not all(is_static(port.type) for port in self.inputs)


def make_program(
    model: Any, example_inputs: Sequence[Any] | Mapping[str, Any] | None, shapes: Shapes
) -> TorchProgram:
    """See ``weft.frontend.torch.torch_program``."""
    exported = model
    if isinstance(model, torch.nn.Module):
        exported = _export(model, example_inputs, shapes)
    elif example_inputs is not None:
        raise OptionError("an exported program has its example inputs already",
                          help="leave example_inputs out")
    with _quiet():
        exported = exported.run_decompositions(_decompositions())
    check_coverage(exported.graph, type(model).__name__)
    return _program_of(exported, shapes)


def _export(model: torch.nn.Module, example_inputs: Sequence[Any] | Mapping[str, Any] | None,
            shapes: Shapes) -> torch.export.ExportedProgram:
    if example_inputs is None:
        raise OptionError("a torch module is compiled by what it does with example inputs",
                          got="no example_inputs",
                          help="weft.compile(module, example_inputs=(torch.zeros(1, 3, 32, 32),))")
    if model.training:
        raise InvalidModelError("the module is in training mode", where=type(model).__name__,
                                help="call model.eval() first")
    named = isinstance(example_inputs, Mapping)
    args = () if named else tuple(example_inputs)
    kwargs = dict(example_inputs) if named else None
    try:
        with _quiet():
            return torch.export.export(model, args, kwargs,
                                       dynamic_shapes=_dynamic_shapes(model, args, kwargs, shapes))
    except Exception as error:  # any code of the model's may have run
        raise InvalidModelError("torch.export cannot trace the module", where=type(model).__name__,
                                got=f"{type(error).__name__}: {error}") from error


def _dynamic_shapes(model: torch.nn.Module, args: tuple[Any, ...],
                    kwargs: Mapping[str, Any] | None, shapes: Shapes) -> Any:
    """Which axes of which argument stay open, in the form of ``torch.export``."""
    given = inspect.signature(model.forward).bind(*args, **(kwargs or {})).arguments
    unknown = [name for name in shapes if not isinstance(given.get(name), torch.Tensor)]
    if unknown:
        raise OptionError(f"the module has no tensor argument {', '.join(map(repr, unknown))}",
                          expected=", ".join(n for n, v in given.items()
                                             if isinstance(v, torch.Tensor)),
                          help="for tensors inside others, pass a torch.export.ExportedProgram")
    named: dict[str, Any] = {}

    def axes_of(name: str, value: Any) -> Any:
        if name not in shapes or not isinstance(value, torch.Tensor):
            return None
        return _open_axes(name, value, tuple(shapes[name]), named)

    return {name: axes_of(name, value) for name, value in given.items()} if shapes else None


def _open_axes(name: str, value: torch.Tensor, shape: tuple[object, ...],
               named: dict[str, Any]) -> dict[int, Any]:
    if len(shape) != value.ndim:
        raise OptionError(f"the shape given for input {name!r} has the wrong rank",
                          expected=f"{value.ndim} dimensions", got=str(shape))
    axes: dict[int, Any] = {}
    for axis, size in enumerate(shape):
        dim = as_dim(size)
        if isinstance(dim, AnyDim):
            axes[axis] = torch.export.Dim.DYNAMIC
        elif isinstance(dim, SymDim):
            symbol = str(dim)
            if not symbol.isidentifier():
                raise OptionError("an open size of a torch module is a name", got=symbol)
            axes[axis] = named.setdefault(symbol, torch.export.Dim(symbol))
        elif dim != value.shape[axis]:
            raise OptionError(f"axis {axis} of the example for input {name!r} has another size",
                              expected=str(dim), got=str(value.shape[axis]))
    return axes


def _decompositions() -> Any:
    return without_kept(torch.export.default_decompositions())


def without_kept(table: Any) -> Any:
    """A table of decompositions without those of operators that weft converts whole."""
    for name in _KEPT:
        packet, overload = name.split(".")
        table.pop(getattr(getattr(torch.ops.aten, packet), overload), None)
    return table


@contextmanager
def _quiet() -> Iterator[None]:
    """Torch warns of its own deprecated calls while it exports."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _program_of(exported: torch.export.ExportedProgram, shapes: Shapes) -> TorchProgram:
    signature = exported.graph_signature
    nodes = {node.name: node for node in exported.graph.nodes}
    tensors = {**exported.state_dict, **exported.constants}
    weights, numbers, inputs = {}, {}, []
    for spec in signature.input_specs:
        if isinstance(spec.arg, TensorArgument):
            if spec.kind is InputKind.USER_INPUT:
                inputs.append(nodes[spec.arg.name])
            else:
                weights[spec.arg.name] = tensors[spec.target].detach()
        elif isinstance(spec.arg, ConstantArgument):
            numbers[spec.arg.name] = spec.arg.value
        else:
            raise UnsupportedModelError(f"input {spec.arg.name!r} is no tensor",
                                        got=type(spec.arg).__name__)
    names = _symbol_names(inputs, shapes)
    ports = tuple(_port(node, names) for node in inputs)
    outputs = [nodes[name] for name in _output_names(signature)]
    program = TorchProgram(exported.graph, weights, numbers, ports,
                           tuple(_port(node, names) for node in outputs),
                           tuple(node.name for node in outputs))
    return _with_own_weights(program) if program.is_open else program


def _with_own_weights(program: TorchProgram) -> TorchProgram:
    """Programs of open sizes are compiled again later, when the module may have been trained."""
    weights = {name: tensor.clone() for name, tensor in program.weights.items()}
    return dataclasses.replace(program, weights=weights)


def _output_names(signature: Any) -> list[str]:
    names, written = [], []
    for spec in signature.output_specs:
        if spec.kind is not OutputKind.USER_OUTPUT:
            written.append(f"{spec.kind.name.lower()} of {spec.target!r}")
        elif isinstance(spec.arg, TensorArgument):
            names.append(spec.arg.name)
    if written:
        raise UnsupportedModelError("the model changes its own tensors", notes=written,
                                    help="return the new values instead")
    return names


def _symbol_names(inputs: Sequence[torch.fx.Node], shapes: Shapes) -> dict[str, str]:
    """The names that the caller gave for torch's symbols."""
    names: dict[str, str] = {}
    for node in inputs:
        declared = shapes.get(node.name, ())
        for size, name in zip(node.meta["val"].shape, declared, strict=False):
            symbol = symbol_of(size)
            if symbol is not None and isinstance(name, str) and name.isidentifier():
                names[symbol] = name
    return names


def _port(node: torch.fx.Node, names: Mapping[str, str]) -> Port:
    value = node.meta["val"]
    shape: Shape = shape_of(value.shape, names)
    return Port(node.name, TensorType(shape, dtype_of(value.dtype, f"tensor {node.name!r}")))
