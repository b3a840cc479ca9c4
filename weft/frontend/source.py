"""A model as its front end reads it: ``open_source`` finds the front end, ``Source`` is the model.

A front end is found by the suffix of a path, by the class of a value, or by its members, without
importing it: ``FRONT_ENDS`` names the function that opens a model, and ``register_front_end`` adds
one. What follows (cache, import, stages) asks the source, and never what kind of model it has.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, Protocol, TypeAlias

import weft.op  # noqa: F401 - models refer to operators by name
from weft.ir import (
    Constant,
    Expr,
    Function,
    IRModule,
    Tuple,
    infer_expr,
    infer_type,
    parse,
)
from weft.ir.module import input_names, output_names
from weft.ir.span import Span
from weft.ir.structural import program_hash
from weft.support.dataclass import dataclass
from weft.support.errors import InvalidModelError, OptionError
from weft.support.file_content import FileContent, FileStates, state_at
from weft.transform.normal_form.alpha import fresh_copy
from weft.transform.passes.extract_subgraph import extract_subgraph, tensors_of
from weft.transform.passes.input_shapes import with_input_shapes
from weft.transform.placement.annotate import with_placement
from weft.transform.precision.store_blocks import with_stored_blocks

if TYPE_CHECKING:
    import numpy as np
    import onnx
    import torch

    from weft.ir.python.from_python import PythonFunction
    from weft.ir.types import TensorType

# What ``weft.compile``, ``weft.grad`` and ``weft.autotune`` take as a model.
ModelLike: TypeAlias = "FileOrBytes | onnx.ModelProto | TorchModel | IRProgram | GraphLike"
FileOrBytes: TypeAlias = "str | os.PathLike[str] | bytes | bytearray | memoryview"
TorchModel: TypeAlias = "torch.nn.Module | torch.export.ExportedProgram"
IRProgram: TypeAlias = "IRModule | Function | PythonFunction"
Examples: TypeAlias = "Sequence[Any] | Mapping[str, Any] | None"
Shapes: TypeAlias = "Mapping[str, Sequence[object] | None]"
# The names and types of inputs or outputs.
Declared: TypeAlias = "Sequence[tuple[str, TensorType]]"


class ImportOptions(Protocol):
    """What decides about the import of a model: the options of its compilation.

    ``input_shapes`` are the shapes that the user gives, by the names of inputs and of tensors that
    become inputs (``None``: the tensor's own); ``outputs`` the tensors to compute (``None``: the
    outputs of the model); ``placement_names`` devices by the names of tensors.
    """

    @property
    def input_shapes(self) -> dict[str, tuple[object, ...] | None] | None: ...

    @property
    def outputs(self) -> tuple[str, ...] | None: ...

    @property
    def placement_names(self) -> dict[str, str]: ...


class GraphLike(Protocol):
    """A graph that becomes a program for the tensors that are asked for (``weft.graph.Graph``).

    One with variables also has ``initial_values()``: their first values by name.
    """

    def to_module(self, outputs: Sequence[str] | None = None, inputs: Shapes | None = None
                  ) -> IRModule:
        """The typed program for ``outputs``, with shapes of ``inputs`` and cuts at them.

        ``attrs["state"]`` maps outputs to the variables that they are the next values of.
        """


@dataclass(frozen=True, slots=True)
class SourceDigest:
    """The content of a model, for the keys of caches.

    Equal ``text`` means equal programs. ``operators`` are bytes that contain the names of all
    operators of the model. ``files`` are the files that the digest covers, the model first.
    ``identity`` names the model (empty for a model without a name), and ``parts`` are digests of
    its parts by labels, which tell what has changed.
    """

    text: str
    operators: bytes = b""
    files: FileStates = ()
    identity: str = ""
    parts: Mapping[str, str] = field(default_factory=dict)


class Source(ABC):
    """A model of one kind. ``file`` is its file, ``module`` its program if no import is needed.

    ``state`` maps outputs to the inputs that they are the next values of, and ``is_cut`` says that
    the inputs and outputs that the user asked for were applied when the source was opened.
    """

    kind = "model"  # the same bytes may be a program under one name and ONNX under another
    assumes_ranges = False  # whether importing gives ranges to sizes that the user did not declare

    def __init__(self, file: FileContent | None = None, module: IRModule | None = None) -> None:
        self.file = file
        self.module = module
        self.state: Mapping[str, str] = {}
        self.is_cut = False
        self._first = None if file is None else _times_of(file)

    @abstractmethod
    def import_whole(self, options: ImportOptions) -> IRModule:
        """The typed program of the whole model, with the names of its tensors.

        Shapes of inner tensors are left for ``import_module``. Raises what the front end raises.
        """

    def import_needed(self, options: ImportOptions,
                      outputs: Sequence[str] | None,  # noqa: ARG002 - others need both
                      given: Collection[str]) -> IRModule:  # noqa: ARG002
        """``import_whole``; of what ``outputs`` need alone, if the source tells that before.

        ``given`` are names of tensors with values of the user, which the program has, too.
        """
        return self.import_whole(options)

    @abstractmethod
    def digest(self) -> SourceDigest | str:
        """The digest of the model, or why it has none. A file is neither imported nor parsed."""

    def digest_later(self) -> Callable[[], SourceDigest | str]:
        """``digest``, as a function that waits for content that threads still hash.

        What it says of operators and files is that of now.
        """
        found = self.digest()
        return lambda: found

    def import_module(self, options: ImportOptions) -> IRModule:
        """The typed program, or the part of it that computes ``options.outputs``."""
        shapes = options.input_shapes or {}
        mod = with_placement(self.import_needed(options, options.outputs, shapes),
                             options.placement_names)
        if options.outputs is not None or not shapes.keys() <= set(input_names(mod)):
            return _part(mod, options.outputs, shapes)
        # The names would keep tensors alive that passes replace.
        return dataclasses.replace(mod, named={}) if mod.named else mod

    def import_part(self, options: ImportOptions, outputs: Sequence[str] | None, inputs: Shapes
                    ) -> IRModule:
        """The typed program of other tensors (``None``: the outputs), or from other tensors."""
        mod = with_placement(self.import_needed(options, outputs, inputs),
                             options.placement_names)
        return _part(mod, outputs, inputs)

    def signature(self, options: ImportOptions  # noqa: ARG002 - others need it
                  ) -> tuple[Declared, Declared] | None:
        """The declared inputs and outputs of a model that cannot be imported for dynamic sizes.

        ``None`` for a model whose sizes are all fixed, or known after the import only.
        """
        return None

    def initial_values(self) -> Mapping[str, np.ndarray]:
        """The first values of the variables of a graph, by name."""
        return {}

    def as_onnx(self) -> onnx.ModelProto | None:
        """A copy of an ONNX model; ``None`` for other models."""
        return None

    def held(self) -> AbstractContextManager[None]:
        """Keep the content of the file in memory in a block."""
        return contextlib.nullcontext() if self.file is None else self.file.held()

    def preload(self) -> None:  # noqa: B027 - most sources need nothing
        """Import what ``import_module`` needs, while the file is being read."""

    def check_unchanged(self) -> None:
        """Raise ``InvalidModelError`` if the file has changed since the source was opened."""
        if self.file is not None and _times_of(self.file) != self._first:
            raise InvalidModelError(f"{self.file} has changed since it was compiled",
                                    help="compile it again")


class ProgramSource(Source):
    """A program of the functional IR."""

    def __init__(self, module: IRModule) -> None:
        module = with_stored_blocks(module)
        super().__init__(module=module)
        self._program = module

    def import_whole(self, options: ImportOptions) -> IRModule:
        """See ``Source``."""
        return _shaped(infer_type(self._program), options)

    def digest(self) -> SourceDigest | str:
        """See ``Source``."""
        return SourceDigest(program_hash(self._program))


class GraphSource(ProgramSource):
    """A graph with variables: the program for the inputs and outputs that the user asks for."""

    def __init__(self, graph: GraphLike, options: ImportOptions) -> None:
        self._graph = graph
        mod = graph.to_module(options.outputs, options.input_shapes)
        values = self.initial_values() if "read_only" in mod.attrs else {}
        read_only = {name: values[name] for name in mod.attrs.get("read_only", ())}
        super().__init__(_with_constants(mod, read_only))
        self.state = self._program.attrs.get("state", {})
        self.is_cut = True

    def initial_values(self) -> Mapping[str, np.ndarray]:
        """See ``Source``."""
        values: Any = getattr(self._graph, "initial_values", dict)
        return values()  # type: ignore[no-any-return]


def _with_constants(mod: IRModule, values: Mapping[str, np.ndarray]) -> IRModule:
    """``mod`` with values for inputs of ``main``, by name."""
    if not values:
        return mod
    main = mod["main"]
    given: dict[Expr, Expr] = {
        p: Constant(values[p.name], span=Span("<graph>", node=p.name))
        for p in main.params if p.name in values}
    whole = fresh_copy(infer_expr(Tuple((main.body, *mod.named.values())), trust=True), given)
    assert isinstance(whole, Tuple)
    params = tuple(p for p in main.params if p not in given)
    attrs = {key: value for key, value in mod.attrs.items() if key != "read_only"}
    attrs["input_names"] = tuple(p.name for p in params)
    made = main.replace(params=params, body=whole.fields[0], checked_type=None)
    named = dict(zip(mod.named, whole.fields[1:], strict=True))
    after = dataclasses.replace(mod.with_function("main", made), attrs=attrs, named=named)
    return infer_type(after)


class TextSource(Source):
    """A file with the text of a program of the functional IR."""

    kind = "program"

    def __init__(self, file: FileContent) -> None:
        super().__init__(file)
        self._text = file

    def import_whole(self, options: ImportOptions) -> IRModule:
        """See ``Source``."""
        try:
            text = str(self._text.content().data, "utf-8").replace("\r\n", "\n")
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidModelError(f"{self.file} cannot be read", got=str(error)) from None
        return _shaped(infer_type(parse(text)), options)

    def digest(self) -> SourceDigest | str:
        """See ``Source``."""
        try:
            found = self._text.content()
        except (OSError, ValueError, MemoryError):
            return "the file cannot be read"  # the import reports the error
        path = Path(self._text).absolute()
        return SourceDigest(found.digest, bytes(found.data),
                            ((str(path), state_at(found.status, found.began)),),
                            str(path), {f"the file {path.name}": found.digest})


@dataclass(frozen=True, slots=True)
class FrontEnd:
    """A kind of models. ``opener`` is ``"module:function"``, called as in ``open_source``.

    A path is of this kind by its suffix (``"*"``: any other), a value by the full name of one of
    its ``classes``, or because it has all ``members``. The bytes of a file are by ``magic``, which
    is a position and what is there; a folder is by the file ``folder`` in it. Models with
    ``takes_examples`` are traced.
    """

    name: str
    opener: str
    suffixes: tuple[str, ...] = ()
    classes: tuple[str, ...] = ()
    members: tuple[str, ...] = ()
    takes_examples: bool = False
    magic: tuple[int, bytes] | None = None
    folder: str = ""

    def opens(self, model: object, names: Sequence[str]) -> bool:
        """Whether ``model``, whose class and bases have the full ``names``, is of this kind."""
        if self.magic is not None and isinstance(model, (bytes, bytearray, memoryview)):
            at, text = self.magic
            return bytes(model[at:at + len(text)]) == text
        return any(name in self.classes for name in names) \
            or (bool(self.members) and all(hasattr(model, member) for member in self.members))


ANY_FILE = "*"
LONGEST_NAME = 255  # of a file or folder, in characters, on all usual file systems
_BYTES = ("builtins.bytes", "builtins.bytearray", "builtins.memoryview")
_IR = ("weft.ir.module.IRModule", "weft.ir.expr.Function",
       "weft.ir.python.from_python.PythonFunction")
# Any function of Python is traced by JAX, unless its examples are tensors of weft or torch.
_FUNCTIONS = ("functools.partial", "builtins.function", "builtins.method")
_OF_C = ("builtins.builtin_function_or_method", "torch.jit.torch.jit.ScriptFunction")
_JAX = ("jaxlib._jax.PjitFunction", "jaxlib.xla_extension.PjitFunction",
        "jax._src.stages.Lowered", "jax._src.export._export.Exported",
        "jax._src.custom_derivatives.custom_jvp", "jax._src.custom_derivatives.custom_vjp",
        "jax.numpy.ufunc", "equinox._module._module.Module", "flax.nnx.module.Module",
        "flax.nnx.transforms.compilation.JitWrapped", *_FUNCTIONS)
_TORCH = ("torch.nn.modules.module.Module", "torch.export.exported_program.ExportedProgram")

FRONT_ENDS: dict[str, FrontEnd] = {one.name: one for one in (
    FrontEnd("ir", "weft.frontend.source:open_ir", (".ir", ".weft-ir", ".txt"), _IR),
    FrontEnd("torch", "weft.frontend.torch:open_torch", (".pt2",), _TORCH,
             takes_examples=True),
    FrontEnd("nn", "weft.eager.source:open_traced", (),
             ("weft.nn.modules.module.Module", "weft.eager.tracing.jit.Jitted",
              "weft.eager.tracing.train_step.TrainStep"), takes_examples=True),
    FrontEnd("graph", "weft.frontend.source:open_graph", members=("to_module",)),
    FrontEnd("graphdef", "weft.compat.graphdef.importer:open_graph_def",
             (".pb", ".pbtxt", ".graphdef"), members=("SerializeToString", "node"),
             folder="saved_model.pb"),
    FrontEnd("stablehlo", "weft.frontend.stablehlo.source:open_stablehlo",
             (".mlir", ".stablehlo", ".mlirbc"), _JAX, takes_examples=True),
    FrontEnd("tflite", "weft.frontend.tflite.source:open_tflite", (".tflite", ".lite"),
             magic=(4, b"TFL3")),
    FrontEnd("artifact", "weft.frontend.source:refuse_artifact", (".weft",)),
    FrontEnd("onnx", "weft.frontend.onnx.source:OnnxSource", (ANY_FILE,), _BYTES,
             ("SerializeToString", "graph")),
)}


def register_front_end(front_end: FrontEnd) -> None:
    """Let ``weft.compile`` take another kind of models, which is looked for before weft's own."""
    others = {name: one for name, one in FRONT_ENDS.items() if name != front_end.name}
    FRONT_ENDS.clear()
    FRONT_ENDS.update({front_end.name: front_end, **others})


