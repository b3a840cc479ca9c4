"""Parsing of expressions and functions: recursive descent with an explicit stack."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, ClassVar

from weft.ir import expr
from weft.ir.op import OPS, Op, get_op
from weft.ir.span import Span
from weft.ir.text import parse_types
from weft.ir.text.lexer import Tokens
from weft.ir.text.parse_scope import Metadata, Scope, split_metadata
from weft.ir.visitor import Routine, pattern_vars
from weft.support.dataclass import dataclass
from weft.support.errors import AttrsError, RegistryError


@dataclass(frozen=True, slots=True)
class _Infix:
    """A binary operator; a higher ``level`` binds tighter."""

    op: str
    level: int


_INFIX = {
    "==": _Infix("equal", 1),
    "!=": _Infix("not_equal", 1),
    "<": _Infix("less", 1),
    "<=": _Infix("less_equal", 1),
    ">": _Infix("greater", 1),
    ">=": _Infix("greater_equal", 1),
    "+": _Infix("add", 2),
    "-": _Infix("subtract", 2),
    "*": _Infix("multiply", 3),
    "/": _Infix("divide", 3),
}


_TIGHTEST = 4  # the level of a unary minus; calls and projections bind tighter


class ExpressionParser:
    """One parse: the tokens, and the names in scope."""

    def __init__(self, text: str, source: str) -> None:
        text, metadata = split_metadata(text)
        self.tokens = Tokens(text, source)
        self.metadata = Metadata(metadata, source)
        self.types = parse_types.TypeParser(self.tokens)
        self.scope = Scope()
        self.constructors: dict[str, expr.Constructor] = {}

    def _global_name(self) -> str:
        text = self.tokens.expect_kind("global", "the name of a function, such as @main")
        return str(json.loads(text[1:])) if text.startswith('@"') else text[1:]

    # -- scopes --------------------------------------------------------------------------------

    def _binder(self) -> expr.Var:
        span = self.tokens.span()
        name = self.tokens.expect_kind("local", "a variable, such as %x")
        annotation = self.types.type_() if self.tokens.accept(":") else None
        return expr.Var(name[1:], annotation, span=span)

    def _declare(self, variable: expr.Var) -> None:
        self.scope.bind(f"%{variable.name}", variable)

    def _lookup(self) -> expr.Expr:
        found = self.scope.names.get(self.tokens.text)
        if found is None:
            known = ", ".join(list(self.scope.names)[-8:])
            self.tokens.fail("unbound variable",
                             expected=f"one of {known}" if known else "a variable bound before")
        self.tokens.next()
        return found

    # -- blocks and functions --------------------------------------------------------------------

    def block(self) -> Routine[expr.Expr]:
        """Statements and a result expression, without the braces."""
        tokens = self.tokens
        mark = self.scope.mark()
        lets: list[tuple[expr.Var, expr.Expr, Span]] = []
        while True:
            span = tokens.span()
            if tokens.accept("let"):
                lets.append((yield self._let_statement(span)))
            elif tokens.kind == "local" and tokens.following() == "=":
                name = tokens.next()
                tokens.next()
                value = yield self.expression()
                tokens.expect(";", "a binding ends with a semicolon")
                self.scope.bind(name, value)
            else:
                break
        body = yield self.expression()
        self.scope.leave(mark)
        for variable, value, span in reversed(lets):
            body = expr.Let(variable, value, body, span=span)
        return body

    def _let_statement(self, span: Span) -> Routine[tuple[expr.Var, expr.Expr, Span]]:
        variable = self._binder()
        self.tokens.expect("=")
        if self.tokens.at("fn"):
            self._declare(variable)  # in scope in its own value: a function may be recursive
        value = yield self.expression()
        self.tokens.expect(";", "a let ends with a semicolon")
        self._declare(variable)
        return variable, value, span

    def braced(self) -> Routine[expr.Expr]:
        self.tokens.expect("{")
        body = yield self.block()
        self.tokens.expect("}")
        return body

    def function_rest(self, span: Span) -> Routine[expr.Function]:
        """The remainder of a function after ``fn`` or its name."""
        tokens = self.tokens
        mark, outer_types = self.scope.mark(), dict(self.types.type_vars)
        generics = self.types.generics()
        params: list[expr.Var] = []
        attrs: dict[str, Any] = {}
        tokens.expect("(")
        while not tokens.accept(")"):
            if tokens.kind == "local":
                params.append(self._binder())
                self._declare(params[-1])
            else:
                key = self._attribute_name()
                attrs[key] = parse_types.parse_value(tokens)
            if not tokens.at(")"):
                tokens.expect(",")
        ret_type = self.types.type_() if tokens.accept("->") else None
        body = yield self.braced()
        self.scope.leave(mark)
        self.types.type_vars = outer_types
        return expr.Function(tuple(params), body, ret_type, generics, attrs,
                             span=tokens.since(span))

    def _attribute_name(self) -> str:
        if self.tokens.kind == "string":
            key = parse_types.string_value(self.tokens)
        else:
            key = self.tokens.expect_kind("name", "a parameter or an attribute")
        self.tokens.expect("=")
        return key

    # -- expressions -----------------------------------------------------------------------------

    def expression(self, level: int = 0) -> Routine[expr.Expr]:
        """One expression with its projections, calls and binary operators.

        Operators whose level is at most ``level`` are left to the caller.
        """
        tokens = self.tokens
        span = tokens.span()
        special = self._special.get(tokens.text) if tokens.kind in ("name", "mark") else None
        if special is not None:
            value = yield special(self, span)
        elif tokens.at("-") and not tokens.following()[0].isdigit():
            tokens.next()
            operand = yield self.expression(_TIGHTEST)
            value = get_op("negative")(operand, span=tokens.since(span))
        else:
            value = self._simple(span)
        while True:
            if tokens.kind == "field":
                value = expr.TupleGetItem(value, int(tokens.next()[1:]), span=tokens.since(span))
            elif tokens.at("(") or tokens.at("["):
                value = yield self._call(value, span)
            elif tokens.at("loc") and tokens.following() == "[":
                value = value.replace(span=self._location())
            else:
                infix = _INFIX.get(tokens.text)
                if infix is None or infix.level <= level:
                    return value
                tokens.next()
                right = yield self.expression(infix.level)
                value = get_op(infix.op)(value, right, span=tokens.since(span))

    def _location(self) -> Span:
        """``loc["net.weft", 3, 14, None, 3, 20]``: the source location of the expression."""
        self.tokens.next()
        start = self.tokens.offset
        value = parse_types.parse_value(self.tokens)
        number = (int, type(None))
        kinds = ((str,), number, number, (str, type(None)), number, number)
        if len(value) not in (4, 6) or not all(map(isinstance, value, kinds)):
            self.tokens.fail(
                "invalid source location",
                expected="[source, line, column, node], or with the end: [.., line, column]",
                got=value,
                offset=start,
            )
        return Span(*value)

    def _simple(self, span: Span) -> expr.Expr:
        tokens = self.tokens
        if tokens.kind == "local":
            return self._lookup()
        if tokens.kind == "global":
            return expr.GlobalVar(self._global_name(), span=tokens.since(span))
        if tokens.kind == "number" or tokens.text in ("-", "True", "False"):
            return parse_types.parse_scalar(tokens)
        if tokens.at("const"):
            return parse_types.parse_constant(tokens, self.types)
        if tokens.at("meta"):
            return self._metadata_constant()
        if tokens.kind == "name":
            return self._named()
        return tokens.fail("expected an expression", expected="a variable, a call, a constant, ..")

    def _named(self) -> expr.Expr:
        name = self.tokens.text
        found = self.constructors.get(name) or OPS.find(name)
        if found is None:
            try:
                OPS.get(name)
            except RegistryError as error:
                self.tokens.fail(f"unknown operator or constructor {name!r}", help=error.help)
        self.tokens.next()
        return found  # type: ignore[return-value]

    def _metadata_constant(self) -> expr.Constant:
        tokens = self.tokens
        start = tokens.offset
        tokens.next()
        for mark in ("[", "Constant", "]", "["):
            tokens.expect(mark)
        index = int(tokens.expect_kind("number", "the number of a constant"))
        tokens.expect("]")
        return self.metadata.constant(index, tokens, start)

    def _call(self, callee: expr.Expr, span: Span) -> Routine[expr.Expr]:
        tokens = self.tokens
        type_args = self.types.type_args() if tokens.at("[") else ()
        tokens.expect("(")
        args: list[expr.Expr] = []
        attrs: dict[str, Any] = {}
        while not tokens.accept(")"):
            if tokens.following() == "=" and tokens.kind in ("name", "string"):
                key = self._attribute_name()
                attrs[key] = parse_types.parse_value(tokens)
            else:
                args.append((yield self.expression()))
            if not tokens.at(")"):
                tokens.expect(",")
        if isinstance(callee, Op):
            return self._op_call(callee, args, attrs, span)
        if attrs:
            tokens.fail("only operators take attributes", got=", ".join(attrs))
        return expr.Call(callee, tuple(args), type_args=type_args, span=tokens.since(span))

    def _op_call(self, op: Op, args: list[expr.Expr], attrs: dict[str, Any],
                 span: Span) -> expr.Expr:
        try:
            return op(*args, span=self.tokens.since(span), **attrs)
        except AttrsError as error:
            offset = self.tokens.offset_of(span)
            self.tokens.fail(
                error.what, expected=error.expected, got=error.got, offset=offset, help=error.help
            )

    def _block_expression(self, _: Span) -> Routine[expr.Expr]:
        return (yield self.braced())

    def _function(self, span: Span) -> Routine[expr.Expr]:
        self.tokens.next()
        return (yield self.function_rest(span))

    def _tuple(self, span: Span) -> Routine[expr.Expr]:
        tokens = self.tokens
        tokens.expect("(")
        fields: list[expr.Expr] = []
        comma = False
        while not tokens.accept(")"):
            fields.append((yield self.expression()))
            comma = tokens.accept(",")
            if not comma and not tokens.at(")"):
                tokens.expect(",")
        if len(fields) == 1 and not comma:
            return fields[0]
        return expr.Tuple(tuple(fields), span=tokens.since(span))

    def _if(self, span: Span) -> Routine[expr.Expr]:
        self.tokens.next()
        self.tokens.expect("(")
        cond = yield self.expression()
        self.tokens.expect(")")
        true_branch = yield self.braced()
        self.tokens.expect("else")
        false_branch = yield self.braced()
        return expr.If(cond, true_branch, false_branch, span=self.tokens.since(span))

    def _operands(self, count: int) -> Routine[list[expr.Expr]]:
        self.tokens.next()
        self.tokens.expect("(")
        found = []
        for index in range(count):
            if index:
                self.tokens.expect(",")
            found.append((yield self.expression()))
        self.tokens.expect(")")
        return found

    def _ref(self, span: Span) -> Routine[expr.Expr]:
        (value,) = yield self._operands(1)
        return expr.RefCreate(value, span=self.tokens.since(span))

    def _ref_read(self, span: Span) -> Routine[expr.Expr]:
        (ref,) = yield self._operands(1)
        return expr.RefRead(ref, span=self.tokens.since(span))

    def _ref_write(self, span: Span) -> Routine[expr.Expr]:
        ref, value = yield self._operands(2)
        return expr.RefWrite(ref, value, span=self.tokens.since(span))

    def _match(self, span: Span) -> Routine[expr.Expr]:
        tokens = self.tokens
        tokens.next()
        complete = not tokens.accept("?")
        tokens.expect("(")
        data = yield self.expression()
        tokens.expect(")")
        tokens.expect("{")
        clauses = []
        while not tokens.accept("}"):
            mark = self.scope.mark()
            start = tokens.offset
            pattern = self._pattern()
            names = [v.name for v in pattern_vars(pattern)]
            if len(set(names)) != len(names):
                tokens.fail("a pattern binds a variable twice",
                            expected="one variable for each field",
                            got=", ".join(f"%{n}" for n in names), offset=start)
            tokens.expect("=>")
            clauses.append(expr.Clause(pattern, (yield self.braced())))
            self.scope.leave(mark)
            if not tokens.at("}"):
                tokens.expect(",")
        return expr.Match(data, tuple(clauses), complete, span=tokens.since(span))

    def _pattern(self) -> expr.Pattern:
        tokens = self.tokens
        if tokens.kind == "local":
            variable = self._binder()
            self._declare(variable)
            return expr.PatternVar(variable)
        if tokens.accept("_"):
            return expr.PatternWildcard()
        if tokens.at("("):
            return expr.PatternTuple(self._patterns())
        constructor = self.constructors.get(tokens.text)
        if constructor is None:
            tokens.fail("expected a pattern", expected="a constructor, %x, (..), or _")
        tokens.next()
        return expr.PatternConstructor(constructor, self._patterns() if tokens.at("(") else ())

    def _patterns(self) -> tuple[expr.Pattern, ...]:
        self.tokens.expect("(")
        found = []
        while not self.tokens.accept(")"):
            found.append(self._pattern())
            if not self.tokens.at(")"):
                self.tokens.expect(",")
        return tuple(found)

    _special: ClassVar[dict[str, Callable[[Any, Span], Routine[expr.Expr]]]] = {
        "{": _block_expression,
        "(": _tuple,
        "fn": _function,
        "if": _if,
        "match": _match,
        "ref": _ref,
        "ref_read": _ref_read,
        "ref_write": _ref_write,
    }
