"""Statements of a Python function as lets, conditionals, matches and recursive functions."""

from __future__ import annotations

import ast
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from weft.ir import expr
from weft.ir.op import as_expr
from weft.ir.python.python_source import PythonSource, contains, stored_names
from weft.ir.span import Span
from weft.ir.types import Type

Names: TypeAlias = dict[str, Any]
# Makes the value of a block that does not return, from the names at its end.
Tail: TypeAlias = Callable[[Names], expr.Expr]
_LOOPS = (ast.Return, ast.Break, ast.Continue)


class BlockReader:
    """Reads statements; ``annotation`` makes a type of a syntax tree."""

    def __init__(
        self, source: PythonSource, annotation: Callable[[ast.expr, Names], Type | None]
    ) -> None:
        self.source = source
        self.annotation = annotation

    def function(self, tree: ast.FunctionDef, names: Names) -> expr.Function:
        """The function that ``tree`` defines, with ``names`` in scope."""
        inner = dict(names)
        params = []
        args = tree.args
        if args.vararg or args.kwarg or args.kwonlyargs or args.defaults:
            self.source.fail(tree, "unsupported parameters", help="name each, without defaults",
                             expected="positional parameters without defaults")
        for arg in (*args.posonlyargs, *args.args):
            type_ = self.annotation(arg.annotation, names) if arg.annotation else None
            params.append(expr.Var(arg.arg, type_, span=self.source.span(arg)))
            inner[arg.arg] = params[-1]
        ret_type = self.annotation(tree.returns, names) if tree.returns else None
        body = self.block(tree.body, inner, None)
        return expr.Function(tuple(params), body, ret_type, span=self.source.span(tree))

    def block(self, statements: Sequence[ast.stmt], names: Names, tail: Tail | None) -> expr.Expr:
        """The value of ``statements``; ``tail`` ends a block that does not return."""
        return _Block(self, names, tail).read(statements)

    def value(self, node: ast.expr, names: Names) -> Any:
        """The value of an expression in Python: a node of the IR or a Python object."""
        return eval(self.source.compiled(node), names)  # noqa: S307 - the user's own code


