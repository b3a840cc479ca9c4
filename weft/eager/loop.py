"""Loops of traced functions: one node, whose signature holds the graph of the body.

The graph is closed: its parameters are the carried values, a slice of each scanned tensor, and
the tensors that the body reads from outside, all of which are operands of the node.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft import op
from weft.eager.complex_pairs import as_complex
from weft.eager.node import (
    LOOP,
    PLACEHOLDER,
    RECORDED,
    Node,
    Signature,
    Spec,
    call_ir,
    call_signature,
    common_device,
    is_value,
    number_node,
    spec_of,
    spec_of_fields,
)
from weft.eager.placement import host_value
from weft.eager.tracing.graph import key_of, order_of
from weft.ir.dtype import DType
from weft.ir.expr import Call, Constant, Expr, Function, If, Let, Tuple, Var, const
from weft.ir.span import Span
from weft.ir.types import TensorType
from weft.support.dataclass import dataclass

_INDEX = TensorType((), DType.of("int64"))


@dataclass(frozen=True, eq=False, slots=True)
class Loop:
    """The body of a loop as a graph.

    ``parameters`` are ``carried`` values, slices of ``scanned`` tensors, and what is read from
    outside; ``results`` the next carried values and the parts to stack, of which the last ``saved``
    are the carried values before the step. A loop of ``length`` steps runs backwards with
    ``reverse``; one without runs while ``going`` holds.
    """

    parameters: tuple[Node, ...]
    results: tuple[Node, ...]
    carried: int
    scanned: int = 0
    length: int | None = None
    reverse: bool = False
    going: Node | None = None
    saved: int = 0

    def saving(self) -> Loop:
        """The loop that stacks the carried values before each step, too."""
        carried = self.parameters[:self.carried]
        return Loop(self.parameters, (*self.results, *carried), self.carried, self.scanned,
                    self.length, self.reverse, None, self.carried)

    def signature(self) -> Signature:
        """One signature for all loops that compute the same and whose gradients flow alike."""
        roots = self.results if self.going is None else (*self.results, self.going)
        order = order_of(roots, set(self.parameters))
        flows = tuple([node.grad is not None for node in (*self.parameters, *order)])
        key = (key_of(roots, self.parameters), flows, self.carried, self.scanned, self.length,
               self.reverse, self.going is None, self.saved)
        found = _SIGNATURES.get(key)
        if found is None:
            found = _SIGNATURES.setdefault(key, self._signature())
        return found

    def _signature(self) -> Signature:
        count = self.carried + self.scanned
        given = [node.sig.out for node in self.parameters]
        given[self.carried:count] = map(self.stacked, given[self.carried:count])
        made = [node.sig.out for node in self.results]
        made[self.carried:] = map(self.stacked, made[self.carried:])
        sig = Signature(LOOP, spec_of_fields(made, common_device(made)), tuple(given))
        sig.attrs = self
        sig.name = "scan" if self.going is None else "while_loop"
        return sig

    def stacked(self, spec: Spec) -> Spec:
        """The spec of a tensor with a slice of ``spec`` for each step."""
        assert self.length is not None
        return spec_of((self.length, *spec.shape), spec.dtype, spec.device)

    def expression(self, args: Sequence[Expr], span: Span | None) -> Expr:
        """The tuple of the last carried values and of the stacked parts, as a recursive function.

        What does not change is bound outside of it, so that no step copies or computes it.
        """
        outside: list[tuple[Var, Expr]] = []
        fixed = [_bound(arg, outside, span) for arg in args[self.carried:]]
        carried = tuple([_variable(f"c{i}", node.sig.out, span)
                         for i, node in enumerate(self.parameters[:self.carried])])
        if self.going is not None:
            made = dict(zip(self.parameters, (*carried, *fixed), strict=True))
            *following, goes_on = _expressions((*self.results, self.going), made)
            made_loop = _recursion(carried, goes_on, following, args[:self.carried], carried, span)
        else:
            made_loop = self._counted(args, carried, fixed, span)
        for variable, value in reversed(outside):
            made_loop = Let(variable, value, made_loop, span=span)
        return made_loop

    def _counted(self, args: Sequence[Expr], carried: tuple[Var, ...], fixed: Sequence[Expr],
                 span: Span | None) -> Expr:
        assert self.length is not None
        i = Var("i", _INDEX, span=span)
        at: Any = op.subtract(_index(self.length - 1), i, span=span) if self.reverse else i
        slices = [op.take(x, at, axis=0, mode="clip", span=span) for x in fixed[:self.scanned]]
        made = dict(zip(self.parameters, (*carried, *slices, *fixed[self.scanned:]), strict=True))
        results = _expressions(self.results, made)
        position = op.reshape(at, newshape=(1,), span=span)
        sums, parts, first = [], [], []
        for number, node in enumerate(self.results[self.carried:]):
            spec = self.stacked(node.sig.out)
            total = _variable(f"y{number}", spec, span)
            sums.append(total)
            parts.append(op.scatter_nd(total, position, results[self.carried + number],
                                       mode="update", span=span))
            memory = spec.as_pair() if spec.dtype.is_complex else spec
            first.append(op.zeros(shape=memory.shape, dtype=memory.dtype.ir, span=span))
        variables = (i, *carried, *sums)
        following = (op.add(i, _index(1), span=span), *results[:self.carried], *parts)
        goes_on = op.less(i, _index(self.length), span=span)
        return _recursion(variables, goes_on, following,
                          (_index(0), *args[:self.carried], *first), variables[1:], span)


_SIGNATURES: dict[Any, Signature] = {}


def loop_signature(loop: Loop, args: Sequence[Node], *, records: bool) -> Signature:
    """The signature of a loop on these operands, with what its gradient needs if that flows."""
    flows = records and any(arg.grad is not None for arg in args)
    return (loop.saving() if flows and loop.going is None else loop).signature()


def is_endless(node: Node) -> bool:
    """Whether gradients flow through a node that is a loop whose number of steps is unknown, or
    has one inside: they are no loop.
    """
    if node.sig.kind != LOOP or node.grad is None:
        return False
    loop: Loop = node.sig.attrs
    return loop.length is None or any(
        map(is_endless, order_of(loop.results, set(loop.parameters))))


def placeholder(spec: Spec, *, flows: bool) -> Node:
    """A parameter of a graph; gradients flow to it if ``flows`` and it is of floats."""
    node = Node(Signature(PLACEHOLDER, spec), (), None, None)
    if flows and spec.dtype.rank > 1:
        node.grad = RECORDED
    return node


def copied_graph(results: Sequence[Node], given: dict[Node, Node]) -> list[Node]:
    """The nodes that compute ``results`` from ``given``; gradients flow as through the original."""
    copy = dict(given)
    for node in order_of(results, set(given)):
        args = tuple([copy.get(a, a) for a in node.args])
        copy[node] = again = Node(node.sig, args, None, node.site)
        if node.grad is not None and any(a.grad is not None for a in args):
            again.grad = RECORDED
    return [copy.get(node, node) for node in results]


def zeros_of(spec: Spec) -> Node:
    """A node of zeros."""
    if spec.dtype.is_complex:
        return as_complex(zeros_of(spec.as_pair()))
    zero = number_node(0.0, spec.dtype, spec.device)
    if not spec.shape:
        return zero
    attrs = {"shape": spec.shape}
    return Node(call_signature("full", attrs, tuple(attrs.items()), (zero,), spec.device), (zero,),
                None, None)


def _bound(arg: Expr, outside: list[tuple[Var, Expr]], span: Span | None) -> Expr:
    if isinstance(arg, (Var, Constant)):
        return arg
    outside.append((Var(f"given{len(outside)}", span=span), arg))
    return outside[-1][0]


def _variable(name: str, spec: Spec, span: Span | None) -> Var:
    return Var(name, spec.type, span=span)


def _index(value: int) -> Expr:
    return const(value, "int64")


def _expressions(results: Sequence[Node], made: dict[Node, Expr]) -> list[Expr]:
    for node in order_of(results, set(made)):
        expr = call_ir(node, tuple([expression_of(a, made) for a in node.args]))
        stops = node.grad is None and node.sig.differentiable and any(
            a.grad is not None for a in node.args)
        if stops and node.sig.out.fields is None:
            expr = op.annotation.stop_gradient(expr, span=node.span)
        made[node] = expr
    return [expression_of(node, made) for node in results]


def expression_of(node: Node, made: dict[Node, Expr]) -> Expr:
    """The expression that ``made`` has for a node; that of a value is a constant."""
    found = made.get(node)
    if found is None:
        assert is_value(node)
        found = made[node] = Constant(host_value(node))
    return found


def _recursion(variables: tuple[Var, ...], goes_on: Expr, following: Sequence[Expr],
               first: Sequence[Expr], result: tuple[Var, ...], span: Span | None) -> Expr:
    loop = Var("loop", span=span)
    again = Call(loop, tuple(following), span=span)
    choice = If(goes_on, again, Tuple(result, span=span), span=span)
    return Let(loop, Function(variables, choice, span=span),
               Call(loop, tuple(first), span=span), span=span)
