"""Traced functions as programs of the IR that say where gradients stop.

``detach``, ``.data`` and ``no_grad`` leave nodes without a gradient; where such a node depends on
a parameter, the program has ``annotation.stop_gradient``. A call of a ``Function`` of the user
becomes a call of a function with ``custom_vjp`` (``own_gradients``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Any

from weft.eager.cell import MODE, Cell, node_of
from weft.eager.evaluate import value_of
from weft.eager.functions.linear import trace as sum_of_diagonal
from weft.eager.grad_mode import enable_grad
from weft.eager.loop import expression_of, is_endless
from weft.eager.node import CUSTOM, FREED, LOOP, RECORDED, Node, Spec, call_ir
from weft.eager.tracing.calls import Signature
from weft.eager.tracing.own_gradients import (
    OwnGradient,
    loop_gradient,
    operands,
    own_gradients,
    steps_to,
)
from weft.eager.tracing.pytree import unflatten
from weft.eager.tracing.trace import Trace, Traced, trace_graph
from weft.ir.expr import Call, Expr, Function, GlobalVar, Let, Tuple, TupleGetItem, Var
from weft.ir.module import IRModule
from weft.ir.op import get_op
from weft.ir.types import TupleType
from weft.support.dataclass import dataclass
from weft.support.errors import InvalidInputError
from weft.transform.autodiff.reverse.custom_rules import FORWARD_BY_BODY, VJP


def trace(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """The program of the IR that a function of tensors is for arguments like these.

    ``weft.compile``, ``weft.grad``, ``weft.vmap`` and other functions on programs take it. Of a
    tensor, ``trace`` is the sum of its diagonal, as in torch.
    """
    if isinstance(function, Cell):
        return sum_of_diagonal(function)
    return module_for(function, Signature(function, (), ()), args, kwargs)


def module_for(function: Callable[..., Any], signature: Signature, args: tuple[Any, ...],
               kwargs: dict[str, Any]) -> IRModule:
    """The program of a function; tensors that it reads from outside are constants of it."""
    bound = signature.bind(args, kwargs)
    given, named = unflatten(bound.structure, bound.leaves)
    own: dict[Node, OwnGradient] = {}

    def run(*values: Any, **options: Any) -> Any:
        found = function(*values, **options)
        own.update(own_gradients(found, _arriving))
        return found

    with enable_grad():
        traced = trace_graph(run, given, named, Cell.made, differentiable=True)
    if any(one.after is not one.placeholder for one in traced.captured):
        raise InvalidInputError("the function changes a tensor from outside",
                                help="return the new value, or use weft.train_step")
    for one in traced.captured:
        node = node_of(one.cell)
        value_of(node)
        one.placeholder.value = node.value
    names = [n for n, leaf in zip(signature.names_of(args, kwargs), bound.leaves, strict=True)
             if isinstance(leaf, Spec)]
    return _module(traced, names, own)


def _module(traced: Traced, names: Sequence[str], own: Mapping[Node, OwnGradient]) -> IRModule:
    results = [r for r in traced.results if isinstance(r, Node)]
    variables = {node: Var(name, node.sig.out.type)
                 for node, name in zip(traced.parameters, names, strict=True)}
    made = _Program(own)
    values = made.expressions(results, variables, set(variables))
    body = values[0] if len(values) == 1 else Tuple(tuple(values))
    functions = {"main": Function(tuple(variables.values()), body), **made.functions}
    return IRModule(functions).with_attrs(
        output_names=tuple([f"output{i}" for i in range(len(results))]))


@dataclass(eq=False, slots=True)
class _Program:
    """The expressions of nodes, and the functions with gradients of the user's that they call."""

    own: Mapping[Node, OwnGradient]
    functions: dict[str, Function] = field(default_factory=dict)
    names: dict[Node, str] = field(default_factory=dict)

    def expressions(self, results: Sequence[Node], given: Mapping[Node, Expr], flowing: set[Node]
                    ) -> list[Expr]:
        """The expressions of ``results`` from those ``given``; ``flowing`` have a gradient."""
        made, calls = dict(given), dict[Node, Expr]()
        for node in steps_to(results, set(given), self.own):
            args = [expression_of(a, made) for a in operands(node, self.own)]
            if node.extra is not None and node.sig.kind != CUSTOM:
                raise InvalidInputError(
                    "a hook of a gradient inside a function that is traced", where=node.span,
                    help="use backward(), or a Function with a backward of its own")
            if node.link is not None:
                hub, number = node.link
                if hub not in calls:
                    calls[hub] = self._call(hub, args)
                made[node] = TupleGetItem(calls[hub], number)
            elif node.sig.kind == LOOP and node.grad is RECORDED and not is_endless(node):
                made[node] = self._loop(node, args)
            else:
                made[node] = call_ir(node, tuple(args))
            if not flowing.isdisjoint(operands(node, self.own)):
                made[node] = _stopped(node, made[node], flowing)
        return [expression_of(node, made) for node in results]

    def _call(self, hub: Node, args: Sequence[Expr]) -> Expr:
        if hub not in self.names:
            self.names[hub] = f"{hub.sig.name}_{len(self.names)}"
            self._define(self.own[hub], self.names[hub])
        return Call(GlobalVar(self.names[hub]), tuple(args), span=hub.span)

    def _loop(self, node: Node, args: Sequence[Expr]) -> Expr:
        """A call of a function whose gradient is the loop in the other direction."""
        if node not in self.names:
            self.names[node] = f"{node.sig.name}_{len(self.names)}"
            self._define_loop(loop_gradient(node), self.names[node])
        return Call(GlobalVar(self.names[node]), tuple(args), span=node.span)

    def _define(self, own: OwnGradient, name: str) -> None:
        """The function ``name`` of the results, and its rule ``(x, .., dy) -> (dx, ..)``."""
        params, given = _variables(own.inputs)
        body = Tuple(tuple(self.expressions(own.results, given, set())))
        rule = f"{name}_gradient"
        self.functions[name] = Function(params, body, attrs={VJP: rule})
        params, given = _variables(own.inputs)
        dy = Var("dy", TupleType(tuple(node.sig.out.type for node in own.arriving)))
        given |= {node: TupleGetItem(dy, i) for i, node in enumerate(own.arriving)}
        self.functions[rule] = Function((*params, dy), self._gradients(own, given, set(given)))

    def _define_loop(self, own: OwnGradient, name: str) -> None:
        """The function ``name`` of a loop, and its rule, which saves operands and results."""
        loop, rules = own.results[0], (f"{name}_forward", f"{name}_backward")
        params, given = _variables(own.inputs)
        self.functions[name] = Function(params, self.expressions([loop], given, set())[0],
                                        attrs={VJP: rules, **FORWARD_BY_BODY})
        params, given = _variables(own.inputs)
        both = Var("both", loop.sig.out.type)
        self.functions[rules[0]] = Function(params, Let(
            both, self.expressions([loop], given, set())[0], Tuple((both, Tuple((*params, both))))))
        kept = [*own.inputs, loop]
        saved = Var("saved", TupleType(tuple(node.sig.out.type for node in kept)))
        dy = Var("dy", loop.sig.out.type)
        given = {node: TupleGetItem(saved, i) for i, node in enumerate(kept)}
        given |= {node: TupleGetItem(dy, i) for i, node in enumerate(own.arriving)}
        # The body of the loop says where gradients stop.
        self.functions[rules[1]] = Function((saved, dy), self._gradients(own, given, set()))

    def _gradients(self, own: OwnGradient, given: Mapping[Node, Expr], flowing: set[Node]) -> Expr:
        """The gradients of the inputs that hold floating point."""
        grads = iter(self.expressions([g for g in own.gradients if g is not None], given, flowing))
        return Tuple(tuple([_zeros(node) if gradient is None else next(grads)
                            for node, gradient in zip(own.inputs, own.gradients, strict=True)
                            if node.sig.out.dtype.rank > 1]))


def _variables(nodes: Sequence[Node]) -> tuple[tuple[Var, ...], dict[Node, Expr]]:
    """A parameter for each node; the same node may be there twice."""
    params = tuple(Var(f"x{i}", node.sig.out.type) for i, node in enumerate(nodes))
    return params, dict(zip(nodes, params, strict=True))


def _arriving(spec: Spec) -> Node:
    """A placeholder of the present trace for the gradient of a result."""
    assert isinstance(MODE.trace, Trace)
    return MODE.trace.parameter(spec, differentiable=True)


def _stopped(node: Node, expr: Expr, flowing: set[Node]) -> Expr:
    """``expr`` of a node with an operand that has a gradient, which goes on or stops here."""
    if node.grad is RECORDED or node.grad is FREED or node.sig.out.fields is not None:
        flowing.add(node)  # of a tuple, its fields stop
    elif node.sig.out.dtype.rank > 1:
        return get_op("annotation.stop_gradient")(expr, span=node.span)  # type: ignore[no-any-return]
    return expr


def _zeros(node: Node) -> Expr:
    return get_op("zeros")(  # type: ignore[no-any-return]
        shape=node.sig.out.as_pair().shape, dtype=node.sig.out.as_pair().dtype.ir)
