"""Parser of expressions of loop programs, the inverse of ``weft.tir.printer``."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from dataclasses import field

from weft.ir.dtype import DType, bool_, handle
from weft.support.dataclass import dataclass
from weft.support.errors import OptionError, ParseError, WeftError
from weft.tir import expr as x
from weft.tir.buffer import Buffer
from weft.tir.expr import PrimExpr, Var
from weft.tir.instruction import INSTRUCTIONS, call_of
from weft.tir.intrinsics import INTRINSICS
from weft.tir.node import is_real

_TOKEN = re.compile(
    r"\s*(?:(?P<number>\d+\.?\d*(?:e[+-]?\d+)?)|(?P<name>[A-Za-z_][\w.]*)"
    r"|(?P<string>'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\")|(?P<symbol>//|<=|>=|==|!=|[-+*/%<>()\[\],:=]))"
)
# Binary operators with their precedence, as in the printer.
_BINARY: dict[str, tuple[int, type]] = {
    "or": (1, x.Or), "and": (2, x.And), "==": (4, x.EQ), "!=": (4, x.NE), "<": (4, x.LT),
    "<=": (4, x.LE), ">": (4, x.GT), ">=": (4, x.GE), "+": (6, x.Add), "-": (6, x.Sub),
    "*": (7, x.Mul), "/": (7, x.Div), "//": (7, x.FloorDiv), "%": (7, x.FloorMod),
}  # fmt: skip
_NOT = 3


@dataclass(slots=True)
class Names:
    """The variables and buffers in scope, by name."""

    variables: dict[str, Var] = field(default_factory=dict)
    buffers: dict[str, Buffer] = field(default_factory=dict)


@dataclass(slots=True)
class Line:
    """The tokens of one line and the position of the next one; a recursive-descent parser."""

    text: str
    number: int
    names: Names
    tokens: list[tuple[str, str]] = field(default_factory=list)
    position: int = 0

    def __post_init__(self) -> None:
        at, text = 0, self.text.rstrip()
        while at < len(text):
            found = _TOKEN.match(text, at)
            if found is None:
                raise self.error("unexpected character", got=text[at:].strip()[:20])
            self.tokens.append((found.lastgroup or "", found[found.lastgroup or 0]))
            at = found.end()

    def error(self, what: str, *, got: str | None = None, expected: str | None = None,
              ) -> ParseError:
        return ParseError(f"loop program, line {self.number}: {what}", where=self.text.strip(),
                          got=got, expected=expected)

    # tokens

    @property
    def ahead(self) -> str:
        """The next token; empty at the end of the line."""
        return self.tokens[self.position][1] if self.position < len(self.tokens) else ""

    @property
    def kind(self) -> str:
        return self.tokens[self.position][0] if self.position < len(self.tokens) else "end"

    def next(self) -> str:
        token = self.ahead
        self.position += 1
        return token

    def accept(self, token: str) -> bool:
        if self.ahead != token or self.kind == "string":
            return False
        self.position += 1
        return True

    def expect(self, token: str) -> None:
        if not self.accept(token):
            raise self.error("unexpected token", expected=repr(token),
                             got=self.ahead or "the end of the line")

    def name(self) -> str:
        if self.kind != "name":
            raise self.error("expected a name", got=self.ahead or "the end of the line")
        return self.next()

    def end(self) -> None:
        if self.ahead:
            raise self.error("unexpected token at the end of the line", got=self.ahead)

    # expressions

    def expr(self, level: int = 0) -> PrimExpr:
        """An expression whose operators have at least precedence ``level``."""
        if self.accept("not"):
            left: PrimExpr = x.Not(self.expr(_NOT))
        else:
            left = self._atom()
        while self.kind != "string" and self.ahead in _BINARY:
            binding, node = _BINARY[self.ahead]
            if binding < level:
                break
            symbol = self.next()
            right = self.expr(binding + 1)
            if left.dtype is not right.dtype:
                raise self.error(f"operands of {symbol} have different dtypes",
                                 expected=str(left.dtype), got=str(right.dtype))
            left = node(left, right)
        return left

    def expressions(self, close: str) -> tuple[PrimExpr, ...]:
        """Comma-separated expressions up to ``close``."""
        items: list[PrimExpr] = []
        while not self.accept(close):
            if items:
                self.expect(",")
            items.append(self.expr())
        return tuple(items)

    def _atom(self) -> PrimExpr:
        if self.accept("("):
            inner = self.expr()
            self.expect(")")
            return inner
        if self.kind == "number" or self.ahead == "-":
            return self._number()
        if self.kind == "string":
            return x.StringImm(str(ast.literal_eval(self.next())))
        name = self.name()
        if name in ("True", "False"):
            return x.TRUE if name == "True" else x.FALSE
        if name in self.names.buffers:
            return self.access(self.names.buffers[name])
        if self.ahead in ("(", "["):
            return self._call(name)
        if name not in self.names.variables:
            raise self.error(f"undefined name: {name}")
        return self.names.variables[name]

    def _number(self) -> PrimExpr:
        sign = "-" if self.accept("-") else ""
        text = sign + self.next()
        return x.IntImm(int(text)) if text.lstrip("-").isdigit() else x.FloatImm(float(text))

    def access(self, buffer: Buffer) -> x.BufferLoad:
        """An access of ``buffer``: indices, and optionally a predicate."""
        self.expect("[")
        indices: list[PrimExpr] = []
        mask = None
        while not self.accept("]"):
            if self.accept("if"):
                mask = self.expr()
                continue
            if indices:
                self.expect(",")
            indices.append(self.expr())
        return x.BufferLoad(buffer, tuple(indices), mask)

    def _call(self, name: str) -> PrimExpr:
        dtype = _dtype(name)
        if dtype is not None:
            return self._typed(dtype)
        if name not in _FORMS and name not in INTRINSICS:
            kind = "name" if self.ahead == "[" else "intrinsic"
            raise self.error(f"undefined {kind}: {name}")
        result = None
        if self.accept("["):
            result = self.dtype()
            self.expect("]")
        self.expect("(")
        special = _FORMS.get(name)
        if special is not None:
            return special(self)
        args = self.expressions(")")
        try:
            return _intrinsic(name, args, result)
        except WeftError as error:
            raise self.error(str(error)) from error

    def dtype(self) -> DType:
        name = self.name()
        dtype = _dtype(name)
        if dtype is None:
            raise self.error(f"unknown dtype: {name}")
        return dtype

    def _typed(self, dtype: DType) -> PrimExpr:
        """``dtype(value)``: a constant, or a cast."""
        self.expect("(")
        if self.kind == "string":
            value: PrimExpr = x.FloatImm(float(ast.literal_eval(self.next())), dtype)
        else:
            value = self.expr()
            is_literal = type(value) is x.IntImm and value.dtype is x.int64
            if type(value) is x.FloatImm and value.dtype is x.float32 and is_real(dtype):
                value = x.FloatImm(value.value, dtype)
            elif is_literal and not is_real(dtype):
                value = x.IntImm(value.value, dtype)  # type: ignore[attr-defined]
            else:
                value = x.Cast(dtype, value)
        self.expect(")")
        return value

    def integer(self) -> int:
        """A constant integer."""
        value = x.int_value(self.expr())
        if value is None:
            raise self.error("expected a constant integer", got=self.ahead)
        return value


def _dtype(name: str) -> DType | None:
    try:
        return DType.parse(name)
    except OptionError:
        return None


def _intrinsic(name: str, args: tuple[PrimExpr, ...], result: DType | None) -> PrimExpr:
    instruction = INSTRUCTIONS.find(name)
    if instruction is not None:
        return call_of(instruction, args)
    INTRINSICS.get(name)
    if name == "barrier":
        return x.Call(handle, name, args)
    if result is None:
        chosen = args[1 if name == "if_then_else" else 0].dtype
        lanes = chosen.lanes
        result = {"isnan": bool_.vector(lanes), "address_of": handle, "prefetch": handle,
                  "prefetch_l2": handle}.get(name, chosen)
    return x.Call(result, name, args)


def _two(node: Callable[..., PrimExpr]) -> Callable[[Line], PrimExpr]:
    return lambda line: node(*line.expressions(")"))


def _ramp(line: Line) -> PrimExpr:
    base = line.expr()
    line.expect(",")
    stride = line.expr()
    line.expect(",")
    lanes = line.integer()
    line.expect(")")
    return x.Ramp(base, stride, lanes)


def _broadcast(line: Line) -> PrimExpr:
    value = line.expr()
    line.expect(",")
    lanes = line.integer()
    line.expect(")")
    return x.Broadcast(value, lanes)


def _shuffle(line: Line) -> PrimExpr:
    line.expect("[")
    vectors = line.expressions("]")
    line.expect(",")
    line.expect("[")
    indices = tuple(x.int_value(i) or 0 for i in line.expressions("]"))
    line.expect(")")
    return x.Shuffle(vectors, indices)


def _let(line: Line) -> PrimExpr:
    name = line.name()
    line.expect("=")
    value = line.expr()
    line.expect(",")
    outer = line.names.variables.get(name)
    var = line.names.variables[name] = Var(name, value.dtype)
    body = line.expr()
    line.expect(")")
    if outer is None:
        del line.names.variables[name]
    else:
        line.names.variables[name] = outer
    return x.Let(var, value, body)


_FORMS: dict[str, Callable[[Line], PrimExpr]] = {
    "min": _two(x.Min), "max": _two(x.Max), "select": _two(x.Select),
    "ramp": _ramp, "broadcast": _broadcast, "shuffle": _shuffle, "let": _let,
}  # fmt: skip
