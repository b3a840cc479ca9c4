"""Parser of loop programs: ``parse_func(str(func))`` prints like ``func``.

It reads the text format of ``weft.tir.printer``. Allocations, lets and ``attr`` statements extend
to the end of their block.
"""

from __future__ import annotations

import ast
import re
from typing import Any

from weft.ir.dtype import int64
from weft.support.errors import ParseError
from weft.tir import expr as x
from weft.tir import stmt as s
from weft.tir.buffer import SCOPES, Buffer
from weft.tir.expr import PrimExpr, Var, const, int_value
from weft.tir.func import PrimFunc
from weft.tir.parse_expr import Line, Names
from weft.tir.stmt import ForKind, Stmt
from weft.tir.task_scratch import TaskScratch

_INDENT = 4
_NOTE = re.compile(r"\s+# ")
_HOLDS = re.compile(r"# workspace\[(.+):\] holds (\S+)$")
_TAKES = re.compile(r"# (\S+) takes (.+) bytes per task in (?:stack|workspace\[(.+):\])$")
_ATTRIBUTE = re.compile(r"# (\w+) = (.*)$")
_KINDS = {"range": ForKind.SERIAL, **{kind.value: kind for kind in ForKind}}


def parse_func(text: str) -> PrimFunc:
    """The function whose text is ``text``.

    Raises ``ParseError`` with the line for a syntax error or an undefined name.
    """
    lines = [(number, line) for number, line in enumerate(text.splitlines(), 1) if line.strip()]
    if not lines:
        raise ParseError("empty loop program")
    return _Parser(lines).func()