def open_source(model: ModelLike, examples: Examples, options: ImportOptions) -> Source:
    """The source of a model. ``examples`` are example inputs of a model that is traced.

    Raises ``OptionError`` for examples of another model, ``InvalidModelError`` for a value that is
    not a model, and what the front end raises.
    """
    front_end = _front_end_of(model, examples)
    if examples is not None and not front_end.takes_examples:
        raise OptionError("example_inputs are for modules and functions that are traced",
                          got=type(model).__name__,
                          help='give shapes with inputs={"x": (1, 3, 224, 224)}')
    module, _, function = front_end.opener.partition(":")
    opened: Any = getattr(importlib.import_module(module), function)
    given = FileContent.of(model) if isinstance(model, (str, os.PathLike)) else model
    source: Source = opened(given, examples, options)
    return source


def _check_path(path: str) -> None:
    """Refuse the text of a program, which no file system takes as a name."""
    if "\n" in path or "\0" in path or max(map(len, Path(path).parts), default=0) > LONGEST_NAME:
        raise InvalidModelError(
            "the text is not the path of a model", got=repr(f"{path[:40]}..."),
            expected="the path of a file or folder",
            help="weft.parse(text) makes a model of the text of a program")


def _class_names(value: object) -> list[str]:
    return [f"{kind.__module__}.{kind.__qualname__}" for kind in type(value).__mro__]


