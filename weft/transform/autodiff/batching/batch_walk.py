"""Vectorises function bodies: each value of one example becomes the values of a batch.

Which tensors of a value have the batch as an axis is its ``Mapped`` (``batch_types``). The walk
computes it together with the vectorised node, operands first, and so evaluates only once what all
examples share.

Recursive functions need a fixed point: what a call returns depends on the body that contains it.
``Vectoriser`` starts from the least value (nothing mapped but what the convention maps), and
vectorises again until no parameter and no result becomes mapped that was not before. ``join`` only
adds mapped tensors, of which a type has finitely many, so the iteration ends.

Control flow that differs between examples has three cases, as in whole-function vectorization
(Karrenberg and Hack, "Whole-Function Vectorization", CGO 2011) and in JAX's batching of
``while_loop`` and ``cond``:

- An ``if`` without recursive calls evaluates both branches and selects per example.
- A tail-recursive function is a loop that runs until all examples are done (``divergent_loop``).
- Everything else runs example by example (``one_by_one``), in the smallest enclosing function of
  tensors: the walk raises ``NotVectorisedError``, and the function that can contain it catches it.

Walks are routines on an explicit stack (``weft.ir.visitor``), since calls may nest deeply.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from typing import Any

from weft import ir, op
from weft.ir.visitor import Routine
from weft.op.gradients import field_of
from weft.support.dataclass import dataclass
from weft.support.errors import InternalError
from weft.transform.analysis.graph import parts_of, traits_of, type_of
from weft.transform.autodiff.batching import batch_operator, batch_types
from weft.transform.autodiff.batching.divergent_loop import DivergentLoop, divergent_loop
from weft.transform.autodiff.batching.example_loop import example_loop
from weft.transform.autodiff.batching.one_by_one import (
    can_run_one_by_one,
    one_by_one,
)
from weft.transform.autodiff.reverse.adjoint_types import data_with
from weft.transform.autodiff.reverse.custom_rules import JVP, VJP, has_custom_rule
from weft.transform.autodiff.reverse.pure_graph import pure_graph


@dataclass(frozen=True, slots=True)
class Key:
    """A version of a function: which tensors of its parameters are mapped.

    ``by_convention``: the function is used as a value, so all its parameters are mapped.
    """

    name: str
    mapped: tuple[batch_types.Mapped, ...]
    by_convention: bool = False


class DivergentRecursionError(Exception):
    """Examples disagree on a condition that decides about recursive calls of a function."""


@dataclass
class Vectoriser:
    """The vectorised functions of a module, made on demand.

    A recursive function has one version: the join over all its calls. While bodies are vectorised,
    more tensors of its parameters (``joined``) and results (``results``) become mapped. ``changed``
    says that this happened, so the bodies made so far are outdated (``restart``).
    """

    mod: ir.IRModule
    size: ir.Dim
    groups: Mapping[str, frozenset[str]]
    loops: list[str] = field(default_factory=list)  # operators that run example by example
    further: dict[str, ir.Function] = field(default_factory=dict)  # loops over examples
    made: dict[Key, ir.Function] = field(default_factory=dict)
    names: dict[Key, str] = field(default_factory=dict)
    results: dict[Key, batch_types.Mapped] = field(default_factory=dict)
    joined: dict[str, tuple[batch_types.Mapped, ...]] = field(default_factory=dict)
    divergent: set[str] = field(default_factory=set)
    apart: set[str] = field(default_factory=set)  # functions that run example by example
    started: set[Key] = field(default_factory=set)
    changed: bool = False

    @functools.cached_property
    def fixed(self) -> frozenset[str]:
        """The data types whose definitions mention tensor types."""
        return data_with(self.mod.type_definitions, lambda part: isinstance(part, ir.TensorType))

    def restart(self) -> None:
        """Start another iteration towards the fixed point; ``joined`` and ``results`` are kept."""
        self.made.clear()
        self.started.clear()
        self.loops.clear()
        self.further.clear()
        self.changed = False

    def key_of(self, name: str, mapped: tuple[batch_types.Mapped, ...], *,
               by_convention: bool = False) -> Key:
        """The version of ``@name`` for arguments that are ``mapped`` like this."""
        fn = self.mod[name]
        by_convention = by_convention or has_custom_rule(fn)  # the types of rules follow
        if by_convention or fn.type_params:
            mapped = (True,) * len(mapped)
        if not self.groups[name]:
            return Key(name, mapped, by_convention)
        known = self.joined.get(name, mapped)
        wider = tuple(map(batch_types.join, known, mapped))
        if self.joined.get(name) != wider:
            self.changed = self.changed or name in self.joined
            self.joined[name] = wider
        return Key(name, wider, by_convention)

    def name_of(self, key: Key) -> str:
        """The name of a vectorised function."""
        if key not in self.names:
            name, number = f"{key.name}_batched", 1
            while name in self.mod or name in self.names.values():
                number += 1
                name = f"{key.name}_batched{number}"
            self.names[key] = name
        return self.names[key]

    def function(self, key: Key) -> Routine[batch_types.Mapped]:
        """Make the function of ``key`` unless it exists; returns the ``Mapped`` of its result."""
        if key not in self.started:
            self.started.add(key)
            self.made[key] = yield self._made(key)
        fn = self.mod[key.name]
        return self.results.get(key, batch_types.least_mapped(_return_type(fn)))

    def _made(self, key: Key) -> Routine[ir.Function]:
        """The function of ``key``: for all examples together, else for one after the other."""
        fn = self.mod[key.name]
        if key.name not in self.apart:
            try:
                return (yield self._vectorised(key))
            except batch_types.NotVectorisedError:
                self.started.discard(key)
                if not can_run_one_by_one(fn, key.mapped):
                    raise
                self.apart.add(key.name)
                self.started.add(key)
        if self.results.get(key) is not True:
            self.results[key] = True
            self.changed = self.changed or bool(self.groups[key.name])
        made = self.one_by_one(fn, key.name, key.mapped)
        attrs = yield self._rules(fn)
        return made.replace(attrs=attrs)

    def one_by_one(self, fn: ir.Function, name: str,
                   mapped: Sequence[batch_types.Mapped]) -> ir.Function:
        """``fn``, which is ``@name``, called for each example."""
        self.loops.append(f"@{name}")
        loop = self.unused(f"{name}_each")
        made, further = one_by_one(fn, name, mapped, self.size, loop)
        self.further |= further
        return made

    def unused(self, name: str) -> str:
        """``name``, lengthened until no function has it."""
        while name in self.mod or name in self.further or name in self.names.values():
            name += "_"
        return name

    def _vectorised(self, key: Key) -> Routine[ir.Function]:
        fn = self.mod[key.name]
        if self.groups[key.name] and _holds_function(_return_type(fn)):
            raise batch_types.NotVectorisedError(
                f"vmap of a recursive function that returns functions: @{key.name}",
                where=fn.span, got=_return_type(fn),
                help="call it in a function of tensors, which then runs example by example")
        params = tuple(ir.Var(p.name, batch_types.type_with_batch(type_of(p), f, self.size),
                              span=p.span)
                       for p, f in zip(fn.params, key.mapped, strict=True))
        body = pure_graph(fn.body)
        while True:
            walk = BodyWalk(self, key, body)
            walk.memo = {p: (v, f) for p, v, f in zip(fn.params, params, key.mapped, strict=True)}
            try:
                if key.name in self.divergent:
                    loop = divergent_loop(fn, body, key.name)
                    made, mapped = yield walk.loop(loop)
                else:
                    made, mapped = yield walk.run(body)
                break
            except DivergentRecursionError:
                self._check_alone(fn, key.name)
                self.divergent.add(key.name)
        wanted: batch_types.Mapped = True if key.by_convention or fn.type_params else mapped
        wanted = batch_types.join(wanted, self.results.get(key, False))
        if self.results.get(key, batch_types.least_mapped(_return_type(fn))) != wanted:
            self.changed = self.changed or bool(self.groups[key.name])
        self.results[key] = wanted
        result = batch_types.add_batch(made, body, mapped, wanted, self.size)
        rules = yield self._rules(fn)
        return fn.replace(params=params, body=result, checked_type=None, attrs=rules,
                          ret_type=batch_types.type_with_batch(type_of(body), wanted, self.size))

    def _check_alone(self, fn: ir.Function, name: str) -> None:
        """Refuse functions that call each other: only a function that calls itself is a loop."""
        others = sorted(self.groups[name] - {name})
        if others:
            raise batch_types.NotVectorisedError(
                f"vmap of @{name}: the depth of the recursion differs between examples",
                where=fn.span, got=f"calls of @{name} by @{', @'.join(others)}",
                help="write it as a function that calls itself")

    def _rules(self, fn: ir.Function) -> Routine[dict[str, Any]]:
        """The attributes of ``fn``, with the vectorised functions that its rules name."""
        attrs = dict(fn.attrs)
        for attribute in (JVP, VJP):
            if attribute in attrs:
                given = attrs[attribute]
                names = []
                for rule in (given,) if isinstance(given, str) else given:
                    count = len(self.mod[rule].params)
                    key = self.key_of(rule, (True,) * count, by_convention=True)
                    yield self.function(key)
                    names.append(self.name_of(key))
                attrs[attribute] = names[0] if isinstance(given, str) else tuple(names)
        return attrs


def _holds_function(type_: ir.Type | None) -> bool:
    pending = [type_]
    while pending:
        part = pending.pop()
        if isinstance(part, ir.FuncType):
            return True
        pending.extend(part.fields if isinstance(part, ir.TupleType) else ())
    return False


def _return_type(fn: ir.Function) -> ir.Type | None:
    type_ = fn.checked_type
    return type_.ret_type if isinstance(type_, ir.FuncType) else fn.ret_type


@dataclass
class BodyWalk:
    """Vectorises the body of one function; ``memo`` holds each node's value and ``Mapped``."""

    owner: Vectoriser
    key: Key
    body: ir.Expr
    memo: dict[ir.Expr, tuple[ir.Expr, batch_types.Mapped]] = field(default_factory=dict)
    recursive: set[ir.Expr] = field(default_factory=set)  # nodes that contain calls of the group
    clauses: dict[ir.Var, ir.Match] = field(default_factory=dict)

    def run(self, body: ir.Expr) -> Routine[tuple[ir.Expr, batch_types.Mapped]]:
        """The vectorised ``body`` and its ``Mapped``."""
        group = self.owner.groups[self.key.name]
        for node in ir.post_order(body):
            calls = isinstance(node, ir.GlobalVar) and node.name in group
            if calls or any(c in self.recursive for c in ir.children(node)):
                self.recursive.add(node)
        return (yield self._visit_all(body))

    def _visit_all(self, body: ir.Expr) -> Routine[tuple[ir.Expr, batch_types.Mapped]]:
        for node in ir.post_order(body, enter=lambda e: e not in self.memo):
            if node not in self.memo and not isinstance(node, (ir.GlobalVar, ir.Op,
                                                               ir.Constructor)):
                self.memo[node] = yield self._visit(node)
        return (yield self._value(body))

    def loop(self, loop: DivergentLoop) -> Routine[tuple[ir.Expr, batch_types.Mapped]]:
        """The body of a loop that runs until all examples are done."""
        continues, _ = yield self._with_batch(loop.continues, True)
        next_params = []
        for value in loop.next_params:
            after = yield self._visit_all(value)
            next_params.append(after)
        mapped = tuple(f for _, f in next_params)
        key = self.owner.key_of(self.key.name, mapped)
        args = tuple(batch_types.add_batch(v, e, f, w, self.owner.size) for (v, f), e, w
                     in zip(next_params, loop.next_params, key.mapped, strict=True))
        result, result_mapped = yield self._visit_all(loop.result)
        again = ir.Call(ir.GlobalVar(self.owner.name_of(key)), args, span=self.body.span)
        return ir.If(op.any(continues), again, result, span=self.body.span), result_mapped

    def _with_batch(self, node: ir.Expr,
                      want: batch_types.Mapped) -> Routine[tuple[ir.Expr, batch_types.Mapped]]:
        value, mapped = yield self._visit_all(node)
        wanted = batch_types.join(want, mapped)
        return batch_types.add_batch(value, node, mapped, wanted, self.owner.size), wanted

    def _value(self, node: ir.Expr) -> Routine[tuple[ir.Expr, batch_types.Mapped]]:
        """The value of an operand, which may be a function or a constructor."""
        if isinstance(node, ir.GlobalVar):
            count = len(self.owner.mod[node.name].params)
            key = self.owner.key_of(node.name, (True,) * count, by_convention=True)
            yield self.owner.function(key)
            return ir.GlobalVar(self.owner.name_of(key), span=node.span), False
        if isinstance(node, (ir.Op, ir.Constructor)):
            return node, False
        return self.memo[node]

    def _values(self, nodes: Iterable[ir.Expr]) -> Routine[list[tuple[ir.Expr,
                                                                      batch_types.Mapped]]]:
        found = []
        for node in nodes:
            value = yield self._value(node)
            found.append(value)
        return found

    def _visit(self, node: ir.Expr) -> Routine[tuple[ir.Expr, batch_types.Mapped]]:
        if isinstance(node, ir.Var):
            return self._bound(node)
        if isinstance(node, ir.Constant):
            return node, False
        if isinstance(node, ir.Call):
            return (yield self._call(node))
        if isinstance(node, ir.Tuple):
            parts = yield self._values(node.fields)
            return (node.replace(fields=tuple(p for p, _ in parts)),
                    batch_types.tuple_of([f for _, f in parts]))
        if isinstance(node, ir.TupleGetItem):
            value, mapped = yield self._value(node.tuple_value)
            made = node.replace(tuple_value=value) if not isinstance(value, ir.Tuple) \
                else field_of(value, node.index)
            return made, batch_types.field_mapped(mapped, node.index)
        if isinstance(node, ir.If):
            return (yield self._choice(node))
        if isinstance(node, ir.Match):
            return (yield self._match(node))
        if isinstance(node, ir.Function):
            return (yield self._closure(node))
        if isinstance(node, (ir.RefCreate, ir.RefRead, ir.RefWrite)):
            raise batch_types.NotVectorisedError("vmap of references", where=node.span,
                                                 help="keep them inside a function of tensors")
        raise InternalError("vmap met an unknown node", got=type(node).__name__)

    def _bound(self, var: ir.Var) -> tuple[ir.Expr, batch_types.Mapped]:
        """A variable of a pattern or of a function that is a value: by convention with batch."""
        mapped = not isinstance(type_of(var), ir.FuncType)
        type_ = batch_types.type_with_batch(type_of(var), mapped, self.owner.size)
        return ir.Var(var.name, type_ if var.annotation is not None else None, span=var.span,
                      checked_type=type_), mapped

    def _closure(self, node: ir.Function) -> Routine[tuple[ir.Expr, batch_types.Mapped]]:
        body, mapped = yield self._value(node.body)
        result = batch_types.add_batch(body, node.body, mapped, True, self.owner.size)
        params = tuple(self.memo[p][0] for p in node.params)
        ret_type = batch_types.type_with_batch(type_of(node.body), True, self.owner.size)
        return ir.rebuild(node, (*params, result), ret_type=ret_type), False

    def _check_data(self, node: ir.Expr) -> None:
        """Refuse data whose definition says the types of tensors, which then have no batch."""
        type_ = type_of(node)
        if any(isinstance(p, ir.GlobalTypeVar) and p.name in self.owner.fixed
               for p in parts_of(type_)):
            raise batch_types.NotVectorisedError(f"vmap of data that holds {type_} by definition",
                                                 where=node.span, help="make the data type generic")

    def _match(self, node: ir.Match) -> Routine[tuple[ir.Expr, batch_types.Mapped]]:
        self._check_data(node.data)
        data, mapped = yield self._value(node.data)
        data = batch_types.add_batch(data, node.data, mapped, True, self.owner.size)
        parts: list[ir.Expr] = [data]
        sides = yield self._values(c.rhs for c in node.clauses)
        wanted: batch_types.Mapped = False
        for _, side in sides:
            wanted = batch_types.join(wanted, side)
        for clause, (rhs, have) in zip(node.clauses, sides, strict=True):
            parts += [self.memo[v][0] for v in ir.pattern_vars(clause.lhs)]
            parts.append(batch_types.add_batch(rhs, clause.rhs, have, wanted, self.owner.size))
        return ir.rebuild(node, parts), wanted

    def _choice(self, node: ir.If) -> Routine[tuple[ir.Expr, batch_types.Mapped]]:
        (cond, decides), (yes, a), (no, b) = yield self._values(ir.children(node))
        if not batch_types.has_batch(decides):
            wanted = batch_types.join(a, b)
            sides = [batch_types.add_batch(x, e, f, wanted, self.owner.size) for x, e, f
                     in ((yes, node.true_branch, a), (no, node.false_branch, b))]
            return node.replace(cond=cond, true_branch=sides[0], false_branch=sides[1]), wanted
        if node.true_branch in self.recursive or node.false_branch in self.recursive:
            raise DivergentRecursionError
        if yes is no:
            return yes, a
        _refuse_effects(node)
        whole = [batch_types.add_batch(x, e, f, True, self.owner.size) for x, e, f
                 in ((yes, node.true_branch, a), (no, node.false_branch, b))]
        return batch_types.select(cond, whole[0], whole[1], node, self.owner.size), True

    def _call(self, node: ir.Call) -> Routine[tuple[ir.Expr, batch_types.Mapped]]:
        args = yield self._values(node.args)
        if isinstance(node.op, ir.Op):
            return (yield self._operator(node, args))
        if isinstance(node.op, ir.GlobalVar):
            key = self.owner.key_of(node.op.name, tuple(f for _, f in args))
            mapped = yield self.owner.function(key)
            callee: ir.Expr = ir.GlobalVar(self.owner.name_of(key), span=node.op.span)
            wanted: tuple[batch_types.Mapped, ...] = key.mapped
        else:
            if isinstance(node.op, ir.Constructor):
                self._check_data(node)
            callee, _ = yield self._value(node.op)
            wanted, mapped = (True,) * len(args), True
        new = tuple(batch_types.add_batch(x, e, f, w, self.owner.size)
                    for (x, f), e, w in zip(args, node.args, wanted, strict=True))
        return ir.Call(callee, new, node.attrs, span=node.span), mapped

    def _operator(self, node: ir.Call, args: list[tuple[ir.Expr, batch_types.Mapped]]
                  ) -> Routine[tuple[ir.Expr, batch_types.Mapped]]:
        batched = [batch_types.has_batch(f) for _, f in args]
        size = self.owner.size
        if not any(batched):
            new = tuple(x for x, _ in args)
            return ir.rebuild(node, new, checked_type=node.checked_type), False
        new = tuple(batch_types.add_batch(x, e, f, True, size) if b else x
                    for (x, f), e, b in zip(args, node.args, batched, strict=True))
        result = batch_operator.native(node, new, batched, size)
        if result is None:
            simpler = batch_operator.expanded(node)
            if simpler is not None:
                return (yield self._expansion(node, simpler, new, batched))
            result = self._repeated(node, new, batched)
        return result.with_type(batch_types.type_with_batch(type_of(node), True, size)), True

    def _repeated(self, node: ir.Call, args: tuple[ir.Expr, ...], batched: list[bool]) -> ir.Expr:
        """The call for each example: copies of it for few examples, else a loop."""
        size, owner = self.owner.size, self.owner
        name = node.op.name if isinstance(node.op, ir.Op) else "call"
        batch_operator.check_sizes(node, name)
        owner.loops.append(name)
        if isinstance(size, int) and size <= batch_operator.MOST_COPIES:
            return batch_operator.each_example(node, args, batched, size)
        function = owner.unused(f"{name.replace('.', '_')}_each")
        owner.further[function], result = example_loop(node, args, batched, size, function)
        return result

    def _expansion(
        self, node: ir.Call, simpler: tuple[list[ir.Expr], ir.Expr], args: tuple[ir.Expr, ...],
        batched: list[bool],
    ) -> Routine[tuple[ir.Expr, batch_types.Mapped]]:
        params, body = simpler
        for param, value, is_batched in zip(params, args, batched, strict=True):
            self.memo[param] = value, is_batched
            for index, part in enumerate(param.fields if isinstance(param, ir.Tuple) else ()):
                self.memo[part] = field_of(value, index), is_batched
        made, mapped = yield self._visit_all(body)
        return batch_types.add_batch(made, node, mapped, True, self.owner.size), True


def _refuse_effects(choice: ir.If) -> None:
    """Raise ``PassError`` if a branch has a side effect: for a batch, both branches run."""
    if any(traits_of(n).has_effect for branch in (choice.true_branch, choice.false_branch)
           for n in ir.post_order(branch)):
        raise batch_types.NotVectorisedError(
            "a branch with a side effect, whose condition differs between examples",
            where=choice.span, help="put it in a function of tensors")
