"""Conversion of graphs of weft's operators to graphs of TensorFlow's operators, for other tools."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from weft.compat.graph.graph import Graph
from weft.compat.graph.node import Node, Tensor
from weft.compat.graphdef.definitions import NodeDef
from weft.compat.graphdef.ops.math import BINARY, UNARY
from weft.compat.graphdef.ops.reduce import REDUCTIONS
from weft.compat.graphdef.registry import CONVERTERS
from weft.frontend.common.coverage import unsupported_operators
from weft.ir import DType, get_op
from weft.support.dataclass import dataclass
from weft.support.errors import UnsupportedModelError

Rule: TypeAlias = "Callable[[_Step], Sequence[Tensor]]"

_DIRECT = {op.name: name for name, op in UNARY.items()} \
    | {op.name: name for name, op in BINARY.items() if op is not None} \
    | {"add": "AddV2", "nn.relu": "Relu", "round": "Round", "where": "SelectV2",
       "equal": "Equal", "not_equal": "NotEqual", "annotation.stop_gradient": "StopGradient",
       "divide": "RealDiv", "copy": "Identity"}
_REDUCTIONS = {op.name: name for name, op in REDUCTIONS.items()}


def to_tensorflow(graph: Graph) -> Graph:
    """A graph of TensorFlow's operators with the same names and control edges.

    Operands that are attributes in weft (axes, shapes) become constants named ``node/axis``. Raises
    ``UnsupportedModelError`` with all operators that have no counterpart, and for attributes of
    calls that TensorFlow's operators lack.
    """
    kept = {n.name for n in graph.op_nodes
            if CONVERTERS.find(n.op) is not None or n.op in graph.library.functions
            or n.op == "Placeholder"}
    missing: dict[str, list[str]] = {}
    for node in graph.op_nodes:
        if node.name not in kept and node.op not in _RULES and node.op not in _DIRECT:
            missing.setdefault(f"operator {node.op}", []).append(node.name)
    if missing:
        raise unsupported_operators("the graph uses operators without a counterpart in TensorFlow",
                                    missing, graph.name)
    made = Graph(graph.library, name=graph.name)
    made.versions = graph.versions
    results: dict[Tensor, Tensor] = {}
    last: dict[Node, Node] = {}
    for node in _ordered(graph):
        step = _Step(made, node, tuple(results[t] for t in node.inputs))
        with made.control_dependencies([last[n] for n in node.control_inputs]):
            outputs = step.copied() if node.name in kept else _rule(node)(step)
        results.update(zip(node.outputs, outputs, strict=False))
        last[node] = outputs[0].node if outputs else made.op_nodes[-1]
    return made


def _ordered(graph: Graph) -> list[Node]:
    """The nodes in an order of execution; weft does not build loops of frames."""
    from_names = {n.name: n for n in graph.op_nodes}
    waits = {n: {e.src for e in n.in_edges.values() if e.src.is_op} for n in graph.op_nodes}
    order: dict[Node, None] = {}
    pending = list(from_names.values())[::-1]
    while pending:
        node = pending[-1]
        rest = [n for n in waits[node] if n not in order]
        if node in order or not rest:
            order.setdefault(node)
            pending.pop()
        else:
            pending.extend(sorted(rest, key=lambda n: -n.id))
    return list(order)


def _rule(node: Node) -> Rule:
    direct = _DIRECT.get(node.op)
    return _RULES[node.op] if direct is None else lambda step: step.final(direct, step.inputs)


@dataclass(frozen=True, slots=True)
class _Step:
    """One node to convert: ``inputs`` are tensors of the new graph."""

    made: Graph
    node: Node
    inputs: tuple[Tensor, ...]

    @property
    def attrs(self) -> Mapping[str, Any]:
        """All attributes, including those that equal their default."""
        given = {n: v for n, v in self.node.attrs.items() if not n.startswith("_")}
        return dict(get_op(self.node.op).attrs_type.make(given).items())

    @property
    def rank(self) -> int:
        return len(self.inputs[0].shape)

    def refuse(self, what: str) -> UnsupportedModelError:
        return UnsupportedModelError(f"{self.node.op}: TensorFlow has no counterpart of {what}",
                                     where=self.node.span or self.node.name)

    def need(self, *, holds: bool, what: str) -> None:
        if not holds:
            raise self.refuse(what)

    def copied(self) -> Sequence[Tensor]:
        proto = self.node.definition()
        return self.made.create_exactly(proto, self.inputs).outputs

    def final(self, op: str, inputs: Sequence[Tensor], **attrs: Any) -> Sequence[Tensor]:
        """The node with the name of the original."""
        proto = NodeDef(self.node.name, op, (), self.node.device, attrs, self.node.span)
        return self.made.create_exactly(proto, inputs).outputs

    def before(self, suffix: str, op: str, inputs: Sequence[Tensor], **attrs: Any) -> Tensor:
        """A node that precedes it, named ``node/suffix``."""
        name = self.made.new_name(f"{self.node.name}/{suffix}")
        proto = NodeDef(name, op, (), self.node.device, attrs, self.node.span)
        return self.made.create_exactly(proto, inputs).outputs[0]

    def const(self, suffix: str, value: Any, dtype: DType | None = None) -> Tensor:
        data = np.asarray(value, np.int32 if dtype is None else dtype.numpy)
        return self.before(suffix, "Const", (), dtype=DType.of(data.dtype), value=data)

    def axes(self) -> tuple[int, ...]:
        axis = self.attrs["axis"]
        found = range(self.rank) if axis is None else (axis,) if isinstance(axis, int) else axis
        chosen = {a % self.rank for a in found}
        if self.attrs.get("exclude"):
            chosen = set(range(self.rank)) - chosen
        return tuple(sorted(chosen))


def _reduce(s: _Step) -> Sequence[Tensor]:
    axes = s.const("axis", np.array(s.axes(), np.int32))
    return s.final(_REDUCTIONS[s.node.op], (s.inputs[0], axes), keep_dims=s.attrs["keepdims"])


def _arg_reduce(s: _Step) -> Sequence[Tensor]:
    axes = s.axes()
    s.need(holds=len(axes) == 1 and not s.attrs["keepdims"] and not s.attrs["select_last_index"],
           what="several axes, kept axes, or the last index")
    return s.final("ArgMax" if s.node.op == "argmax" else "ArgMin",
                   (s.inputs[0], s.const("axis", axes[0])), output_type=s.attrs["dtype"])


def _matmul(s: _Step) -> Sequence[Tensor]:
    a, b = s.inputs
    if len(a.shape) == len(b.shape) == 2:
        return s.final("MatMul", (a, b), transpose_a=s.attrs["transpose_a"],
                       transpose_b=s.attrs["transpose_b"])
    return s.final("BatchMatMulV2", (a, b), adj_x=s.attrs["transpose_a"],
                   adj_y=s.attrs["transpose_b"])


def _dense(s: _Step) -> Sequence[Tensor]:
    s.need(holds=s.rank == 2, what="a matrix product of more axes")
    return s.final("MatMul", s.inputs, transpose_b=s.attrs["weight_layout"] == "NK")


def _softmax(s: _Step) -> Sequence[Tensor]:
    s.need(holds=s.attrs["axis"] % s.rank == s.rank - 1, what="another axis than the last")
    return s.final("Softmax" if s.node.op == "nn.softmax" else "LogSoftmax", s.inputs)


def _bias_add(s: _Step) -> Sequence[Tensor]:
    axis = s.attrs["axis"] % s.rank
    s.need(holds=axis in (1, s.rank - 1), what="another axis than 1 and the last")
    return s.final("BiasAdd", s.inputs, data_format="NHWC" if axis == s.rank - 1 else "NCHW")


def _clip(s: _Step) -> Sequence[Tensor]:
    low, high = (s.const(n, s.attrs[n], s.inputs[0].dtype) for n in ("a_min", "a_max"))
    return s.final("ClipByValue", (s.inputs[0], low, high))


def _reshape(s: _Step) -> Sequence[Tensor]:
    shape = s.node.output_types[0].shape
    unknown = [i for i, n in enumerate(shape) if not isinstance(n, int)]
    s.need(holds=len(unknown) < 2, what="several unknown sizes")
    sizes = [n if isinstance(n, int) else -1 for n in shape]
    return s.final("Reshape", (s.inputs[0], s.const("shape", np.array(sizes, np.int32))))


def _transpose(s: _Step) -> Sequence[Tensor]:
    axes = s.attrs["axes"]
    order = tuple(range(s.rank))[::-1] if axes is None else tuple(a % s.rank for a in axes)
    return s.final("Transpose", (s.inputs[0], s.const("perm", np.array(order, np.int32))))


def _join(s: _Step) -> Sequence[Tensor]:
    axis = s.attrs["axis"]
    if s.node.op == "stack":
        return s.final("Pack", s.inputs, axis=axis, N=len(s.inputs))
    return s.final("ConcatV2", (*s.inputs, s.const("axis", axis)), N=len(s.inputs))


def _split(s: _Step) -> Sequence[Tensor]:
    parts, axis = s.attrs["indices_or_sections"], s.attrs["axis"]
    if isinstance(parts, int):
        return s.final("Split", (s.const("axis", axis), s.inputs[0]), num_split=parts)
    sizes = [t.shape[axis] for t in s.node.output_types]
    s.need(holds=all(isinstance(n, int) for n in sizes), what="parts of unknown size")
    return s.final("SplitV", (s.inputs[0], s.const("sizes", np.array(sizes, np.int32)),
                              s.const("axis", axis)), num_split=len(sizes))


def _strided_slice(s: _Step) -> Sequence[Tensor]:
    given = s.attrs["axes"]
    axes = tuple(range(len(s.attrs["begin"]))) if given is None else given
    rows = {a % s.rank: i for i, a in enumerate(axes)}
    strides = s.attrs["strides"] or (1,) * len(axes)
    limit = 2**31 - 1
    begin, end, step, free = [], [], [], 0
    for axis in range(s.rank):
        i = rows.get(axis)
        begin.append(0 if i is None else max(-limit, min(limit, s.attrs["begin"][i])))
        end.append(0 if i is None else max(-limit, min(limit, s.attrs["end"][i])))
        step.append(1 if i is None else strides[i])
        free |= (1 << axis) if i is None else 0
    parts = [s.const(n, np.array(v, np.int32)) for n, v in
             (("begin", begin), ("end", end), ("strides", step))]
    return s.final("StridedSlice", (s.inputs[0], *parts), begin_mask=free, end_mask=free)


def _take(s: _Step) -> Sequence[Tensor]:
    s.need(holds=s.attrs["axis"] is not None, what="a gather from the flat tensor")
    return s.final("GatherV2", (*s.inputs, s.const("axis", s.attrs["axis"])))


def _pad(s: _Step) -> Sequence[Tensor]:
    s.need(holds=s.attrs["pad_mode"] == "constant", what=f"pad_mode {s.attrs['pad_mode']!r}")
    width = s.const("paddings", np.array(s.attrs["pad_width"], np.int32))
    return s.final("PadV2", (s.inputs[0], width, s.inputs[1]))


def _image(s: _Step, layout: str) -> tuple[str, Callable[[Sequence[int], int], tuple[int, ...]]]:
    s.need(holds=layout in ("NCHW", "NHWC"), what=f"layout {layout}")

    def spread(values: Sequence[int], rest: int) -> tuple[int, ...]:
        by_axis: dict[str, int] = dict(zip("HW", values, strict=True))
        return tuple(by_axis.get(c, rest) for c in layout)

    return layout, spread


def _pads(s: _Step) -> tuple[tuple[int, int], tuple[int, int]]:
    """Before and after, of both axes."""
    padding = s.attrs["padding"]
    before, after = (padding[:2], padding[2:]) if len(padding) == 4 else (padding, padding)
    return (before[0], before[1]), (after[0], after[1])


def _explicit(s: _Step, layout: str) -> dict[str, Any]:
    """The attributes of padding by given numbers."""
    before, after = _pads(s)
    if not any((*before, *after)):
        return {"padding": "VALID"}
    pairs: dict[str, tuple[int, int]] = {"H": (before[0], after[0]), "W": (before[1], after[1])}
    return {"padding": "EXPLICIT",
            "explicit_paddings": tuple(n for c in layout for n in pairs.get(c, (0, 0)))}


def _conv2d(s: _Step) -> Sequence[Tensor]:
    layout, spread = _image(s, s.attrs["data_layout"])
    kernel, form = s.inputs[1], s.attrs["kernel_layout"]
    s.need(holds=sorted(form) == sorted("HWIO"), what=f"kernel layout {form}")
    if form != "HWIO":
        order = s.const("perm", np.array([form.index(c) for c in "HWIO"], np.int32))
        kernel = s.before("kernel", "Transpose", (kernel, order))
    return s.final("Conv2D", (s.inputs[0], kernel), strides=spread(s.attrs["strides"], 1),
                   dilations=spread(s.attrs["dilation"], 1), data_format=layout,
                   **_explicit(s, layout))


def _pool(s: _Step) -> Sequence[Tensor]:
    layout, spread = _image(s, s.attrs["layout"])
    is_max = s.node.op == "nn.max_pool2d"
    padded = any(n for pair in _pads(s) for n in pair)
    s.need(holds=tuple(s.attrs["dilation"]) == (1, 1) and not s.attrs["ceil_mode"]
           and (is_max or not padded), what="dilated, rounded-up or padded average windows")
    return s.final("MaxPool" if is_max else "AvgPool", s.inputs,
                   ksize=spread(s.attrs["pool_size"], 1), strides=spread(s.attrs["strides"], 1),
                   data_format=layout, **_explicit(s, layout))


def _batch_norm(s: _Step) -> Sequence[Tensor]:
    axis = s.attrs["axis"] % s.rank
    s.need(holds=s.rank == 4 and axis in (1, 3) and s.attrs["center"] and s.attrs["scale"],
           what="batch norm without 4 axes, scale and centre")
    return s.final("FusedBatchNormV3", s.inputs, epsilon=s.attrs["epsilon"], is_training=False,
                   data_format="NHWC" if axis == 3 else "NCHW")[:3]


def _with_sizes(op: str, attr: str, suffix: str) -> Rule:
    """A rule for an operator whose second operand is an attribute of numbers."""
    def rule(s: _Step) -> Sequence[Tensor]:
        values = s.attrs[attr]
        s.need(holds=all(isinstance(n, int) for n in values), what="unknown sizes")
        return s.final(op, (s.inputs[0], s.const(suffix, np.array(values, np.int32))))

    return rule


_RULES: dict[str, Rule] = {
    **dict.fromkeys(_REDUCTIONS, _reduce), "argmax": _arg_reduce, "argmin": _arg_reduce,
    "nn.matmul": _matmul, "nn.dense": _dense, "nn.softmax": _softmax, "nn.log_softmax": _softmax,
    "nn.bias_add": _bias_add, "clip": _clip, "reshape": _reshape, "transpose": _transpose,
    "expand_dims": _reshape, "squeeze": _reshape, "nn.batch_flatten": _reshape,
    "concatenate": _join, "stack": _join, "split": _split, "strided_slice": _strided_slice,
    "take": _take, "nn.pad": _pad, "nn.conv2d": _conv2d, "nn.max_pool2d": _pool,
    "nn.avg_pool2d": _pool, "nn.batch_norm": _batch_norm,
    "tile": _with_sizes("Tile", "reps", "multiples"),
    "broadcast_to": _with_sizes("BroadcastTo", "shape", "shape"),
    "cast": lambda s: s.final("Cast", s.inputs, SrcT=s.inputs[0].dtype, DstT=s.attrs["dtype"]),
    "nn.leaky_relu": lambda s: s.final("LeakyRelu", s.inputs, alpha=s.attrs["alpha"]),
}