# By the class of a tensor, the front end that traces functions of it.
_TENSORS = {"weft.eager.cell.Cell": "nn", "torch.Tensor": "torch"}


def _traced_by(examples: Examples) -> str | None:
    """The front end of the tensors that are examples, or the only one."""
    values = [*examples.values()] if isinstance(examples, Mapping) \
        else examples if isinstance(examples, Sequence) else [examples]
    names = (name for one in values for name in _class_names(one))
    return next((_TENSORS[name] for name in names if name in _TENSORS), None)


def _front_end_of(model: object, examples: Examples = None) -> FrontEnd:
    if isinstance(model, (str, os.PathLike)):
        _check_path(os.fspath(model))
        suffix = Path(model).suffix
        for one in FRONT_ENDS.values():
            if one.folder and os.path.isfile(Path(model) / one.folder):  # noqa: PTH113 - no OSError
                return one
        by_suffix = {s: one for one in reversed(FRONT_ENDS.values()) for s in one.suffixes}
        return by_suffix.get(suffix, by_suffix[ANY_FILE])
    names = _class_names(model)
    tracer = _traced_by(examples) if names[0] in (*_FUNCTIONS, *_OF_C) else None
    if tracer is not None:
        return FRONT_ENDS[tracer]
    for front_end in FRONT_ENDS.values():
        if front_end.opens(model, names):
            return front_end
    raise InvalidModelError(
        "not a model", got=type(model).__name__,
        expected="a path, the bytes of an ONNX model, onnx.ModelProto, a module of torch or "
                 "weft.nn, ExportedProgram, Graph, GraphDef, IRModule, Function, a @weft.function, "
                 "a function of weft.jit or of JAX",
        help=_way_in(model, names),
    )