class _Parser:
    def __init__(self, lines: list[tuple[int, str]]) -> None:
        self.lines = lines
        self.position = 0
        self.names = Names()
        self.offsets: list[tuple[str, int | PrimExpr]] = []
        self.task_scratch: list[tuple[str, TaskScratch]] = []

    def func(self) -> PrimFunc:
        head = self._line(self.lines[0][1])
        if head.next() != "def":
            raise head.error("expected 'def'")
        name = head.name()
        params = self._params(head)
        head.expect(":")
        head.end()
        self.position = 1
        attrs: dict[str, Any] = self._attributes()
        body = self._block(_INDENT)
        if self.position < len(self.lines):
            raise self._line(self._text).error("unexpected text after the function")
        if self.offsets:
            attrs["workspace_offsets"] = {self.names.buffers[b]: at for b, at in self.offsets}
        if self.task_scratch:
            attrs["task_scratch"] = {self.names.buffers[b]: at for b, at in self.task_scratch}
        return PrimFunc(name, params, body, attrs)

    # the head

    def _params(self, head: Line) -> tuple[Buffer | Var, ...]:
        """The parameters. Symbolic sizes are declared first, since earlier shapes may use them."""
        head.expect("(")
        start = head.position
        for token, after, kind in zip(head.tokens, head.tokens[1:], head.tokens[2:], strict=False):
            if token[0] == "name" and after[1] == ":" and kind[1] == "int64":
                self.names.variables.setdefault(token[1], Var(token[1]))
        head.position = start
        params: list[Buffer | Var] = []
        while not head.accept(")"):
            if params:
                head.expect(",")
            name = head.name()
            head.expect(":")
            params.append(self._param(head, name))
        return tuple(params)

    def _param(self, head: Line, name: str) -> Buffer | Var:
        dtype = head.dtype()
        if head.ahead == "[":
            head.position -= 1
            made = self.names.buffers[name] = self._buffer(head, name)
            return made
        known = self.names.variables.get(name)
        if known is None or known.dtype is not dtype:
            known = self.names.variables[name] = Var(name, dtype)
        return known

    def _buffer(self, line: Line, name: str) -> Buffer:
        """``float32[4, 8] strides=[16, 1] local``."""
        dtype = line.dtype()
        line.expect("[")
        shape = line.expressions("]")
        strides, scope = None, "global"
        if line.accept("strides"):
            line.expect("=")
            line.expect("[")
            strides = line.expressions("]")
        if line.kind == "name":
            scope = line.next()
        if scope not in SCOPES:
            raise line.error("unknown memory scope", expected=", ".join(SCOPES), got=scope)
        return Buffer(name, shape, dtype, scope, strides)

    def _attributes(self) -> dict[str, Any]:
        attrs: dict[str, Any] = {}
        while self.position < len(self.lines):
            text = self._text.strip()
            holds, takes, found = (p.match(text) for p in (_HOLDS, _TAKES, _ATTRIBUTE))
            if holds is not None:
                offset = self._size(holds[1])
                value = int_value(offset)
                self.offsets.append((holds[2], offset if value is None else value))
            elif takes is not None:
                at = None if takes[3] is None else self._size(takes[3])
                self.task_scratch.append((takes[1], TaskScratch(self._size(takes[2]), at)))
            elif found is not None:
                attrs[found[1]] = _value(found[2])
            else:
                break
            self.position += 1
        return attrs

    def _size(self, text: str) -> PrimExpr:
        line = self._line(text)
        size = line.expr()
        line.end()
        return size

    # statements

    def _block(self, indent: int) -> Stmt:
        stmts: list[Stmt] = []
        while self.position < len(self.lines) and self._indent() >= indent:
            if self._indent() > indent:
                raise self._line(self._text).error("unexpected indentation")
            stmts.append(self._stmt(indent))
        return s.seq(stmts)

    def _inner(self, line: Line, indent: int) -> Stmt:
        """The block under the head of a loop or a branch."""
        start = self.position
        body = self._block(indent + _INDENT)
        if self.position == start:
            raise line.error("empty block", expected="pass, or a statement")
        return body

    @property
    def _text(self) -> str:
        """The current line."""
        return self.lines[self.position][1]

    def _indent(self) -> int:
        return len(self._text) - len(self._text.lstrip())

    def _line(self, text: str) -> Line:
        return Line(text, self.lines[min(self.position, len(self.lines) - 1)][0], self.names)

    def _stmt(self, indent: int) -> Stmt:
        text, *notes = _NOTE.split(self._text.rstrip())
        line = self._line(text)
        self.position += 1
        if line.accept("pass"):
            line.end()
            return s.SeqStmt(())
        if line.accept("for"):
            return self._loop(line, dict(_note(n) for n in notes), indent)
        if line.accept("if"):
            return self._branch(line, indent)
        if line.ahead == "attr" and line.tokens[1:2] == [("symbol", "(")]:
            return self._attr(line, indent)
        is_name = line.kind == "name"
        if is_name and line.ahead in self.names.buffers and line.tokens[1:2] == [("symbol", "[")]:
            return self._store(line)
        if is_name and line.tokens[1:2] == [("symbol", "=")]:
            return self._binding(line, indent)
        value = line.expr()
        line.end()
        return s.Evaluate(value)

    def _store(self, line: Line) -> Stmt:
        where = line.access(self.names.buffers[line.next()])
        line.expect("=")
        value = line.expr()
        line.end()
        return s.BufferStore(where.buffer, value, where.indices, where.predicate)

    def _loop(self, line: Line, notes: dict[str, Any], indent: int) -> Stmt:
        name = line.name()
        var = self._variable(name, int64)
        line.expect("in")
        kind = line.name()
        if kind not in _KINDS:
            raise line.error("unknown kind of loop", expected=", ".join(_KINDS), got=kind)
        line.expect("(")
        arguments = line.expressions(")")
        line.expect(":")
        line.end()
        tag = arguments[-1].value if isinstance(arguments[-1], x.StringImm) else None
        start, stop = const(0), arguments[0]
        if len(arguments) - (tag is not None) == 2:
            start, stop = arguments[0], arguments[1]
        extent = stop if start is const(0) else _difference(stop, start)
        body = self._inner(line, indent)
        return s.For(var, start, extent, _KINDS[kind], body, tag, notes)

    def _variable(self, name: str, dtype: x.DType) -> Var:
        """The variable with that name and dtype; loops in sequence may share a variable."""
        known = self.names.variables.get(name)
        if known is None or known.dtype is not dtype:
            known = self.names.variables[name] = Var(name, dtype)
        return known

    def _branch(self, line: Line, indent: int) -> Stmt:
        condition = line.expr()
        line.expect(":")
        line.end()
        then_case, other = self._inner(line, indent), None
        if self.position < len(self.lines) and self._text == " " * indent + "else:":
            self.position += 1
            other = self._inner(line, indent)
        return s.IfThenElse(condition, then_case, other)

    def _attr(self, line: Line, indent: int) -> Stmt:
        line.next()
        line.expect("(")
        key = line.expr()
        line.expect(",")
        value = line.expr()
        line.expect(")")
        line.end()
        if not isinstance(key, x.StringImm):
            raise line.error("the key of attr is not a string")
        plain = value.value if isinstance(value, x.StringImm) else value
        return s.AttrStmt(key.value, plain, self._block(indent))

    def _binding(self, line: Line, indent: int) -> Stmt:
        name = line.next()
        line.expect("=")
        if line.ahead == "allocate":
            return self._allocation(line, name, indent)
        value = line.expr()
        line.end()
        var = self._variable(name, value.dtype)
        return s.LetStmt(var, value, self._block(indent))

    def _allocation(self, line: Line, name: str, indent: int) -> Stmt:
        line.next()
        line.expect("(")
        made = self._buffer(line, name)
        line.expect(")")
        line.end()
        known = self.names.buffers.get(name)
        # Copies of a statement allocate the same buffer several times.
        if known is None or (known.shape, known.dtype, known.scope) != (made.shape, made.dtype,
                                                                      made.scope):
            known = self.names.buffers[name] = made
        return s.Allocate(known, self._block(indent))


def _difference(stop: x.PrimExpr, start: x.PrimExpr) -> x.PrimExpr:
    """The extent ``stop - start``, inverting the printer's addition."""
    if isinstance(stop, x.Add) and stop.a is start:
        return stop.b
    return stop - start


def _note(text: str) -> tuple[str, Any]:
    key, _, value = text.partition(" = ")
    return key, _value(value)


def _value(text: str) -> Any:
    """The value of a Python literal; other text as it is."""
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text
