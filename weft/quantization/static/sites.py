"""Which layers of a program run in integers, and which tensors are quantised for them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from weft.ir import Call, Constant, Expr, Function, Op, OpPattern, TensorType, Tuple, post_order
from weft.ir.analysis import known_type
from weft.ir.module import IRModule
from weft.ir.passes import PassContext, run_pass
from weft.ir.visitor import children
from weft.quantization.names import layer_name
from weft.quantization.options import QuantizationOptions
from weft.quantization.report import LayerReport
from weft.support.dataclass import dataclass
from weft.topi.layout import Layout
from weft.transform import (
    CanonicalizeOps,
    DeadCodeElimination,
    EliminateCommonSubexpr,
    FoldConstant,
    FoldScaleAxis,
    SimplifyExpr,
    SimplifyInference,
    ToGraphNormalForm,
)
from weft.transform.analysis.graph import enters, op_name, traits_of

# Batch norm becomes part of the weights ahead of quantisation, and layers have one spelling each.
_SIMPLIFICATIONS = (
    ToGraphNormalForm(), SimplifyInference(), CanonicalizeOps(), EliminateCommonSubexpr(),
    DeadCodeElimination(), SimplifyExpr(), FoldConstant(), FoldScaleAxis(), FoldConstant(),
    SimplifyExpr(),
)
_FUSED = (OpPattern.ELEMWISE, OpPattern.BROADCAST)
# Moves every element of its argument, so the range of the one is the range of the other.
_MOVES = ("transpose",)


def simplified(module: IRModule) -> IRModule:
    """The program that layers are found in."""
    for pass_ in _SIMPLIFICATIONS:
        module = run_pass(pass_, module, PassContext())
    return module


@dataclass(frozen=True, slots=True)
class Site:
    """A matmul or convolution that has an integer form.

    ``weight`` is its constant operand, whose output channels are ``axis``; without one both
    operands are activations.
    """

    call: Call
    name: str
    weight: Constant | None
    axis: int

    @property
    def activations(self) -> tuple[Expr, ...]:
        """The operands that are quantised at run time."""
        return tuple(a for a in self.call.args if a is not self.weight)


def sites_of(function: Function, options: QuantizationOptions) -> list[Site]:
    """All sites in the order of the program, but for those that ``keep`` names."""
    return [site for node in post_order(function, enter=enters)
            if (site := _site(node)) is not None and not options.keeps(site.name)]


def _site(node: Expr) -> Site | None:
    if not (isinstance(node, Call) and isinstance(node.op, Op) and node.op.traits.is_contraction
            and node.op.hook("integer_form") is not None):
        return None
    types = [known_type(x) for x in (*node.args, node)]
    if not all(isinstance(t, TensorType) and t.dtype.name == "float32" for t in types):
        return None
    data, weight = node.args
    attrs: Any = node.attrs
    if isinstance(data, Constant) or getattr(attrs, "groups", 1) > 1:
        return None
    if not isinstance(weight, Constant):
        return Site(node, _name(node), None, -1)
    if not np.isfinite(weight.data).all() or not weight.data.size:
        return None
    return Site(node, layer_name(node, weight), weight, _output_axis(node, weight.data.ndim))


def _name(call: Call) -> str:
    node = None if call.span is None else call.span.node
    return op_name(call) if not node else node.rsplit(" (", 1)[0]


def _output_axis(call: Call, ndim: int) -> int:
    """The axis of the weight along which scales may vary; -1 for one scale."""
    attrs: Any = call.attrs
    for layout, letter in (("kernel_layout", "O"), ("weight_layout", "N")):
        if hasattr(attrs, layout):
            return Layout.parse(getattr(attrs, layout)).index_of(letter)
    if op_name(call) == "nn.matmul" and ndim == 2:
        return 0 if attrs.transpose_b else 1
    return -1


def report_of(site: Site, error: float, bound: float | None) -> LayerReport:
    """What became of a site."""
    is_kept = bound is not None and error > bound
    weight = site.weight
    size = 0 if weight is None else weight.data.nbytes
    return LayerReport(
        layer=site.name, operator=op_name(site.call), before="float32",
        shape=() if weight is None else weight.data.shape,
        after="float32" if is_kept else "int8", error=error, bytes_before=size,
        reason=f"error above {bound:g}" if is_kept else "",
        bytes_after=size if is_kept else size // 4)


def anchor_of(tensor: Expr) -> Expr:
    """The tensor whose quantised form gives that of ``tensor``, which moves its elements."""
    while isinstance(tensor, Call) and _keeps_range(tensor):
        tensor = tensor.args[0]
    return tensor


def path_from(anchor: Expr, tensor: Expr) -> list[Call]:
    """The calls that make ``tensor`` of ``anchor``, the last first."""
    found = []
    while tensor is not anchor and isinstance(tensor, Call):
        found.append(tensor)
        tensor = tensor.args[0]
    return found


def _keeps_range(call: Call) -> bool:
    traits = traits_of(call)
    return (traits.keeps_scale or op_name(call) in _MOVES) and len(call.args) == 1 and (
        traits.is_reshape or op_name(call) in _MOVES or "pool" in op_name(call))


def anchors_of(sites: Sequence[Site]) -> dict[Expr, None]:
    """The tensors that get a scale, each once, in the order of the program.

    A concatenation is quantised part by part, so that no part is stored in float32.
    """
    found = {anchor_of(tensor): None for site in sites for tensor in site.activations}
    return found | {part: None for part, _ in joined_parts(found)}


def joined_parts(anchors: Iterable[Expr]) -> list[tuple[Expr, Expr]]:
    """The parts of concatenations, which share the scale of the whole, with the whole."""
    return [(anchor_of(part), anchor) for anchor in anchors
            if isinstance(anchor, Call) and op_name(anchor) == "concatenate"
            for part in operands_of(anchor)]


def quantised_readers(function: Function, anchors: Mapping[Expr, object]) -> set[Expr]:
    """Elementwise calls, pools and concatenations whose result is quantised too.

    They read the quantised form of their operands, which need not be stored in float32 then.
    """
    nodes = list(post_order(function, enter=enters))
    users = _users(nodes)
    found: set[Expr] = set()
    for node in reversed(nodes):
        readers = users.get(node, ())
        is_read_quantised = node in anchors or (
            len(readers) == 1 and not found.isdisjoint(readers))
        if is_read_quantised and _is_fused(node):
            found.add(node)
    return found


def _is_fused(node: Expr) -> bool:
    return isinstance(node, Call) and isinstance(node.op, Op) and (
        node.op.pattern in _FUSED or traits_of(node).keeps_scale
        or op_name(node) == "concatenate")


def _users(nodes: Sequence[Expr]) -> dict[Expr, set[Expr]]:
    """The readers of each node; tuples of arguments count as the call that takes them."""
    users: dict[Expr, set[Expr]] = {}
    calls = [node for node in nodes if isinstance(node, Call)]
    arguments = {a for call in calls for a in call.args if isinstance(a, Tuple)}
    for node in nodes:
        parts = operands_of(node) if isinstance(node, Call) else (
            () if node in arguments or not enters(node) else children(node))
        for part in parts:
            users.setdefault(part, set()).add(node)
    return users


def operands_of(call: Call) -> list[Expr]:
    """The arguments; those of a tuple one by one."""
    return [part for argument in call.args
            for part in (argument.fields if isinstance(argument, Tuple) else (argument,))]
