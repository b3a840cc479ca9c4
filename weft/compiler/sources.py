"""Models that ``weft.compile`` takes, and importing them."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, runtime_checkable

from weft.compiler.options import CompileOptions
from weft.frontend.onnx import from_onnx
from weft.frontend.torch import (
    from_torch,
    is_module_source,
    is_torch_model,
    is_torch_program,
    source_of_module,
    torch_program,
)
from weft.ir import Function, IRModule, infer_type, parse
from weft.ir.ports import input_names, output_names
from weft.ir.python.from_python import PythonFunction
from weft.support.errors import InvalidModelError, OptionError
from weft.support.file_content import FileContent
from weft.transform.passes.extract_subgraph import extract_subgraph, tensors_of
from weft.transform.passes.input_shapes import with_input_shapes
from weft.transform.placement.annotate import with_placement

if TYPE_CHECKING:
    import numpy as np
    import onnx
    import torch

    from weft.frontend.torch.module_source import ModuleSource
    from weft.frontend.torch.program import TorchProgram

# What ``weft.compile``, ``weft.grad`` and ``weft.autotune`` take as a model.
ModelLike: TypeAlias = "FileOrBytes | onnx.ModelProto | TorchModel | IRProgram | GraphLike"
FileOrBytes: TypeAlias = "str | os.PathLike[str] | bytes | bytearray | memoryview"
TorchModel: TypeAlias = "torch.nn.Module | torch.export.ExportedProgram"
IRProgram: TypeAlias = "IRModule | Function | PythonFunction"


@runtime_checkable
class GraphLike(Protocol):
    """A graph that becomes a program for the tensors that are asked for (``weft.graph.Graph``)."""

    def to_module(self, outputs: Sequence[str] | None = None,
                  inputs: Mapping[str, Sequence[object] | None] | None = None) -> IRModule:
        """The typed program for ``outputs``, with shapes of ``inputs`` and cuts at them.

        ``attrs["state"]`` maps outputs to the variables that they are the next values of.
        """


@runtime_checkable
class WithVariables(Protocol):
    """A graph that knows the first values of its variables."""

    def initial_values(self) -> Mapping[str, np.ndarray]:
        """The first values of variables, by name."""


# A model after ``prepare``: torch models are traced, ``@weft.function`` is a module, paths are
# ``FileContent``.
Source: TypeAlias = "ModelLike | TorchProgram | ModuleSource"

GRAPHDEF_SUFFIXES = (".pb", ".pbtxt", ".graphdef")
TEXT_SUFFIXES = (".ir", ".weft-ir", ".txt")
ARTIFACT_SUFFIX = ".weft"


def import_model(model: Source, options: CompileOptions) -> IRModule:
    """The typed module of a prepared model, or of the part that computes ``options.outputs``.

    Raises what the front end raises; ``InvalidModelError`` for a value that is not a model.
    """
    mod = with_placement(import_whole(model, options), options.placement_names)
    shapes = options.input_shapes or {}
    fed = {name: shape for name, shape in shapes.items() if name not in input_names(mod)}
    if options.outputs is not None or fed:
        fetches = output_names(mod) if options.outputs is None else options.outputs
        return extract_subgraph(mod, fetches, fed)
    # The names would keep tensors alive that passes replace.
    return dataclasses.replace(mod, named={}) if mod.named else mod


def import_whole(model: Source, options: CompileOptions) -> IRModule:
    """The typed module of a prepared model, with the names of its tensors."""
    if isinstance(model, IRModule):
        return _shaped(infer_type(model), options)
    if isinstance(model, Function):
        return _shaped(infer_type(IRModule.from_expr(model)), options)
    if is_module_source(model):
        model = model.program
    if is_torch_program(model):
        given = {name: shape for name, shape in options.inputs if shape is not None}
        return from_torch(model, inputs=given)
    graph = _graph_def(model)
    if graph is not None:
        return graph.to_module(options.outputs, options.input_shapes)
    if isinstance(model, (str, os.PathLike)):
        path = Path(model)
        if path.suffix in TEXT_SUFFIXES:
            return _shaped(infer_type(parse(_read_text(model))), options)
        if path.suffix == ARTIFACT_SUFFIX:
            raise InvalidModelError(f"{path} is a compiled artifact", expected="a model",
                                    help=f"run it with weft.load({str(path)!r})")
    if is_onnx(model):
        data = bytes(model) if isinstance(model, (bytearray, memoryview)) else model
        return from_onnx(data, inputs=options.input_shapes)
    raise InvalidModelError(
        "not a model", got=type(model).__name__,
        expected="a path, the bytes of an ONNX model, onnx.ModelProto, a torch module or "
                 "ExportedProgram, Graph, GraphDef, IRModule, Function or a @weft.function",
    )


def is_onnx(model: object) -> bool:
    """Whether ``import_model`` reads ``model`` as an ONNX model."""
    if isinstance(model, (str, os.PathLike)):
        return Path(model).suffix not in (*TEXT_SUFFIXES, *GRAPHDEF_SUFFIXES, ARTIFACT_SUFFIX)
    return isinstance(model, (bytes, bytearray, memoryview)) \
        or (hasattr(model, "SerializeToString") and hasattr(model, "graph"))


def _shaped(mod: IRModule, options: CompileOptions) -> IRModule:
    """``mod`` with the shapes of ``options``; names of inner tensors are left for later."""
    shapes = dict(options.inputs)
    inner = {name for name in shapes.keys() - set(input_names(mod)) if name in tensors_of(mod)}
    own = {name: shape for name, shape in shapes.items()
           if name not in inner and shape is not None}
    return with_input_shapes(mod, own) if own else mod


def prepare(model: ModelLike, example_inputs: Sequence[Any] | Mapping[str, Any] | None,
            inputs: Mapping[str, Sequence[object]] | None) -> Source:
    """A torch model as a program that is traced at most once, a ``@weft.function`` as a module.

    A single tensor as ``example_inputs`` means the tuple ``(tensor,)``. Raises ``OptionError`` for
    ``example_inputs`` of a model that is not a torch module.
    """
    if is_torch_model(model):
        one = example_inputs is not None and not isinstance(example_inputs, (Mapping, Sequence))
        examples = (example_inputs,) if one else example_inputs
        source = None if inputs else source_of_module(model, examples)
        return source or torch_program(model, example_inputs=examples, inputs=inputs)
    if example_inputs is not None:
        raise OptionError("example_inputs are for torch modules", got=type(model).__name__,
                          help='give shapes with inputs={"x": (1, 3, 224, 224)}')
    if isinstance(model, (str, os.PathLike)):
        return model if isinstance(model, FileContent) else FileContent(model)
    return model.module if isinstance(model, PythonFunction) else model


def with_graph(model: ModelLike, options: CompileOptions) -> tuple[ModelLike, CompileOptions]:
    """A graph as a module for the inputs and outputs of ``options``, which then need nothing more.

    Other models and their options are returned as they are.
    """
    graph = model if isinstance(model, GraphLike) else _graph_def(model)
    if graph is None:
        return model, options
    mod = graph.to_module(options.outputs, options.input_shapes)
    state = (*options.state, *mod.attrs.get("state", {}).items())
    return mod, dataclasses.replace(options, inputs=(), outputs=None, state=state)


def first_values(model: ModelLike) -> Mapping[str, np.ndarray]:
    """The first values of the variables of a graph; empty for other models."""
    graph = model if isinstance(model, GraphLike) else _graph_def(model)
    return graph.initial_values() if isinstance(graph, WithVariables) else {}


def _graph_def(model: object) -> GraphLike | None:
    """The graph of a GraphDef file or of TensorFlow's message; ``None`` for other models."""
    is_file = isinstance(model, (str, os.PathLike)) and Path(model).suffix in GRAPHDEF_SUFFIXES
    if not is_file and not (hasattr(model, "SerializeToString") and hasattr(model, "node")):
        return None
    from weft.compat.graphdef import GraphDefModel

    return GraphDefModel.of(model)


def unchanged_file(model: Source) -> Callable[[], None]:
    """A function that raises ``InvalidModelError`` if the file of the model has changed since."""
    if not isinstance(model, (str, os.PathLike)):
        return lambda: None
    first = _state_of(Path(model))

    def check() -> None:
        if _state_of(Path(model)) != first:
            raise InvalidModelError(f"{model} has changed since it was compiled",
                                    help="compile it again")

    return check


def _state_of(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size


def _read_text(path: str | os.PathLike[str]) -> str:
    file = path if isinstance(path, FileContent) else FileContent(path)
    try:
        return str(file.content().data, "utf-8").replace("\r\n", "\n")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidModelError(f"{path} cannot be read", got=str(error)) from None
