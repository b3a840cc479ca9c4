"""Printer of loop programs: Python-like text, one statement per line."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from weft.ir import DType, name_of
from weft.support.errors import OptionError
from weft.tir import expr as x
from weft.tir import stmt as s
from weft.tir.buffer import Buffer
from weft.tir.expr import PrimExpr, Var
from weft.tir.func import PrimFunc
from weft.tir.intrinsics import INTRINSICS
from weft.tir.visitor import children, depth_checkpoints, post_order

_OPERATORS: dict[type, tuple[str, int]] = {
    x.Or: ("or", 1), x.And: ("and", 2),
    x.EQ: ("==", 4), x.NE: ("!=", 4), x.LT: ("<", 4), x.LE: ("<=", 4), x.GT: (">", 4),
    x.GE: (">=", 4), x.Add: ("+", 6), x.Sub: ("-", 6), x.Mul: ("*", 7), x.Div: ("/", 7),
    x.FloorDiv: ("//", 7), x.FloorMod: ("%", 7),
}  # fmt: skip
_ATOM = 9
_NOT = 3
# A longer text of a shared subexpression would be repeated wherever it is used, and in those again.
_LONGEST_SHARED = 4000  # characters


# Keywords of the text form, beside intrinsics and dtypes, that cannot name a variable or buffer.
_KEYWORDS = frozenset((
    "def", "pass", "for", "in", "if", "else", "attr", "allocate", "strides", "not", "and", "or",
    "True", "False", "min", "max", "select", "ramp", "broadcast", "shuffle", "let", "reduce",
))  # fmt: skip


def _is_reserved(name: str) -> bool:
    """Whether the parser reads ``name`` as something other than a variable or buffer.

    Names of intrinsics, which include instructions, are reserved too.
    """
    if name in _KEYWORDS or name in INTRINSICS:
        return True
    try:
        DType.parse(name)
    except OptionError:
        return False
    return True


class _Namer:
    """Assigns distinct names to the variables and buffers of one program; none is reserved."""

    def __init__(self) -> None:
        self._names: dict[object, str] = {}
        self._taken: dict[str, int] = {}

    def of(self, thing: Var | Buffer | Any) -> str:
        found = self._names.get(thing)
        if found is None:
            name = name_of(thing.name)  # a symbolic size is named without its range
            count = self._taken.get(name)
            if count is None:
                count = int(_is_reserved(name))
            found = f"{name}_{count}" if count else name
            while count and found in self._taken:  # a variable may already have this name
                count += 1
                found = f"{name}_{count}"
            self._taken[name] = count + 1
            self._taken.setdefault(found, 1)
            self._names[thing] = found
        return found


class _Shared:
    """What stands for a long subexpression in a text."""

    name = "shared"


class _ExprText:
    """Texts of expressions. A long subexpression that is shared is written once, in a ``let``."""

    def __init__(self, namer: _Namer) -> None:
        self.name = namer.of
        self._named: list[tuple[str, str]] = []
        self._memo: dict[PrimExpr, tuple[str, int]] = {}
        self._is_inside = False
        self._root: PrimExpr = x.TRUE
        self._uses: Counter[PrimExpr] | None = None  # in the outermost expression, when needed

    def __call__(self, e: PrimExpr, level: int = 0) -> str:
        """The text of ``e``, in parentheses if its precedence is lower than ``level``."""
        if not self._is_inside:
            return self._outermost(e, level)
        found = self._memo.get(e)
        if found is None:
            found = self._render(e)
            if len(found[0]) > _LONGEST_SHARED and self._is_shared(e):
                found = self._name(found[0])
            self._memo[e] = found
        text, binding = found
        return f"({text})" if binding < level else text

    def _outermost(self, e: PrimExpr, level: int) -> str:
        self._is_inside = True
        self._root, self._uses = e, None
        for inner in depth_checkpoints(e):
            self(inner)
        text = self(e, level)
        self._is_inside = False
        return self._with_named(text)

    def _is_shared(self, e: PrimExpr) -> bool:
        if self._uses is None:
            self._uses = Counter(part for node in post_order(self._root) for part in children(node))
        return self._uses[e] > 1

    def _name(self, text: str) -> tuple[str, int]:
        name = self.name(_Shared())
        self._named.append((name, text))
        return name, _ATOM

    def _with_named(self, text: str) -> str:
        """The text inside of the definitions of the names that it uses."""
        for name, value in reversed(self._named):
            text = f"let({name} = {value}, {text})"
        if self._named:  # they hold inside of this text alone
            self._named.clear()
            self._memo.clear()
        return text

    def _render(self, e: PrimExpr) -> tuple[str, int]:
        operator = _OPERATORS.get(type(e))
        if operator is not None:
            symbol, binding = operator
            return (
                f"{self(e.a, binding)} {symbol} {self(e.b, binding + 1)}",  # type: ignore[attr-defined]
                binding,
            )
        if type(e) is x.Not:
            return f"not {self(e.a, _NOT)}", _NOT
        return _ATOMS[type(e)](self, e), _ATOM

    def list(self, items: tuple[PrimExpr, ...]) -> str:
        return ", ".join(map(self, items))

    def integer(self, e: x.IntImm) -> str:
        if e.dtype.is_bool:
            return "True" if e.value else "False"
        return str(e.value) if e.dtype is x.int64 else f"{e.dtype}({e.value})"

    def real(self, e: x.FloatImm) -> str:
        text = repr(e.value) if math.isfinite(e.value) else f"'{e.value}'"
        return text if e.dtype is x.float32 and text[0] != "'" else f"{e.dtype}({text})"

    def load(self, e: x.BufferLoad) -> str:
        mask = "" if e.predicate is None else f" if {self(e.predicate)}"
        return f"{self.name(e.buffer)}[{self.list(e.indices)}{mask}]"

    def call(self, e: x.Call) -> str:
        typed = e.name in ("reinterpret", "table_lookup", "call_extern")
        return f"{e.name}{f'[{e.dtype}]' if typed else ''}({self.list(e.args)})"

    def reduce(self, e: x.Reduce) -> str:
        axes = ", ".join(self.name(a.var) for a in e.axes)
        combined = ", ".join(map(self, e.combiner.result))
        where = "" if e.condition is x.TRUE else f", where={self(e.condition)}"
        return f"reduce({self.list(e.source)}, axis=[{axes}], by={combined}{where})[{e.index}]"


_ATOMS: dict[type, Callable[[_ExprText, Any], str]] = {
    Var: lambda t, e: t.name(e),
    x.IntImm: _ExprText.integer,
    x.FloatImm: _ExprText.real,
    x.StringImm: lambda _, e: repr(e.value),
    x.Min: lambda t, e: f"min({t(e.a)}, {t(e.b)})",
    x.Max: lambda t, e: f"max({t(e.a)}, {t(e.b)})",
    x.Select: lambda t, e: f"select({t(e.condition)}, {t(e.true_value)}, {t(e.false_value)})",
    x.Cast: lambda t, e: f"{e.dtype}({t(e.value)})",
    x.Ramp: lambda t, e: f"ramp({t(e.base)}, {t(e.stride)}, {e.lanes})",
    x.Broadcast: lambda t, e: f"broadcast({t(e.value)}, {e.lanes})",
    x.Shuffle: lambda t, e: f"shuffle([{t.list(e.vectors)}], {list(e.indices)})",
    x.Let: lambda t, e: f"let({t.name(e.var)} = {t(e.value)}, {t(e.body)})",
    x.BufferLoad: _ExprText.load,
    x.ProducerLoad: lambda t, e: f"{t.name(e.producer)}[{t.list(e.indices)}]",
    x.Call: _ExprText.call,
    x.Reduce: _ExprText.reduce,
}


class _StmtText:
    def __init__(self) -> None:
        self.namer = _Namer()
        self.expr = _ExprText(self.namer)
        self.lines: list[str] = []
        self.starts: dict[int, int] = {}  # the first line of each statement, by identity

    def line(self, depth: int, text: str) -> None:
        self.lines.append("    " * depth + text)

    def buffer_type(self, buffer: Buffer) -> str:
        scope = "" if buffer.scope == "global" else f" {buffer.scope}"
        strides = "" if buffer.strides is None else f" strides=[{self.expr.list(buffer.strides)}]"
        return f"{buffer.dtype}[{self.expr.list(buffer.shape)}]{strides}{scope}"

    def func(self, func: PrimFunc) -> None:
        params = ", ".join(self._param(p) for p in func.params)
        self.line(0, f"def {func.name}({params}):")
        for key, value in sorted(func.attrs.items()):
            if key not in (
                    "workspace_offsets", "task_scratch", "python_functions", "foreign_kernels",
                    "shared_offsets"):
                self.line(1, f"# {key} = {value}")
        for buffer, offset in func.attrs.get("workspace_offsets", {}).items():
            self.line(1, f"# workspace[{self._size(offset)}:] holds {self.namer.of(buffer)}")
        for buffer, offset in func.attrs.get("shared_offsets", {}).items():
            self.line(1, f"# shared[{offset}:] holds {self.namer.of(buffer)}")
        for buffer, scratch in func.attrs.get("task_scratch", {}).items():
            start = scratch.offset
            memory = "stack" if start is None else f"workspace[{self._size(start)}:]"
            amount = f"{self._size(scratch.size)} bytes per task"
            self.line(1, f"# {self.namer.of(buffer)} takes {amount} in {memory}")
        self.stmt(func.body, 1)

    def _size(self, size: PrimExpr | int) -> str:
        return self.expr(size) if isinstance(size, PrimExpr) else str(size)

    def _param(self, param: Buffer | Var) -> str:
        kind = self.buffer_type(param) if isinstance(param, Buffer) else str(param.dtype)
        return f"{self.namer.of(param)}: {kind}"

    def stmt(self, node: s.Stmt, depth: int) -> None:
        text = self.expr
        self.starts[id(node)] = len(self.lines) + 1
        match node:
            case s.BufferStore():
                mask = "" if node.predicate is None else f" if {text(node.predicate)}"
                target = f"{self.namer.of(node.buffer)}[{text.list(node.indices)}{mask}]"
                self.line(depth, f"{target} = {text(node.value)}")
            case s.For():
                self._loop(node, depth)
            case s.IfThenElse():
                self.line(depth, f"if {text(node.condition)}:")
                self.stmt(node.then_case, depth + 1)
                if node.else_case is not None:
                    self.line(depth, "else:")
                    self.stmt(node.else_case, depth + 1)
            case s.SeqStmt():
                for inner in node.stmts:
                    self.stmt(inner, depth)
                if not node.stmts:
                    self.line(depth, "pass")
            case s.Allocate():
                name = self.namer.of(node.buffer)
                self.line(depth, f"{name} = allocate({self.buffer_type(node.buffer)})")
                self.stmt(node.body, depth)
            case s.LetStmt():
                self.line(depth, f"{self.namer.of(node.var)} = {text(node.value)}")
                self.stmt(node.body, depth)
            case s.AttrStmt():
                value = text(node.value) if isinstance(node.value, PrimExpr) else repr(node.value)
                self.line(depth, f"attr({node.key!r}, {value})")
                self.stmt(node.body, depth)
            case s.Evaluate():
                self.line(depth, text(node.value))

    def _loop(self, node: s.For, depth: int) -> None:
        text = self.expr
        stop = text(node.extent) if node.min is x.const(0) else text(node.min + node.extent)
        start = "" if node.min is x.const(0) else f"{text(node.min)}, "
        kind = "range" if node.kind is s.ForKind.SERIAL else node.kind.value
        tag = f", '{node.thread_tag}'" if node.thread_tag else ""
        notes = "".join(f"  # {k} = {v}" for k, v in sorted(node.annotations.items()))
        self.line(
            depth, f"for {self.namer.of(node.loop_var)} in {kind}({start}{stop}{tag}):{notes}"
        )
        self.stmt(node.body, depth + 1)


def as_text(node: PrimFunc | s.Stmt | PrimExpr) -> str:
    """The text of a function, a statement, or an expression."""
    if isinstance(node, PrimExpr):
        return _ExprText(_Namer())(node)
    writer = _StmtText()
    if isinstance(node, PrimFunc):
        writer.func(node)
    else:
        writer.stmt(node, 0)
    return "\n".join(writer.lines)


def statement_lines(func: PrimFunc) -> Mapping[int, int]:
    """The line of each statement in ``as_text(func)``, from 1, by the ``id`` of the statement."""
    writer = _StmtText()
    writer.expr = _NoText(writer.namer)
    writer.func(func)
    return writer.starts


class _NoText(_ExprText):
    """Prints expressions as empty texts, for shared subexpressions whose text is too long."""

    def __call__(self, e: PrimExpr, level: int = 0) -> str:  # noqa: ARG002
        return ""
