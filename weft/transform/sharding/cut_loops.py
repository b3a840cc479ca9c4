"""How branches and loops are cut.

Both branches of a condition give a tensor in one sharding, which is the cheaper one of theirs. All
devices take the same branch, so the condition is whole on each.

The state of a loop has one sharding in all iterations, and is a fixed point of the body: the state
goes in as the initial values are cut, and then as the body made it, until it comes out as it went
in. If it does not, an iteration ends with the collectives that bring it there. Of the shardings
that were met on the way, the one wins whose iteration costs the least. A tensor that is free, such
as a weight or a constant initial state, takes what its first use in the body chooses.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from weft.ir import Call, Expr, Function, GlobalVar, If, Tuple, TupleType, Var, infer_expr
from weft.ir.sharding import Sharding
from weft.op.cut_axes import tensor_types
from weft.support.names import numbered
from weft.transform.sharding.choose import Choice
from weft.transform.sharding.costs import call_cost, nbytes_of
from weft.transform.sharding.loops import Loop, iterations_of
from weft.transform.sharding.reshard import form_cost

if TYPE_CHECKING:
    from weft.transform.sharding.partition import Partition, Value

_MOST_TRIALS = 4  # of shardings of a loop's state


def cut_if(outer: Partition, node: If) -> list[Value]:
    """The tensors of a condition that is no way to the next iteration of a loop."""
    (cond,) = outer.values[node.cond]
    whole = outer.as_(cond, Sharding.replicated(0))
    branches = [outer.values[node.true_branch], outer.values[node.false_branch]]
    shardings = [_agreed(outer, pair) for pair in zip(*branches, strict=True)]
    local = [_tuple_like(node, [outer.as_(v, s) for v, s in zip(each, shardings, strict=True)])
             for each in branches]
    made = infer_expr(If(whole, *local, span=node.span), trust=True)
    return outer.made(node, made, _choice(outer, shardings))


def cut_loop(outer: Partition, call: Call, loop: Loop) -> list[Value]:
    """The tensors that a loop, or another function, gives."""
    given = [v for a in call.args for v in outer.values[a]]
    state: tuple[Sharding | None, ...] = tuple(v.sharding for v in given)
    trials: list[_Trial] = []
    tried: set[tuple[Sharding | None, ...]] = set()
    while state not in tried and len(trials) < _MOST_TRIALS:
        tried.add(state)
        trials.append(_Trial(outer, call, loop, state))
        tried.add(trials[-1].state)
        state = trials[-1].next_state
    best = min(trials, key=lambda t: (t.cost, t.cost_before(given), -t.parts))
    outer.names |= best.inner.names
    outer.functions |= {**best.inner.functions, best.name: best.function}
    first = len(outer.decisions)
    times = iterations_of(loop, [v.node for v in given])
    times = 1 if times is None else times
    outer.iterations |= {**best.inner.iterations, best.name: times}
    outer.decisions += [dataclasses.replace(d, times=d.times * times)
                        for d in best.inner.decisions]
    outer.collectives += [(first + n, c) for n, c in best.inner.collectives]
    args = [outer.as_(v, s) for v, s in zip(given, best.state, strict=True)]
    args += [outer.weight(data, s) for data, s in best.inner.weights.values()]
    made = Call(GlobalVar(best.name), tuple(args), span=call.span,
                checked_type=best.function.ret_type)
    return outer.made(call, made, _choice(outer, best.results))


def _agreed(outer: Partition, values: Sequence[Value]) -> Sharding:
    """The sharding that the values come to with the least exchange."""
    options = {form.sharding: None for v in values for form in v.forms}
    if not options:
        return Sharding.replicated(values[0].type.ndim)
    return min(options, key=lambda s: sum(_cost(outer, v, s) for v in values))


def _cost(outer: Partition, value: Value, sharding: Sharding) -> float:
    nbytes = nbytes_of(value.type)
    return min((form_cost(nbytes, f, sharding, outer.mesh) for f in value.forms), default=0.0)


def _choice(outer: Partition, results: Sequence[Sharding]) -> Choice:
    parts = max((outer.mesh.parts(tuple(s.axes())) for s in results), default=1)
    return Choice((), tuple(results), (), 0.0, parts)


def _tuple_like(node: Expr, tensors: Iterable[Expr]) -> Expr:
    """The tensors as a tuple, if ``node`` is one, else the only one of them."""
    parts = tuple(tensors)
    return Tuple(parts) if isinstance(node.checked_type, TupleType) else parts[0]


class _Trial:
    """The loop for one sharding of its state; ``cost`` is that of an iteration.

    ``parts`` says in how many parts the work is cut.
    """

    def __init__(self, outer: Partition, call: Call, loop: Loop,
                 state: Sequence[Sharding | None]) -> None:
        self.inner = inner = outer.inner()
        self._loop, self._call = loop, call
        self.name = numbered(loop.name, inner.names)
        inner.names.add(self.name)
        for param, sharding in zip(loop.params, state, strict=True):
            inner.enter(param, sharding)
        inner.visit(loop.body, {*loop.again, *loop.conditions})
        self.state = tuple(self._settled(n, p) for n, p in enumerate(loop.params))
        self.next_state = tuple(
            _agreed(inner, values) if any(v.forms for v in values) else s
            for n, s in enumerate(self.state) for values in [self._following(n)]) \
            if loop.again else self.state
        self.function = self._function()
        self.cost = sum(call_cost(c, outer.mesh) for _, c in inner.collectives) + sum(
            d.choice.seconds for d in inner.decisions)
        self.parts = sum(d.choice.parts for d in inner.decisions)

    def cost_before(self, given: Sequence[Value]) -> float:
        """What bringing the initial values into the state costs."""
        return sum(_cost(self.inner, v, s) for v, s in zip(given, self.state, strict=True))

    def _following(self, number: int) -> list[Value]:
        """What becomes of a tensor of the state in an iteration."""
        return [[v for a in call.args for v in self.inner.values[a]][number]
                for call in self._loop.again]

    def _settled(self, number: int, param: Var) -> Sharding:
        """How a tensor of the state is cut; one without a use in the body as it will be."""
        inner = self.inner
        if param not in inner.parameters:
            following = [v for v in self._following(number) if v.forms]
            chosen = _agreed(inner, following) if following else None
            (type_,) = tensor_types(param.checked_type)
            inner.enter(param, chosen or Sharding.replicated(type_.ndim))
        return inner.parameters[param][1]

    def _function(self) -> Function:
        inner, loop = self.inner, self._loop
        again = loop.again
        exits = [inner.values[end] for end in loop.ends if end not in again]
        self.results = [_agreed(inner, values) for values in zip(*exits, strict=True)]
        conditions = [inner.as_(inner.values[node.cond][0], Sharding.replicated(0))
                      for node in loop.conditions]
        following = [self._in(self.state, [v for a in c.args for v in inner.values[a]])
                     for c in again]
        made: dict[Expr, Expr] = {
            end: infer_expr(_tuple_like(self._call, self._in(self.results, inner.values[end])),
                            trust=True) for end in loop.ends if end not in again}
        type_ = next(iter(made.values())).checked_type
        weights = tuple(inner.weights)  # of all paths
        made |= {call: Call(GlobalVar(self.name), (*args, *weights), span=call.span,
                            checked_type=type_)
                 for call, args in zip(again, following, strict=True)}
        for node, cond in zip(loop.conditions, conditions, strict=True):
            made[node] = If(cond, made[node.true_branch], made[node.false_branch],
                            span=node.span, checked_type=type_)
        params = tuple(inner.parameters[p][0] for p in loop.params)
        return Function((*params, *weights), made[loop.body], type_, span=loop.body.span)

    def _in(self, shardings: Sequence[Sharding], values: Sequence[Value]) -> list[Expr]:
        return [self.inner.as_(v, s) for v, s in zip(values, shardings, strict=True)]
