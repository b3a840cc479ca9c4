"""What is known of the functions that a first-order program calls.

A function is known by the variable of its let, or by its global name. Functions are written out
where they are called, so each has to end: a call of itself must be in tail position, and the text
of the whole stay within bounds.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from typing import TypeAlias

from weft.ir.expr import Call, Expr, Function, GlobalVar, Let, Var
from weft.ir.module import IRModule
from weft.ir.visitor import post_order
from weft.support.errors import UnsupportedModelError
from weft.transform.analysis.graph import enters, is_primitive
from weft.transform.normal_form.to_a_normal_form import Normalizer

FunctionKey: TypeAlias = "Var | str"

# Nodes of functions written out, counted at each call: calls of calls may grow without bounds.
MAX_WRITTEN_OUT = 20_000


class FunctionCalls:
    """The functions of a program, in A-normal form, and those that are being written out."""

    def __init__(self, mod: IRModule) -> None:
        self._mod = mod
        self._functions: dict[FunctionKey, Function] = {}
        self._sizes: dict[FunctionKey, int] = {}
        self._reached: dict[FunctionKey, dict[FunctionKey, None]] = {}
        self._active: set[FunctionKey] = set()
        self._written = 0

    def define(self, var: Var, function: Function) -> None:
        """A let that binds a function; the body is in A-normal form."""
        self._functions[var] = function

    def key_of(self, call: Call) -> FunctionKey | None:
        """The function that ``call`` calls, where that is known and no kernel."""
        op = call.op
        if isinstance(op, Var) and op in self._functions:
            return op
        if isinstance(op, GlobalVar) and not is_primitive(self._mod[op]):
            return op.name
        return None

    def enter(self, key: FunctionKey, call: Call) -> Function:
        """The function of ``call``, to be written out.

        Raises ``UnsupportedModelError`` for recursion that is no loop, and past all bounds.
        """
        if key in self._active:
            raise UnsupportedModelError("recursion outside of tail position is not a loop",
                                        where=call.span)
        function = self.function(key)
        if key not in self._sizes:
            self._sizes[key] = sum(1 for _ in post_order(function.body, enter=enters))
        self._written += self._sizes[key]
        if self._written > MAX_WRITTEN_OUT:
            raise UnsupportedModelError("the functions of the program are too large together",
                                        where=call.span)
        self._active.add(key)
        return function

    def leave(self, key: FunctionKey) -> None:
        """The end of what ``enter`` began."""
        self._active.discard(key)

    def is_recursive(self, key: FunctionKey) -> bool:
        """Whether the function can come to call itself."""
        return key in self._reachable(key)

    def changing_parameters(self, key: FunctionKey) -> tuple[int, ...]:
        """The numbers of the parameters for which a call of itself may give another value."""
        function = self.function(key)
        elsewhere = (other for other in self._reachable(key) if other != key)
        if any(key in self._callees(other) for other in elsewhere if isinstance(other, str)):
            return tuple(range(len(function.params)))  # it is called back through another one
        calls = [node for node in post_order(function.body, enter=enters)
                 if isinstance(node, Call) and self._called(node) == key]
        return tuple(number for number, parameter in enumerate(function.params)
                     if any(call.args[number] is not parameter for call in calls))

    def ends_in(self, scope: Expr, keys: Container[FunctionKey]) -> bool:
        """Whether the last thing that ``scope`` does is a call of one of ``keys``."""
        while isinstance(scope, Let) and scope.body is not scope.var:
            scope = scope.body
        last = scope.value if isinstance(scope, Let) else scope
        called = self._called(last) if isinstance(last, Call) else None
        return called is not None and called in keys

    def function(self, key: FunctionKey) -> Function:
        """The function known by ``key``."""
        if isinstance(key, str) and key not in self._functions:
            function = self._mod[key]
            self._functions[key] = function.replace(body=Normalizer(function.body).run())
        return self._functions[key]

    def _reachable(self, key: FunctionKey) -> dict[FunctionKey, None]:
        """The functions that a call of ``key`` may call, in order."""
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
        # A local function that is not defined yet stands inside of one that is looked at.
        if isinstance(key, str) or key in self._functions:
            for node in post_order(self.function(key).body, enter=enters):
                called = self._called(node) if isinstance(node, Call) else None
                if called is not None:
                    yield called

    def _called(self, call: Call) -> FunctionKey | None:
        if isinstance(call.op, Var):
            return call.op
        return self.key_of(call)
