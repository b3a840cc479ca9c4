"""The functions that a first-order program calls, and their call graph.

A function is identified by the variable of its let, or by its global name. Calls are inlined, so
recursive calls must be in tail position (they become loops), and the size of the inlined program is
limited.

Loop-invariant code motion serves the loops. The graph form of the IR does not say where a value is
computed, so a value used only in a loop is computed inside it. Kernels are pure: an invariant one
may be computed once before the loop. Only values that every iteration computes are moved, including
those in branches that continue the loop. If the loop does not iterate at all, they were computed in
vain.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterator
from typing import TypeAlias

from weft.ir import IRModule, Op, Span, children, post_order
from weft.ir.expr import Call, Expr, Function, GlobalVar, If, Let, Tuple, TupleGetItem, Var
from weft.support.errors import UnsupportedModelError
from weft.transform.analysis.graph import enters, is_primitive
from weft.transform.normal_form.to_a_normal_form import Normalizer

FunctionKey: TypeAlias = "Var | str"

# Limit on inlined nodes, counted at each call: nested calls may grow exponentially.
MAX_INLINED_NODES = 20_000


class FunctionCalls:
    """The functions of a program in A-normal form, and those that are being inlined."""

    def __init__(self, mod: IRModule) -> None:
        self._mod = mod
        self._functions: dict[FunctionKey, Function] = {}
        self._sizes: dict[FunctionKey, int] = {}
        self._reached: dict[FunctionKey, dict[FunctionKey, None]] = {}
        self._active: set[FunctionKey] = set()
        self._inlined = 0

    def define(self, var: Var, function: Function) -> None:
        """Register the function of a let; its body is in A-normal form."""
        self._functions[var] = function

    def defines(self, var: Var) -> bool:
        """Whether the value of a let-bound variable is a function."""
        return var in self._functions

    def key_of(self, call: Call) -> FunctionKey | None:
        """The function that ``call`` calls; ``None`` for kernels and computed functions."""
        op = call.op
        if isinstance(op, Var) and op in self._functions:
            return op
        if isinstance(op, GlobalVar) and not is_primitive(self._mod[op]):
            return op.name
        return None

    def enter(self, key: FunctionKey, where: Span | None) -> Function:
        """Start inlining a call at ``where``, and return its function.

        Raises ``UnsupportedModelError`` for recursion outside of tail position, and if the inlined
        program grows too large.
        """
        if key in self._active:
            raise UnsupportedModelError("recursion outside of tail position",
                                        where=where)
        function = self.function(key)
        if key not in self._sizes:
            self._sizes[key] = sum(1 for _ in post_order(function.body, enter=enters))
        self._inlined += self._sizes[key]
        if self._inlined > MAX_INLINED_NODES:
            raise UnsupportedModelError("the program is too large after inlining its functions",
                                        where=where)
        self._active.add(key)
        return function

    def leave(self, key: FunctionKey) -> None:
        """Finish inlining the call that ``enter`` started."""
        self._active.discard(key)

    def is_recursive(self, key: FunctionKey) -> bool:
        """Whether the function may call itself, directly or indirectly."""
        return key in self._reachable(key)

    def changing_parameters(self, key: FunctionKey) -> tuple[int, ...]:
        """The indices of the loop-carried parameters: those that recursive calls may change."""
        function = self.function(key)
        elsewhere = (other for other in self._reachable(key) if other != key)
        if any(key in self._callees(other) for other in elsewhere if isinstance(other, str)):
            return tuple(range(len(function.params)))  # indirect recursion
        calls = [node for node in post_order(function.body, enter=enters)
                 if isinstance(node, Call) and self._called(node) == key]
        return tuple(number for number, parameter in enumerate(function.params)
                     if any(call.args[number] is not parameter for call in calls))

    def ends_in(self, scope: Expr, keys: Container[FunctionKey]) -> bool:
        """Whether ``scope`` ends in a call of one of ``keys``."""
        # In A-normal form, ``let v = f(x); v`` ends in the call.
        while isinstance(scope, Let) and scope.body is not scope.var:
            scope = scope.body
        last = scope.value if isinstance(scope, Let) else scope
        called = self._called(last) if isinstance(last, Call) else None
        return called is not None and called in keys

    def function(self, key: FunctionKey) -> Function:
        """The function of ``key``, in A-normal form."""
        if isinstance(key, str) and key not in self._functions:
            function = self._mod[key]
            self._functions[key] = function.replace(body=Normalizer(function.body).run())
        return self._functions[key]

    def _reachable(self, key: FunctionKey) -> dict[FunctionKey, None]:
        """The functions reachable from ``key`` by calls, in order of discovery."""
        if key not in self._reached:
            found: dict[FunctionKey, None] = {}
            pending = [key]
            while pending:
                callees = [c for c in self._callees(pending.pop()) if c not in found]
                found.update(dict.fromkeys(callees))
                pending += callees
            self._reached[key] = found
        return self._reached[key]

    def _callees(self, key: FunctionKey) -> Iterator[FunctionKey]:
        # An undefined local function is nested in a function that is visited itself.
        if isinstance(key, str) or key in self._functions:
            for node in post_order(self.function(key).body, enter=enters):
                called = self._called(node) if isinstance(node, Call) else None
                if called is not None:
                    yield called

    def _called(self, call: Call) -> FunctionKey | None:
        # Unlike ``key_of``, also for a function whose let has not been lowered yet.
        if isinstance(call.op, Var):
            return call.op
        return self.key_of(call)


def loop_invariants(
    calls: FunctionCalls, key: FunctionKey, changing: Collection[Var]
) -> Iterator[tuple[Var, Expr]]:
    """The invariant lets of the loop ``key``, in order.

    The function is in A-normal form; ``changing`` are its loop-carried parameters.
    """
    varies = set(changing)
    pending: list[Expr] = [calls.function(key).body]
    while pending:
        scope = pending.pop()
        while isinstance(scope, Let) and scope.body is not scope.var:
            if _is_pure(scope.value) and varies.isdisjoint(children(scope.value)):
                yield scope.var, scope.value
            else:
                varies.add(scope.var)
            scope = scope.body
        last = scope.value if isinstance(scope, Let) else scope
        if isinstance(last, If):
            branches = (last.true_branch, last.false_branch)
            pending += [branch for branch in branches if calls.ends_in(branch, (key,))]


def _is_pure(value: Expr) -> bool:
    """Whether ``value`` is a kernel call, a tuple or a projection."""
    if isinstance(value, Call):
        return isinstance(value.op, Op) or (isinstance(value.op, Function)
                                            and is_primitive(value.op))
    return isinstance(value, (Tuple, TupleGetItem))
