"""Reverse sweeps: propagate adjoints from the result of a pure expression to its inputs."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import field
from typing import Protocol

from weft import ir
from weft.ir import Expr, Routine, children, post_order, replace_children, run_routine
from weft.ir.visitor import branches_of
from weft.support.dataclass import dataclass
from weft.support.errors import InternalError, PassError
from weft.transform.analysis.graph import type_of
from weft.transform.analysis.scopes import Scope, Scopes
from weft.transform.autodiff.reverse.activity import active_nodes
from weft.transform.autodiff.reverse.adjoint import Adjoint, Adjoints, field_adjoint, one_field
from weft.transform.autodiff.reverse.custom_rules import CustomVjp
from weft.transform.autodiff.reverse.gradient_contract import checked_gradients


def copied_branch(
    expr: Expr, inside: AbstractSet[Expr], is_outside: Callable[[Expr], bool]
) -> Expr:
    """``expr`` with a copy of every node of ``inside``.

    A node that two branches share belongs to the scope around both, and is evaluated whichever
    branch is taken. Nodes that ``is_outside`` selects are not copied, nor are the nodes they depend
    on.
    """
    memo: dict[Expr, Expr] = {}
    for node in post_order(expr, enter=lambda n: not is_outside(n)):
        if is_outside(node):
            memo[node] = node
            continue
        rebuilt = replace_children(node, [memo[c] for c in children(node)])
        is_copy = rebuilt is not node or node not in inside
        memo[node] = rebuilt if is_copy else dataclasses.replace(node)
    return memo[expr]


class Calls(Protocol):
    """How calls of global functions are differentiated."""

    @property
    def keeps_tape(self) -> bool:
        """Whether functions and branches return a pullback that holds what they computed."""
        ...

    def taped(self, function: str) -> str | None:
        """The function that returns the value and the pullback, if its calls keep a tape."""
        ...

    def product(self, function: str) -> str:
        """The function from the arguments and the adjoint of the result to the adjoints."""
        ...

    def custom(self, function: str) -> CustomVjp | None:
        """The rule of a function that saves values for its derivative."""
        ...


class NoCalls:
    """For expressions that call no global functions."""

    keeps_tape = False

    def taped(self, function: str) -> str | None:
        raise InternalError(f"an unexpected call of the global function {function}")

    def product(self, function: str) -> str:
        raise InternalError(f"an unexpected call of the global function {function}")

    def custom(self, function: str) -> CustomVjp | None:
        raise InternalError(f"an unexpected call of the global function {function}")


def gradients_of(body: ir.Expr, wanted: Sequence[ir.Var], seed: ir.Expr) -> list[ir.Expr]:
    """The gradients of ``body``, which calls no functions, with respect to ``wanted``.

    ``seed`` is the gradient of ``body``, of its type.
    """
    adjoints = Adjoints()
    found = Reversal(body, NoCalls(), adjoints).adjoints_from(adjoints.from_gradient(
        seed, type_of(body)))
    return [adjoints.as_gradient(found.get(v), v) for v in wanted]


@dataclass(eq=False, slots=True)
class _Pullback:
    """An expression for a function from the adjoint of a node to those of ``operands``."""

    function: ir.Expr
    operands: tuple[ir.Expr, ...]


@dataclass(eq=False, slots=True)
class Reversal:
    """Reverse sweeps over a let-free, first-order, typed expression (Griewank and Walther 2008).

    ``new`` maps each node to the node that computes its value in the derivative program. A call of
    a taped function returns its value and a pullback, a closure from the adjoint of the result to
    those of the arguments; the values that closures capture are the tape (Pearlmutter and Siskind
    2008). A branch returns such a pair too. Without a tape, functions and branches compute again
    what their derivatives need. No adjoints are computed for ``passive`` variables and what depends
    on these alone.
    """

    body: ir.Expr
    calls: Calls
    adjoints: Adjoints
    passive: frozenset[ir.Var] = frozenset()
    scopes: Scopes = field(init=False)
    active: set[ir.Expr] = field(init=False, default_factory=set)
    new: dict[ir.Expr, ir.Expr] = field(init=False, default_factory=dict)
    pullbacks: dict[ir.Expr, _Pullback] = field(init=False, default_factory=dict)
    customs: dict[ir.Expr, tuple[CustomVjp, ir.Expr]] = field(init=False, default_factory=dict)
    nodes: dict[Scope, list[ir.Expr]] = field(init=False, default_factory=dict)
    forward: set[ir.Expr] = field(init=False, default_factory=set)

    def __post_init__(self) -> None:
        self.scopes = Scopes(self.body)
        self.active = active_nodes(self.scopes.order, self.passive,
                                   self.adjoints.types.is_differentiable)
        for node in self.scopes.order:
            self.nodes.setdefault(self.scopes.scope_of[node], []).append(node)
            self.new[node] = self._forward(node)
        self.forward.update(self.new.values())

    @property
    def value(self) -> ir.Expr:
        """The value of the expression in the derivative program."""
        return self.new[self.body]

    def adjoints_from(self, seed: Adjoint) -> Mapping[ir.Expr, Adjoint]:
        """The adjoints of the variables, from that of the whole; missing ones are zero."""
        return run_routine(self._sweep(self.scopes.root, self.body, seed))

    # -- forward ---------------------------------------------------------------------------------

    def _forward(self, node: ir.Expr) -> ir.Expr:
        if isinstance(node, ir.Call) and isinstance(node.op, ir.GlobalVar) and node in self.active:
            rule = self.calls.custom(node.op.name)
            if rule is not None:
                both = rule.called(node, tuple(self.new[a] for a in node.args))
                self.customs[node] = rule, _field(both, 1)
                return _field(both, 0)
        if self.calls.keeps_tape and node in self.active:
            if isinstance(node, (ir.If, ir.Match)):
                return self._taped_branches(node)
            if isinstance(node, ir.Call) and isinstance(node.op, ir.GlobalVar):
                return self._taped_call(node, node.op)
        return self._rebuilt(node)

    def _rebuilt(self, node: ir.Expr) -> ir.Expr:
        return ir.replace_children(node, [self.new[c] for c in ir.children(node)])

    def _taped_call(self, call: ir.Call, callee: ir.GlobalVar) -> ir.Expr:
        operands = tuple(a for a in call.args if self._is_float(a))
        taped = self.calls.taped(callee.name)
        if taped is None:
            return self._rebuilt(call)
        args = tuple(self.new[a] for a in call.args)
        pullback = ir.FuncType((self.adjoints.types.of(type_of(call)),),
                               self._adjoint_type(operands))
        pair = ir.TupleType((type_of(call), pullback))
        signature = ir.FuncType(tuple(map(type_of, args)), pair)
        target = ir.GlobalVar(taped, span=callee.span, checked_type=signature)
        both = ir.Call(target, args, span=call.span, checked_type=pair)
        self.pullbacks[call] = _Pullback(_field(both, 1), operands)
        return _field(both, 0)

    def _taped_branches(self, node: ir.If | ir.Match) -> ir.Expr:
        """The choice between pairs of a value and a pullback."""
        seed_type = self.adjoints.types.of(type_of(node))
        seeds = [ir.Var("dy", seed_type, span=node.span) for _ in branches_of(node)]
        found = [run_routine(self._branch(node, i, seed)) for i, seed in enumerate(seeds)]
        operands = tuple(dict.fromkeys(operand for adjoints in found for operand in adjoints))
        if not operands:
            return self._rebuilt(node)
        result = self._adjoint_type(operands)
        pair = ir.TupleType((type_of(node), ir.FuncType((seed_type,), result)))
        results = []
        for branch, seed, adjoints in zip(branches_of(node), seeds, found, strict=True):
            pullback = ir.Function((seed,), self._written(adjoints, operands), result,
                                   span=node.span,
                                   checked_type=pair.fields[1])
            results.append(ir.Tuple((self.new[branch], pullback), span=branch.span,
                                    checked_type=pair))
        both = self._choice(node, results).with_type(pair)
        self.pullbacks[node] = _Pullback(_field(both, 1), operands)
        return _field(both, 0)

    def _choice(self, node: ir.If | ir.Match, results: Sequence[ir.Expr]) -> ir.Expr:
        """``node`` with other results."""
        if isinstance(node, ir.If):
            return ir.If(self.new[node.cond], results[0], results[1], span=node.span)
        clauses = tuple(ir.Clause(c.lhs, r) for c, r in zip(node.clauses, results, strict=True))
        return ir.Match(self.new[node.data], clauses, node.complete, span=node.span)

    # -- reverse ---------------------------------------------------------------------------------

    def _sweep(self, scope: Scope, result: ir.Expr,
               seed: Adjoint) -> Routine[dict[ir.Expr, Adjoint]]:
        """The adjoints of the outside values that ``result``, computed in ``scope``, reads."""
        adjoints: dict[ir.Expr, Adjoint] = {result: seed} if result in self.active else {}
        for node in reversed(self.nodes.get(scope, ())):
            if isinstance(node, ir.Var):
                continue
            # In reverse topological order, all users of the node have contributed by now.
            adjoint = adjoints.pop(node, None)
            if adjoint is None:
                continue
            if isinstance(node, (ir.If, ir.Match)) and node not in self.pullbacks:
                contributions = yield self._recomputed(node, adjoint)
            else:
                contributions = self._operands(node, adjoint)
            for operand, contribution in contributions:
                if contribution is not None and operand in self.active:
                    adjoints[operand] = self.adjoints.sum_of(adjoints.get(operand), contribution)
        return adjoints

    def _branch(
        self, node: ir.If | ir.Match, index: int, seed: Adjoint
    ) -> Routine[dict[ir.Expr, Adjoint]]:
        """The adjoints of the outside values that a branch reads, including the matched value."""
        scope, branch = self.scopes.inner[node, _position(node, index)], branches_of(node)[index]
        found: dict[ir.Expr, Adjoint] = yield self._sweep(scope, branch, seed)
        if isinstance(node, ir.Match):
            pattern = node.clauses[index].lhs
            data = self.adjoints.of_pattern(pattern, found, type_of(node.data))
            if data is not None:
                found[node.data] = self.adjoints.sum_of(found.get(node.data), data)
        return found

    def _recomputed(
        self, node: ir.If | ir.Match, adjoint: Adjoint
    ) -> Routine[list[tuple[ir.Expr, Adjoint]]]:
        """Differentiate a choice as a choice whose branches sweep over copies of the branches.

        Each branch computes its values again, so that the branch not taken is not evaluated.
        """
        seed = self.adjoints.written(adjoint, node)
        found: list[Mapping[ir.Expr, Adjoint]] = []
        for index in range(len(branches_of(node))):
            found.append((yield self._branch(node, index, seed)))  # noqa: PERF401 - cannot yield
        operands = tuple(dict.fromkeys(operand for adjoints in found for operand in adjoints))
        if not operands:
            return []
        stops = {seed, *(seed.fields if isinstance(seed, ir.Tuple) else ())}
        results = []
        for index, adjoints in enumerate(found):
            inside = self._inside(self.scopes.inner[node, _position(node, index)])

            def is_outside(n: ir.Expr, inside: AbstractSet[ir.Expr] = inside) -> bool:
                return n in stops or (n in self.forward and n not in inside)

            results.append(copied_branch(self._written(adjoints, operands), inside, is_outside))
        choice = self._choice(node, results).with_type(self._adjoint_type(operands))
        return [(o, field_adjoint(choice, i)) for i, o in enumerate(operands)]

    def _inside(self, scope: Scope) -> set[ir.Expr]:
        """The nodes of the value that are computed in ``scope`` or in a scope inside of it."""
        pending = [scope]
        found: set[ir.Expr] = set()
        for current in pending:  # the loop appends inner scopes
            nodes = self.nodes.get(current, ())
            found.update(self.new[n] for n in nodes if ir.children(n))
            for node in nodes:
                if isinstance(node, (ir.If, ir.Match)):
                    count = len(branches_of(node))
                    pending += [self.scopes.inner[node, _position(node, i)] for i in range(count)]
        return found

    def _operands(self, node: ir.Expr, adjoint: Adjoint) -> list[tuple[ir.Expr, Adjoint]]:
        """The contribution of the adjoint of ``node`` to each operand."""
        pullback = self.pullbacks.get(node)
        if pullback is not None:
            return self._pulled_back(node, adjoint, pullback)
        if isinstance(node, ir.Call) and node in self.customs:
            return self._by_rule(node, adjoint)
        if isinstance(node, ir.Tuple):
            return [(part, field_adjoint(adjoint, i)) for i, part in enumerate(node.fields)]
        if isinstance(node, ir.TupleGetItem):
            whole = type_of(node.tuple_value)
            count = len(whole.fields) if isinstance(whole, ir.TupleType) else 0
            return [(node.tuple_value, one_field(adjoint, node.index, count))]
        if isinstance(node, ir.Call) and isinstance(node.op, ir.Op):
            return self._operator(node, node.op, adjoint)
        if isinstance(node, ir.Call) and isinstance(node.op, ir.Constructor):
            return self._constructor(node, node.op, adjoint)
        if isinstance(node, ir.Call) and isinstance(node.op, ir.GlobalVar):
            return self._function(node, node.op, adjoint)
        raise PassError(f"cannot differentiate through {type(node).__name__}", where=node.span,
                        expected="operators, tuples, data, branches and calls of functions")

    def _by_rule(self, call: ir.Call, adjoint: Adjoint) -> list[tuple[ir.Expr, Adjoint]]:
        rule, saved = self.customs[call]
        grads = rule.gradients(saved, self.adjoints.as_gradient(adjoint, self.new[call]))
        floats = [a for a in call.args if self._is_float(a)]
        return [(a, self.adjoints.from_gradient(g, type_of(a)))
                for a, g in zip(floats, grads, strict=True)]

    def _pulled_back(
        self, node: ir.Expr, adjoint: Adjoint, pullback: _Pullback
    ) -> list[tuple[ir.Expr, Adjoint]]:
        seed = self.adjoints.written(adjoint, node)
        result = self._adjoint_type(pullback.operands)
        grads = ir.Call(pullback.function, (seed,), span=node.span, checked_type=result)
        return [(o, field_adjoint(grads, i)) for i, o in enumerate(pullback.operands)]

    def _constructor(
        self, call: ir.Call, constructor: ir.Constructor, adjoint: Adjoint
    ) -> list[tuple[ir.Expr, Adjoint]]:
        if not any(map(self._is_float, call.args)) or not isinstance(adjoint, ir.Expr):
            return []
        made = self.new[call]
        assert isinstance(made, ir.Call)
        grads = self.adjoints.fields_of_data(adjoint, made, constructor)
        return [(a, field_adjoint(grads, i)) for i, a in enumerate(call.args)]

    def _function(
        self, call: ir.Call, callee: ir.GlobalVar, adjoint: Adjoint
    ) -> list[tuple[ir.Expr, Adjoint]]:
        operands = tuple(a for a in call.args if self._is_float(a))
        if not operands:
            return []
        args = (*(self.new[a] for a in call.args), self.adjoints.written(adjoint, call))
        result = self._adjoint_type(operands)
        signature = ir.FuncType(tuple(map(type_of, args)), result)
        target = ir.GlobalVar(self.calls.product(callee.name), span=call.span,
                              checked_type=signature)
        grads = ir.Call(target, args, span=call.span, checked_type=result)
        return [(a, field_adjoint(grads, i)) for i, a in enumerate(operands)]

    def _operator(
        self, call: ir.Call, operator: ir.Op, adjoint: Adjoint
    ) -> list[tuple[ir.Expr, Adjoint]]:
        if not any(map(self._is_float, call.args)):
            return []
        # A registered rule wins over the trait: a straight-through estimator replaces a derivative
        # that is zero by a useful one (Bengio et al. 2013).
        rule = operator.gradient_rule
        if rule is None and operator.traits.has_zero_gradient:
            return []
        if rule is None:
            raise PassError(f"missing gradient of {operator.name}", where=call.span,
                            help=f'register one: @get_op("{operator.name}").gradient')
        made = self.new[call]
        assert isinstance(made, ir.Call)
        dy = self.adjoints.as_gradient(adjoint, made)
        grads = checked_gradients(made, operator, rule, dy)
        return [(a, self.adjoints.from_gradient(g, type_of(a)) if self._is_float(a) else None)
                for a, g in zip(call.args, grads, strict=True)]

    # -- helpers ---------------------------------------------------------------------------------

    def _is_float(self, node: ir.Expr) -> bool:
        return self.adjoints.types.is_differentiable(type_of(node))

    def _adjoint_type(self, operands: Sequence[ir.Expr]) -> ir.TupleType:
        return ir.TupleType(tuple(self.adjoints.types.of(type_of(o)) for o in operands))

    def _written(self, adjoints: Mapping[ir.Expr, Adjoint], operands: Sequence[ir.Expr]) -> ir.Expr:
        grads = tuple(self.adjoints.written(adjoints.get(o), self.new[o]) for o in operands)
        return ir.Tuple(grads, checked_type=self._adjoint_type(operands))


def _position(node: ir.If | ir.Match, index: int) -> int:
    """The position of a branch among the children of ``node``."""
    if isinstance(node, ir.If):
        return index + 1
    bound = sum(len(ir.pattern_vars(c.lhs)) for c in node.clauses[: index + 1])
    return 1 + bound + index


def _field(pair: ir.Expr, index: int) -> ir.Expr:
    type_ = type_of(pair)
    assert isinstance(type_, ir.TupleType)
    return ir.TupleGetItem(pair, index, span=pair.span, checked_type=type_.fields[index])
