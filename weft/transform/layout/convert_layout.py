"""Layouts that the user asks for: NHWC instead of NCHW, and the other way round."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from weft import ir, op
from weft.op.permuted import Permutation, Permuted, is_identity, permutation, rule_of
from weft.support.dataclass import dataclass
from weft.support.errors import OptionError
from weft.topi.layout import Layout
from weft.transform.analysis import graph


@ir.register_pass
@dataclass(frozen=True)
class ConvertLayout(ir.FunctionPass):
    """Run operators in the layouts that ``layouts`` asks for.

    An entry is ``operator:data`` or ``operator:data:kernel``, such as ``nn.conv2d:NHWC:HWIO``.
    Values keep the new order of axes as long as the operators after them can run in it (elementwise
    and broadcasting ones, pools, reductions, concatenation, ...), so that transposes remain only at
    the edges. Operators named in ``skip`` keep their layouts.

    With ``layouts=("nn.conv2d:NHWC:HWIO",)``:

    def @main(%x: Tensor[(1, 2, 4, 4), float32], %w: Tensor[(3, 2, 1, 1), float32]) {
      nn.relu(nn.conv2d(%x, %w))
    }
    =>
    def @main(%x: Tensor[(1, 2, 4, 4), float32], %w: Tensor[(3, 2, 1, 1), float32]) {
      %0 = transpose(%x, axes=(0, 2, 3, 1));
      %1 = transpose(%w, axes=(2, 3, 1, 0));
      %2 = nn.conv2d(%0, %1, data_layout="NHWC", kernel_layout="HWIO", out_layout="NHWC");
      transpose(nn.relu(%2), axes=(0, 3, 1, 2))
    }
    """

    name: ClassVar[str] = "convert_layout"
    opt_level: ClassVar[int] = 3
    layouts: tuple[str, ...] = ()
    skip: tuple[str, ...] = ()

    def run(self, fn: ir.Function, ctx: ir.PassContext) -> ir.Function:  # noqa: ARG002
        wanted = dict(_parsed(entry) for entry in self.layouts)
        for name in self.skip:
            wanted.pop(name, None)
        return _Conversion(wanted, frozenset(self.skip)).run(fn) if wanted else fn


_Wanted = tuple[str, str | None]


def _parsed(entry: str) -> tuple[str, _Wanted]:
    name, *layouts = entry.split(":")
    names = [Layout.parse(text) for text in layouts]
    if len(names) not in (1, 2) or not all(layout.is_primal for layout in names):
        raise OptionError("malformed layout option", expected="operator:NHWC[:HWIO]",
                          got=entry)
    return name, (names[0].name, names[1].name if len(names) == 2 else None)


class _Conversion:
    """One rewriting; ``values`` maps each node to the rewritten one and the order of its axes."""

    def __init__(self, wanted: Mapping[str, _Wanted], skip: frozenset[str]) -> None:
        self.wanted = wanted
        self.skip = skip
        self.values: dict[ir.Expr, Permuted] = {}
        self.transposed: dict[tuple[ir.Expr, Permutation], ir.Expr] = {}

    def run(self, fn: ir.Function) -> ir.Function:
        for node in ir.post_order(fn, enter=graph.enters):
            self.values[node] = self._visit(node)
        return graph.as_function(self.original(fn))

    def _visit(self, node: ir.Expr) -> Permuted:
        name = graph.op_name(node)
        if isinstance(node, ir.Call) and name in self.wanted:
            anchored = self._anchor(node, *self.wanted[name])
            if anchored is not None:
                return anchored
        moved = None
        if isinstance(node, ir.Call) and isinstance(node.op, ir.Op) and name not in self.skip:
            rule = rule_of(node.op)
            moved = rule(node, self.values, self.ordered) if rule is not None else None
        if moved is not None:
            return Permuted(ir.infer_expr(moved.expr, trust=True), moved.order)
        return Permuted(self._rebuilt(node))

    def _rebuilt(self, node: ir.Expr) -> ir.Expr:
        return graph.over_new_children(node, self.original)

    def original(self, node: ir.Expr) -> ir.Expr:
        """The rewritten node with its axes in their original order."""
        value = self.values[node]
        return value.expr if value.order is None else self.ordered(node, None)

    def ordered(self, original: ir.Expr, order: Permutation | None) -> ir.Expr:
        """The rewritten node with its axes in ``order``; ``None`` is the original order."""
        value = self.values[original]
        ndim = getattr(graph.known_type(original), "ndim", 0)
        have = value.order or tuple(range(ndim))
        want = order or tuple(range(ndim))
        axes = tuple(have.index(axis) for axis in want)
        if is_identity(axes):
            return value.expr
        key = value.expr, axes
        if key not in self.transposed:
            moved = op.transpose(value.expr, axes=axes, span=value.expr.span)
            self.transposed[key] = ir.infer_expr(moved, trust=True)
        return self.transposed[key]

    def _anchor(self, call: ir.Call, data: str, kernel: str | None) -> Permuted | None:
        attrs: Any = call.attrs
        changes: dict[str, Any] = {}
        args = list(call.args)
        if hasattr(attrs, "data_layout"):
            now, out = attrs.data_layout, attrs.out_layout or attrs.data_layout
            changes.update(data_layout=data, out_layout=data)
            taps = kernel or attrs.kernel_layout
            if not _are_permuted((now, data), (out, data), (attrs.kernel_layout, taps)):
                return None
            changes["kernel_layout"] = taps
            args[1] = self.ordered(call.args[1], permutation(attrs.kernel_layout, taps))
        elif hasattr(attrs, "layout"):
            now = out = attrs.layout
            changes["layout"] = data
            if not _are_permuted((now, data)):
                return None
        else:
            raise OptionError(f"{graph.op_name(call)} takes no layout",
                              help="name operators such as nn.conv2d or nn.max_pool2d")
        args[0] = self.ordered(call.args[0], permutation(now, data))
        moved = call.replace(args=tuple(args), attrs=attrs.replace(**changes))
        order = permutation(out, data)
        return Permuted(ir.infer_expr(moved, trust=True), None if is_identity(order) else order)


def _are_permuted(*pairs: tuple[str, str]) -> bool:
    """Whether each pair of layouts has the same axes, none of them split."""
    return all(Layout.parse(a).is_primal and sorted(a) == sorted(b) for a, b in pairs)
