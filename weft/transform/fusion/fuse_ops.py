"""Operator fusion: groups of calls become primitive functions, one kernel each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from weft import ir
from weft.codegen.backend import cost_model_of
from weft.codegen.cost_model import NEUTRAL
from weft.support.dataclass import dataclass
from weft.transform.analysis.dataflow_graph import DataflowGraph, wired_calls
from weft.transform.analysis.graph import (
    as_function,
    enters,
    is_reshape,
    op_name,
    over_new_children,
    shape_of,
    type_of,
)
from weft.transform.fusion.fusion_groups import FusionGroups


@ir.register_pass
@dataclass(frozen=True)
class FuseOps(ir.FunctionPass):
    """Group operator calls into functions marked ``primitive``, each of which becomes a kernel.

    ``max_depth`` bounds the calls of a group. Reshapes stay outside at the beginning and end of a
    group, and everywhere if they regroup elements, because their index arithmetic would cost more
    than a store and a load. Small constants move into the kernel; other inputs become its
    parameters, so that equal kernels are equal functions.

    def @main(%x: Tensor[(4,), float32]) { exp(negative(%x)) }
    =>
    def @main(%x: Tensor[(4,), float32]) {
      %1 = fn (%p0: Tensor[(4,), float32], primitive=True) -> Tensor[(4,), float32] {
        exp(negative(%p0))
      };
      %1(%x)
    }
    """

    name: ClassVar[str] = "fuse_ops"
    opt_level: ClassVar[int] = 0
    provides: ClassVar[tuple[str, ...]] = ("kernels",)
    max_depth: int = 64
    reduce_epilogue: bool = False

    def run(self, fn: ir.Function, ctx: ir.PassContext) -> ir.Function:
        calls = [e for e in ir.post_order(fn, enter=enters) if isinstance(e, ir.Call)]
        regrouping = frozenset(filter(_regroups_elements, calls))
        graph = DataflowGraph(fn, is_barrier=regrouping | _relayouts_at_concatenations(calls))
        # Without optimization every call becomes a separate kernel.
        limit = self.max_depth if ctx.opt_level >= 1 else 1
        costs = cost_model_of(ctx) or NEUTRAL
        groups = FusionGroups(graph, max_depth=limit, reduce_epilogue=self.reduce_epilogue,
                              longest_row=costs.longest_row)
        kernels: dict[ir.Expr, list[ir.Call]] = {}
        for indices in groups.members():
            for members in _peel([graph.nodes[i].call for i in indices]):
                kernels[members[-1]] = members
        return as_function(_Outliner(kernels).rewrite(fn))


def _regroups_elements(call: ir.Call) -> bool:
    """Whether ``call`` is a reshape that does more than add or remove axes of size 1."""
    if not is_reshape(call):
        return False
    return _without_units(shape_of(call)) != _without_units(shape_of(call.args[0]))


def _is_elementwise(call: ir.Call) -> bool:
    return isinstance(call.op, ir.Op) and call.op.pattern is ir.OpPattern.ELEMWISE


def _relayouts_at_concatenations(calls: Sequence[ir.Call]) -> frozenset[ir.Call]:
    """Layout transforms that feed a concatenation or read its result, directly or elementwise.

    Fused with the concatenation, each element would test which operand it comes from, and
    contiguous access would be lost.
    """
    found: set[ir.Call] = set()
    joined: set[ir.Expr] = set()  # concatenations, and elementwise functions of them
    for call in calls:
        name = op_name(call)
        if name == "concatenate":
            joined.add(call)
            found.update(p for p in wired_calls(call.args[0])
                         if isinstance(p, ir.Call) and op_name(p) == "layout_transform")
        elif name == "layout_transform" and call.args[0] in joined:
            found.add(call)
        elif _is_elementwise(call) and any(a in joined for a in call.args):
            joined.add(call)
    return frozenset(found)


def _without_units(shape: ir.Shape) -> ir.Shape:
    return tuple(d for d in shape if d != 1)


def _peel(members: list[ir.Call]) -> list[list[ir.Call]]:
    """Split off the reshapes at a group's result and inputs."""
    split: list[list[ir.Call]] = []
    while len(members) > 1 and is_reshape(members[-1]):
        split.append([members.pop()])
    inside = set(members)
    for call in members[:-1]:
        if is_reshape(call) and not any(p in inside for p in wired_calls(call.args[0])):
            inside.discard(call)
            split.append([call])
    return [[c for c in members if c in inside], *split]


class _Outliner:
    """Rewrites a function so that each group becomes a call of a primitive function."""

    def __init__(self, kernels: dict[ir.Expr, list[ir.Call]]) -> None:
        self.kernels = kernels
        self.outer: dict[ir.Expr, ir.Expr] = {}

    def rewrite(self, fn: ir.Function) -> ir.Expr:
        for node in ir.post_order(fn, enter=enters):
            members = self.kernels.get(node)
            if members is not None and not (len(members) == 1 and is_reshape(node)):
                self.outer[node] = self._kernel_call(members)
            else:
                self.outer[node] = self._rebuilt(node)
        return self.outer[fn]

    def _rebuilt(self, node: ir.Expr) -> ir.Expr:
        # Calls inside a group come here too; no rewritten node refers to their results.
        return over_new_children(node, self.outer.__getitem__)

    def _kernel_call(self, members: Sequence[ir.Call]) -> ir.Call:
        kernel = _Kernel(self.outer)
        for call in members:
            kernel.add(call)
        result = members[-1]
        function = kernel.function(result)
        return ir.Call(
            function, tuple(kernel.arguments), span=result.span, checked_type=result.checked_type
        )


class _Kernel:
    """One primitive function under construction."""

    def __init__(self, outer: dict[ir.Expr, ir.Expr]) -> None:
        self.outer = outer
        self.inner: dict[ir.Expr, ir.Expr] = {}
        self.params: list[ir.Var] = []
        self.arguments: list[ir.Expr] = []

    def add(self, call: ir.Call) -> None:
        self.inner[call] = ir.replace_children(call, [self._operand(arg) for arg in call.args])

    def _operand(self, expr: ir.Expr) -> ir.Expr:
        known = self.inner.get(expr)
        if known is not None:
            return known
        # Single numbers become literals. Weights are parameters, so that layers which differ in
        # their weights alone share a kernel.
        if isinstance(expr, ir.Constant) and expr.content.size == 1:
            return expr
        if isinstance(expr, ir.Tuple):
            fields = tuple(map(self._operand, expr.fields))  # operators take tuples of tensors
            return expr.replace(fields=fields, checked_type=expr.checked_type)
        if isinstance(expr, ir.TupleGetItem) and expr.tuple_value in self.inner:
            whole = self.inner[expr.tuple_value]
            return expr.replace(tuple_value=whole, checked_type=expr.checked_type)
        return self._parameter(expr)

    def _parameter(self, expr: ir.Expr) -> ir.Var:
        type_ = type_of(expr)
        param = ir.Var(f"p{len(self.params)}", type_, checked_type=type_)
        self.params.append(param)
        self.arguments.append(self.outer[expr])
        self.inner[expr] = param
        return param

    def function(self, result: ir.Call) -> ir.Function:
        ret_type = type_of(result)
        arg_types = tuple(type_of(p) for p in self.params)
        return ir.Function(tuple(self.params), self.inner[result], ret_type,
                           attrs={"primitive": True}, span=result.span,
                           checked_type=ir.FuncType(arg_types, ret_type))