# By the package of a model's class, how it becomes a model that weft takes.
_CONVERTED = {
    "sklearn": "skl2onnx.to_onnx(model, X[:1]) converts it to ONNX",
    "lightgbm": "onnxmltools.convert_lightgbm(model, ...) converts it to ONNX",
    "xgboost": "onnxmltools.convert_xgboost(model, ...) converts it to ONNX",
}


def _way_in(model: object, names: Sequence[str]) -> str | None:
    if isinstance(model, type):
        return f"make an instance of it: {model.__name__}(...)"
    packages = (name.partition(".")[0] for name in names)
    return next((_CONVERTED[name] for name in packages if name in _CONVERTED), None)


def open_ir(model: IRProgram | FileContent, *_: object) -> Source:
    """The source of a program, or of the file with its text."""
    if isinstance(model, FileContent):
        return TextSource(model)
    if isinstance(model, IRModule):
        return ProgramSource(model)
    from weft.ir.python.from_python import PythonFunction

    is_python = isinstance(model, PythonFunction)
    return ProgramSource(model.module if is_python else IRModule.from_expr(model))


def open_graph(graph: GraphLike, _: Examples, options: ImportOptions) -> Source:
    """The source of a graph."""
    return GraphSource(graph, options)


def refuse_artifact(path: FileContent, *_: object) -> NoReturn:
    """Raise ``InvalidModelError``: an artifact holds code, and no program."""
    raise InvalidModelError(f"{path} is a compiled artifact", expected="a model",
                            help=f"run it with weft.load({str(path)!r})")


def _part(mod: IRModule, outputs: Sequence[str] | None, inputs: Shapes) -> IRModule:
    known = input_names(mod)
    return extract_subgraph(mod, output_names(mod) if outputs is None else outputs,
                            {name: shape for name, shape in inputs.items() if name not in known})


def _shaped(mod: IRModule, options: ImportOptions) -> IRModule:
    """``mod`` with the shapes of ``options``; names of inner tensors are left for later."""
    shapes = options.input_shapes or {}
    inner = {name for name in shapes.keys() - set(input_names(mod)) if name in tensors_of(mod)}
    own = {name: shape for name, shape in shapes.items()
           if name not in inner and shape is not None}
    return with_input_shapes(mod, own) if own else mod


def _times_of(path: os.PathLike[str]) -> tuple[int, int] | None:
    try:
        status = Path(path).stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size