class _Block:
    """A block being read: its lets so far, and the values of its names."""

    def __init__(self, reader: BlockReader, names: Names, tail: Tail | None) -> None:
        self.reader = reader
        self.source = reader.source
        self.names = names
        self.tail = tail
        self.lets: list[tuple[expr.Var, expr.Expr, Span]] = []

    def read(self, statements: Sequence[ast.stmt]) -> expr.Expr:
        result = self._run(statements)
        if result is None:
            if self.tail is None:
                last = statements[-1]
                self.source.fail(last, "the function ends without a result", help="add a return")
            result = self.tail(self.names)
        for variable, value, span in reversed(self.lets):
            result = expr.Let(variable, value, result, span=span)
        return result

    def _run(self, statements: Sequence[ast.stmt]) -> expr.Expr | None:
        pending = deque(statements)
        while pending:
            statement = pending.popleft()
            if isinstance(statement, ast.Return):
                if statement.value is None:
                    return expr.Tuple((), span=self.source.span(statement))
                return as_expr(self._value(statement.value))
            if isinstance(statement, ast.If):
                cond = self._value(statement.test)
                if not isinstance(cond, expr.Expr):  # known while the program is built
                    pending.extendleft(reversed(statement.body if cond else statement.orelse))
                    continue
                result = self._branches(statement, cond, list(pending))
            elif isinstance(statement, ast.Match):
                result = self._branches(statement, self._value(statement.subject), list(pending))
            else:
                result = self._statement(statement)
            if result is not None:
                return result
        return None

    # -- simple statements -----------------------------------------------------------------------

    def _statement(self, statement: ast.stmt) -> None:
        if isinstance(statement, ast.Assign):
            for target in statement.targets:
                self._assign(target, self._value(statement.value))
        elif isinstance(statement, ast.AnnAssign) and statement.value is not None:
            type_ = self.reader.annotation(statement.annotation, self.names)
            self._assign(statement.target, self._value(statement.value), type_)
        elif isinstance(statement, ast.AugAssign):
            self._assign(statement.target, self._value(_spelled_out(statement)))
        elif isinstance(statement, ast.FunctionDef):
            self._inner_function(statement)
        elif isinstance(statement, ast.While):
            self._while(statement)
        elif isinstance(statement, ast.For):
            self._for(statement)
        elif isinstance(statement, ast.Expr):
            value = self._value(statement.value)
            if isinstance(value, expr.Expr):
                self._let("_", value, statement)  # for its side effects
        elif not isinstance(statement, ast.Pass):
            self.source.fail(statement, "unsupported statement",
                             expected="assignments, if, while, for, match, def, return",
                             help="move it out of the function")

    def _value(self, node: ast.expr) -> Any:
        return self.reader.value(node, self.names)

    def _let(self, name: str, value: expr.Expr, at: ast.AST, type_: Type | None = None) -> expr.Var:
        variable = expr.Var(name, type_, span=self.source.span(at))
        self.lets.append((variable, value, self.source.span(at)))
        return variable

    def _assign(self, target: ast.expr, value: Any, type_: Type | None = None) -> None:
        if isinstance(target, ast.Name):
            if isinstance(value, expr.Expr) or type_ is not None:
                bare = isinstance(value, expr.Var) and type_ is None
                value = value if bare else self._let(target.id, as_expr(value), target, type_)
            self.names[target.id] = value
        elif isinstance(target, (ast.Tuple, ast.List)):
            self._unpack(target, value)
        else:
            self.source.fail(target, "unsupported assignment target", expected="a name",
                             help="values are immutable")

    def _unpack(self, target: ast.Tuple | ast.List, value: Any) -> None:
        if isinstance(value, expr.Expr):
            whole = self._let("fields", value, target)
            span = self.source.span(target)
            value = [expr.TupleGetItem(whole, i, span=span) for i in range(len(target.elts))]
        if len(value) != len(target.elts):
            self.source.fail(target, f"cannot unpack {len(value)} values", help="name each one",
                             expected=f"{len(target.elts)} values")
        for name, item in zip(target.elts, value, strict=True):
            self._assign(name, item)

    def _inner_function(self, tree: ast.FunctionDef) -> None:
        variable = expr.Var(tree.name, span=self.source.span(tree))
        names = {**self.names, tree.name: variable}
        self.lets.append((variable, self.reader.function(tree, names), self.source.span(tree)))
        self.names[tree.name] = variable

    # -- branches --------------------------------------------------------------------------------

    def _branches(
        self, statement: ast.If | ast.Match, subject: Any, rest: Sequence[ast.stmt]
    ) -> expr.Expr | None:
        """An ``if`` or ``match``; the value of the block if a branch returns."""
        bodies = _bodies(statement)
        if contains([s for body in bodies for s in body], ast.Return):
            # The statements that follow are copied into every branch that does not return.
            return self._choose(statement, subject, rest, self.tail)
        joined = self._joined(bodies)
        chosen = self._choose(statement, subject, (), lambda names: _pack(names, joined))
        for body in bodies:
            for name in stored_names(body):
                self.names.pop(name, None)
        self._rebind(joined, chosen, statement)
        return None

    def _joined(self, bodies: Sequence[Sequence[ast.stmt]]) -> list[str]:
        """Names with a value after every branch."""
        stored = [stored_names(body) for body in bodies]
        every = dict.fromkeys(name for names in stored for name in names)
        return [n for n in every if n in self.names or all(n in names for names in stored)]

    def _rebind(self, joined: Sequence[str], value: expr.Expr, at: ast.AST) -> None:
        if len(joined) == 1:
            self.names[joined[0]] = self._let(joined[0], value, at)
            return
        whole = self._let("joined", value, at)
        for index, name in enumerate(joined):
            field = expr.TupleGetItem(whole, index, span=self.source.span(at))
            self.names[name] = self._let(name, field, at)

    def _choose(self, statement: ast.If | ast.Match, subject: Any, rest: Sequence[ast.stmt],
                tail: Tail | None) -> expr.Expr:
        span = self.source.span(statement)
        if isinstance(statement, ast.If):
            true = self._branch([*statement.body, *rest], {}, tail, statement)
            false = self._branch([*statement.orelse, *rest], {}, tail, statement)
            return expr.If(subject, true, false, span=span)
        clauses = []
        for case in statement.cases:
            if case.guard is not None:
                self.source.fail(case.guard, "unsupported guard of a case",
                                 help="test inside the case")
            bound: Names = {}
            pattern = self._pattern(case.pattern, bound)
            body = self._branch([*case.body, *rest], bound, tail, statement)
            clauses.append(expr.Clause(pattern, body))
        return expr.Match(as_expr(subject), tuple(clauses), span=span)

    def _branch(
        self, statements: Sequence[ast.stmt], bound: Names, tail: Tail | None, at: ast.stmt
    ) -> expr.Expr:
        if not statements and tail is None:
            self.source.fail(at, "not every branch returns", help="add a return to each")
        return self.reader.block(statements, {**self.names, **bound}, tail)

    def _pattern(self, tree: ast.pattern, bound: Names) -> expr.Pattern:
        if isinstance(tree, ast.MatchAs) and tree.pattern is None:
            if tree.name is None:
                return expr.PatternWildcard()
            bound[tree.name] = expr.Var(tree.name, span=self.source.span(tree))
            return expr.PatternVar(bound[tree.name])
        if isinstance(tree, ast.MatchSequence):
            return expr.PatternTuple(tuple(self._pattern(p, bound) for p in tree.patterns))
        if isinstance(tree, ast.MatchClass) and not tree.kwd_attrs:
            constructor = self._value(tree.cls)
            if isinstance(constructor, expr.Constructor):
                inner = tuple(self._pattern(p, bound) for p in tree.patterns)
                return expr.PatternConstructor(constructor, inner)
        return self.source.fail(tree, "unsupported pattern",
                                expected="a constructor, a tuple, a name, or _",
                                help="compare values with if")

    # -- loops -----------------------------------------------------------------------------------

    def _while(self, statement: ast.While) -> None:
        self._refuse_jumps(statement)
        self._loop(statement, stored_names(statement.body),
                   lambda names: self.reader.value(statement.test, names),
                   lambda names, tail: self.reader.block(statement.body, names, tail))

    def _for(self, statement: ast.For) -> None:
        self._refuse_jumps(statement)
        bounds = self._dynamic_range(statement.iter)
        if bounds is None:
            for item in self._value(statement.iter):
                self._assign(statement.target, item)
                self._run(statement.body)
            return
        if not isinstance(statement.target, ast.Name):
            self.source.fail(statement.target, "unsupported loop target", expected="a name",
                             help="a range gives one number")
        counter, (start, stop, step) = statement.target.id, bounds
        self.names[counter] = start

        def body(names: Names, tail: Tail) -> expr.Expr:
            here = names[counter]
            return self.reader.block(
                statement.body, names, lambda after: tail({**after, counter: here + step})
            )

        carried = [counter, *stored_names(statement.body)]
        self._loop(statement, carried, lambda names: names[counter] < stop, body)

    def _dynamic_range(self, tree: ast.expr) -> tuple[Any, Any, Any] | None:
        """Start, stop and step of ``range(..)`` if one of them is an expression of the IR."""
        if not isinstance(tree, ast.Call) or self.names.get("range", range) is not range:
            return None
        if not isinstance(tree.func, ast.Name) or tree.func.id != "range":
            return None
        values = [self._value(arg) for arg in tree.args]
        if not any(isinstance(v, expr.Expr) for v in values):
            return None
        start, stop = (0, values[0]) if len(values) == 1 else values[:2]
        step = values[2] if len(values) > 2 else 1
        if isinstance(step, expr.Expr) or step < 1:
            self.source.fail(tree, "unsupported step of range", help="use while",
                             expected="a number above 0")
        return start, stop, step

    def _refuse_jumps(self, statement: ast.While | ast.For) -> None:
        if statement.orelse or contains(statement.body, *_LOOPS):
            self.source.fail(statement,
                             "return, break, continue and else are not supported in loops",
                             help="put the exit into the condition of a while")

    def _loop(self, statement: ast.stmt, stored: Sequence[str], test: Callable[[Names], Any],
              body: Callable[[Names, Tail], expr.Expr]) -> None:
        carried = [n for n in dict.fromkeys(stored) if n in self.names]
        if not carried:
            self.source.fail(statement, "the loop assigns no variable from outside",
                             help="assign one in its body")
        span = self.source.span(statement)
        loop = expr.Var("loop", span=span)
        params = tuple(expr.Var(name, span=span) for name in carried)
        inner = {**self.names, **dict(zip(carried, params, strict=True))}
        cond = as_expr(test(inner))
        again = body(dict(inner), lambda names: expr.Call(loop, _values(names, carried), span=span))
        done = _pack(inner, carried)
        fn = expr.Function(params, expr.If(cond, again, done, span=span), span=span)
        self.lets.append((loop, fn, span))
        result = expr.Call(loop, _values(self.names, carried), span=span)
        for name in stored:
            self.names.pop(name, None)
        self._rebind(carried, result, statement)


def _bodies(statement: ast.If | ast.Match) -> list[list[ast.stmt]]:
    if isinstance(statement, ast.If):
        return [statement.body, statement.orelse]
    return [case.body for case in statement.cases]


def _spelled_out(statement: ast.AugAssign) -> ast.expr:
    """The expression ``x + y`` of ``x += y``."""
    target = statement.target
    left = ast.Name(target.id, ast.Load()) if isinstance(target, ast.Name) else target
    whole = ast.BinOp(ast.copy_location(left, target), statement.op, statement.value)
    return ast.copy_location(whole, statement)


def _values(names: Names, wanted: Sequence[str]) -> tuple[expr.Expr, ...]:
    return tuple(as_expr(names[name]) for name in wanted)


def _pack(names: Names, wanted: Sequence[str]) -> expr.Expr:
    values = _values(names, wanted)
    return values[0] if len(values) == 1 else expr.Tuple(values)
