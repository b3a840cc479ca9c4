"""Gradients of a graph by NNVM's interface: entries by name, and functions that build the result.

For pure graphs of operators and tuples; ``Gradient`` differentiates whole programs.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import field
from typing import TypeAlias

from weft import op
from weft.ir import IRModule, Op, TensorType, TupleType, children, get_op, post_order
from weft.ir.expr import Call, Constant, Expr, Function, Let, Tuple, TupleGetItem, Var
from weft.ir.typing.infer import infer_expr, infer_type
from weft.op.gradients import field_of, typed_ones, typed_zeros
from weft.support.dataclass import dataclass
from weft.support.errors import OptionError, PassError
from weft.transform.analysis.graph import op_name, type_of
from weft.transform.autodiff.forward.forward_rules import expansion_of
from weft.transform.autodiff.reverse.adjoint import is_differentiable
from weft.transform.autodiff.reverse.gradient_contract import checked_gradients
from weft.transform.autodiff.reverse.pure_graph import pure_graph
from weft.transform.autodiff.reverse.sweep import gradients_of
from weft.transform.normal_form.alpha import fresh_copy

# A name (of a parameter, of a let, or in the span of a call), the number of a result, or a node.
Entry: TypeAlias = "str | int | Expr"


def graph_gradient(mod: IRModule, ys: Sequence[Entry], xs: Sequence[Entry], *,
                   ys_out_grad: Sequence[Expr | None] | None = None,
                   aggregate_fun: Callable[[list[Expr]], Expr] | None = None,
                   mirror_fun: Callable[[Call], bool] | None = None,
                   attr_hint_fun: Callable[[Expr, Expr], Expr] | None = None,
                   zero_ops: Sequence[str] = (), copy_op: str | None = None) -> IRModule:
    """A module that returns the gradients of ``ys`` with respect to ``xs`` (NNVM's ``Gradient``).

    Both are entries of the graph of ``main``, inner ones included; several ``ys`` add up. The
    options have NNVM's names:

    * ``ys_out_grad``: the gradient that arrives at each of ``ys``; ``None`` stands for ones.
      Variables that are not parameters of ``main`` become its last parameters.
    * ``aggregate_fun(gradients)``: the sum of the gradients of several uses; by default ``add``.
    * ``mirror_fun(call)``: whether a call of the forward pass is computed again for the gradients.
    * ``attr_hint_fun(value, zeros)``: the zeros of an entry without influence, by default zeros of
      its type. Without it and without ``zero_ops``, such an entry is an error.
    * ``zero_ops``: operators that make zeros, the first for entries without influence. A call
      without a gradient rule is no error if the gradients of its results are such calls.
    * ``copy_op``: an operator that copies the gradient of an entry where another has the same.

    Raises ``PassError`` for operators without a gradient, unreachable entries and programs that are
    not pure graphs, and ``OptionError`` for unknown entries and unsuitable options.
    """
    mod = infer_type(mod)
    main = mod["main"]
    outputs, inputs, result = _resolved(main, ys, xs)
    given = list(ys_out_grad) if ys_out_grad is not None else [None] * len(outputs)
    if len(given) != len(outputs):
        raise OptionError("ys_out_grad does not fit ys", got=f"{len(given)} gradients",
                          expected=str(len(outputs)))
    graph = _Graph(result, inputs, aggregate_fun or _sum, mirror_fun, tuple(zero_ops))
    for y, dy in zip(outputs, given, strict=True):
        graph.add(y, _seed(y, dy))
    graph.sweep()
    gradients: list[Expr] = []
    for x in inputs:
        found = graph.total(x)
        if found is None:
            found = _zeros(x, attr_hint_fun, zero_ops, main)
        if copy_op is not None and any(found is other for other in gradients):
            found = get_op(copy_op)(found)
        gradients.append(found)
    body = Tuple(tuple(gradients), span=main.span)
    extra = tuple(v for v in _variables([d for d in given if d is not None])
                  if v not in main.params)
    made = Function((*main.params, *extra), body, span=main.span)
    return infer_type(mod.with_function("main", made))


def _sum(gradients: list[Expr]) -> Expr:
    total = gradients[0]
    for gradient in gradients[1:]:
        total = op.add(total, gradient)
    return total


def _seed(y: Expr, dy: Expr | None) -> Expr:
    if dy is None:
        return typed_ones(y)
    typed = infer_expr(dy, trust=True)
    if typed.checked_type != y.checked_type:
        raise OptionError("ys_out_grad does not fit the entry", expected=str(y.checked_type),
                          got=str(typed.checked_type))
    return typed


def _zeros(x: Expr, hint: Callable[[Expr, Expr], Expr] | None, zero_ops: Sequence[str],
           main: Function) -> Expr:
    """The gradient of an entry on which nothing depends."""
    if hint is None and not zero_ops:
        raise PassError("no path from an entry of xs to ys", where=x.span or main.span,
                        got=f"%{x.name}" if isinstance(x, Var) else str(x.checked_type),
                        help="give zero_ops, or attr_hint_fun, to get zeros")
    name = zero_ops[0] if zero_ops else "zeros"
    zeros = get_op(name)(x) if get_op(name).inputs else typed_zeros(x)
    return zeros if hint is None else hint(x, zeros)


def _variables(values: Sequence[Expr]) -> list[Var]:
    found = [n for v in values for n in post_order(v) if isinstance(n, Var)]
    return list(dict.fromkeys(found))


def _resolved(main: Function, ys: Sequence[Entry], xs: Sequence[Entry]
              ) -> tuple[list[Expr], list[Expr], Expr]:
    """The nodes of both lists, and a tuple of all of them and the result, without lets."""
    lets: list[Let] = []
    body = main.body
    while isinstance(body, Let):
        lets.append(body)
        body = body.body
    named: dict[str, Expr] = {p.name: p for p in main.params}
    named.update((let.var.name, let.var) for let in lets)
    wanted = [_entry(e, named, main, body) for e in (*ys, *xs)]
    whole: Expr = Tuple((*wanted, body))
    for let in reversed(lets):
        whole = Let(let.var, let.value, whole, span=let.span)
    graph = pure_graph(infer_expr(whole, trust=True))
    assert isinstance(graph, Tuple)
    found = graph.fields[:-1]
    return list(found[:len(ys)]), list(found[len(ys):]), graph


def _entry(entry: Entry, named: dict[str, Expr], main: Function, body: Expr) -> Expr:
    if isinstance(entry, Expr):
        return entry
    if isinstance(entry, int):
        type_ = type_of(body)
        count = len(type_.fields) if isinstance(type_, TupleType) else 1
        if not 0 <= entry < count:
            raise OptionError("no such result", got=str(entry), expected=f"0 to {count - 1}")
        return field_of(body, entry) if isinstance(type_, TupleType) else body
    if entry in named:
        return named[entry]
    spans = [n for n in post_order(main.body) if isinstance(n, Call) and entry in str(n.span)]
    if len(spans) == 1:
        return spans[0]
    raise OptionError(f"unknown entry {entry}" if not spans else f"ambiguous entry {entry}",
                      expected=", ".join(named) + ", or the source position of one call")


@dataclass(eq=False, slots=True)
class _Graph:
    """A reverse sweep that collects the gradients of every entry before it sums them."""

    result: Expr
    xs: Sequence[Expr]
    aggregate: Callable[[list[Expr]], Expr]
    mirror: Callable[[Call], bool] | None
    zero_ops: tuple[str, ...]
    found: dict[tuple[Expr, int], list[Expr]] = field(default_factory=dict)
    totals: dict[tuple[Expr, int], Expr] = field(default_factory=dict)
    copies: dict[Expr, Expr] = field(default_factory=dict)

    def add(self, entry: Expr, gradient: Expr) -> None:
        type_ = type_of(entry)
        if isinstance(type_, TupleType):
            for index, part in enumerate(type_.fields):
                if is_differentiable(part):
                    self.found.setdefault((entry, index), []).append(field_of(gradient, index))
        elif is_differentiable(type_):
            self.found.setdefault((entry, -1), []).append(gradient)

    def total(self, entry: Expr, index: int = -1) -> Expr | None:
        """The sum of what was collected; ``None`` for nothing."""
        key = entry, index
        if key not in self.totals and key in self.found:
            gradients = self.found[key]
            total = gradients[0] if len(gradients) == 1 else self.aggregate(gradients)
            self.totals[key] = infer_expr(total, trust=True)
        return self.totals.get(key)

    def sweep(self) -> None:
        order = list(post_order(self.result))
        depends = set(self.xs)
        for node in order:
            if any(c in depends for c in children(node)):
                depends.add(node)
        for node in reversed(order):
            if node in depends and node is not self.result:
                self._visit(node)

    def _visit(self, node: Expr) -> None:
        if isinstance(node, (Var, Constant)):
            return
        if isinstance(node, TupleGetItem):
            dy = self.total(node)
            if dy is not None:
                self.found.setdefault((node.tuple_value, node.index), []).append(dy)
        elif isinstance(node, Tuple):
            for index, part in enumerate(node.fields):
                dy = self.total(node, index)
                if dy is not None:
                    self.add(part, dy)
        elif isinstance(node, Call) and isinstance(node.op, Op):
            dy = self._gradient_of(node)
            if dy is not None:
                for arg, gradient in zip(node.args, self._rule(node, node.op, dy), strict=True):
                    self.add(arg, gradient)
        else:
            raise PassError(f"graph_gradient met {type(node).__name__}", where=node.span,
                            expected="operators and tuples",
                            help="use weft.grad, which differentiates whole programs")

    def _gradient_of(self, call: Call) -> Expr | None:
        type_ = type_of(call)
        if isinstance(type_, TensorType):
            return self.total(call)
        assert isinstance(type_, TupleType)
        parts = [self.total(call, i) for i in range(len(type_.fields))]
        if all(p is None for p in parts):
            return None
        fields = [typed_zeros(field_of(call, i)) if p is None else p for i, p in enumerate(parts)]
        return Tuple(tuple(fields), checked_type=type_)

    def _rule(self, call: Call, operator: Op, dy: Expr) -> list[Expr]:
        rule = operator.gradient_rule
        if rule is None and (operator.traits.has_zero_gradient or self._is_zeros(dy)):
            return [typed_zeros(a) for a in call.args]
        mirrored = self._mirrored(call, dy) if self.mirror is not None else call
        if rule is not None:
            return checked_gradients(mirrored, operator, rule, dy)
        expansion = expansion_of(mirrored)
        if expansion is None:
            raise PassError(f"missing gradient of {operator.name}", where=call.span,
                            help="register one with @op.gradient, or give zero_ops")
        params, body = expansion
        seed = Var("dy", checked_type=type_of(call))
        gradients = Tuple(tuple(gradients_of(body, [p], seed)[0] for p in params))
        values: dict[Expr, Expr] = {seed: dy, **dict(zip(params, mirrored.args, strict=True))}
        together = fresh_copy(infer_expr(gradients, trust=True), values)
        return [field_of(together, i) for i in range(len(params))]

    def _is_zeros(self, dy: Expr) -> bool:
        parts = dy.fields if isinstance(dy, Tuple) else (dy,)
        return all(op_name(p) in self.zero_ops for p in parts)

    def _mirrored(self, call: Call, dy: Expr) -> Call:
        """``call`` over copies of the calls that ``mirror_fun`` chooses.

        What the copies read passes a barrier after the gradient, so that no pass merges them with
        the calls of the forward pass.
        """
        assert self.mirror is not None
        after = Tuple(tuple(n for n in (dy.fields if isinstance(dy, Tuple) else (dy,))))
        chosen = {n for n in post_order(call)
                  if isinstance(n, Call) and isinstance(n.op, Op) and self.mirror(n)}
        for node in post_order(call, enter=lambda n: n is call or n in chosen):
            if node in self.copies or node not in chosen:
                continue
            args = [self.copies.get(a) or _behind(a, after) for a in children(node)]
            self.copies[node] = dataclasses.replace(node, args=tuple(args))
        if call in chosen:
            copy = self.copies[call]
            assert isinstance(copy, Call)
            return copy
        return dataclasses.replace(call, args=tuple(self.copies.get(a, a) for a in call.args))


def _behind(value: Expr, after: Tuple) -> Expr:
    type_ = type_of(value)
    if isinstance(value, Constant) or not isinstance(type_, TensorType):
        return value
    made: Expr = infer_expr(op.annotation.barrier(value, after), trust=True)
    return made
