"""GraphDef as plain Python values: nodes, versions and a library of functions.

These records are what TensorFlow's messages of the same names say
(``tensorflow/core/framework/{node_def,graph,function,versions}.proto``), without protobuf. The
operator of a node is one of TensorFlow (``MatMul``), one of weft (``nn.matmul``), or a function of
the library.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any, TypeAlias

from weft.ir import DType, Span
from weft.support.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class ShapeAttr:
    """The value of an attribute of type ``shape``; ``None`` for an unknown size or rank."""

    dims: tuple[int | None, ...] | None

    def __str__(self) -> str:
        if self.dims is None:
            return "<unknown>"
        return f"[{', '.join('?' if d is None else str(d) for d in self.dims)}]"


@dataclass(frozen=True, slots=True)
class ForeignType:
    """A type of TensorFlow that weft has no counterpart for, by its ``DataType`` name."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class FunctionRef:
    """The value of an attribute of type ``func``: a function with values for its attributes."""

    name: str
    attrs: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AttrPlaceholder:
    """An attribute of a node in a function body that takes the value of the function's own."""

    name: str


TypeAttr: TypeAlias = "DType | ForeignType"


@dataclass(frozen=True, slots=True)
class NodeDef:
    """A node: ``inputs`` are ``a``, ``a:1`` or, last, ``^a`` for a control edge.

    ``attrs`` maps names to ``bool``, ``int``, ``float``, ``str``, ``bytes``, a type, ``ShapeAttr``,
    an array, ``FunctionRef``, ``AttrPlaceholder``, or a tuple of such values. ``span`` is where the
    node comes from.
    """

    name: str
    op: str
    inputs: tuple[str, ...] = ()
    device: str = ""
    attrs: Mapping[str, Any] = field(default_factory=dict)
    span: Span | None = field(default=None, compare=False, repr=False)

    @property
    def data_inputs(self) -> tuple[str, ...]:
        return tuple(i for i in self.inputs if not i.startswith("^"))

    @property
    def control_inputs(self) -> tuple[str, ...]:
        """Names of the nodes that run before this one."""
        return tuple(i[1:] for i in self.inputs if i.startswith("^"))

    @property
    def label(self) -> str:
        return f"{self.name} ({self.op})"


@dataclass(frozen=True, slots=True)
class Versions:
    """Who wrote a graph (``producer``), and who may read it (``VersionDef``)."""

    producer: int = 0
    min_consumer: int = 0
    bad_consumers: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class ArgDef:
    """An argument or result of a function: a fixed type, or the attribute that gives it.

    ``shape`` is an extension for bodies that need it; ``None`` takes any.
    """

    name: str
    type: TypeAttr | None = None
    type_attr: str = ""
    number_attr: str = ""
    type_list_attr: str = ""


@dataclass(frozen=True, slots=True)
class AttrDef:
    """An attribute parameter of a function (``OpDef.AttrDef``)."""

    name: str
    type: str
    default: Any = None


@dataclass(frozen=True, slots=True)
class FunctionDef:
    """A function: its signature, its body, and which tensors of the body it returns.

    Inputs of nodes in the body are ``argument`` or ``node:output_name:index``. ``attrs`` are facts
    such as ``_noinline``; ``control_returns`` are nodes that run although no result needs them.
    """

    name: str
    inputs: tuple[ArgDef, ...]
    outputs: tuple[ArgDef, ...]
    nodes: tuple[NodeDef, ...] = ()
    returns: Mapping[str, str] = field(default_factory=dict)
    control_returns: Mapping[str, str] = field(default_factory=dict)
    attr_defs: tuple[AttrDef, ...] = ()
    attrs: Mapping[str, Any] = field(default_factory=dict)
    is_stateful: bool = False

    @property
    def noinline(self) -> bool:
        return bool(self.attrs.get("_noinline"))


@dataclass(frozen=True, slots=True)
class Library:
    """Functions by name, and the gradient function of a function (``GradientDef``)."""

    functions: Mapping[str, FunctionDef] = field(default_factory=dict)
    gradients: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class GraphDef:
    """A graph: nodes in any order, and the functions that they call. ``source`` is for errors."""

    nodes: tuple[NodeDef, ...] = ()
    versions: Versions = Versions()
    library: Library = Library()
    source: str = "<graph>"


def attribute_text(value: Any) -> str:
    """An attribute value for an error message."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
