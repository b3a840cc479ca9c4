"""The printer: programs in Relay's syntax, which parse back to an equal program.

Each call is bound on a line (``%0 = add(%x, %y);``); the result of a block stands alone. Large
constants go to a ``#[metadata]`` section. The walk uses an explicit stack.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from weft.ir import expr
from weft.ir.affine import AffineType
from weft.ir.dtype import DType
from weft.ir.module import IRModule
from weft.ir.op import Op
from weft.ir.text.blocks import Block, BlockPlan
from weft.ir.text.values import Names, TypeText, constant_text, value_text
from weft.ir.types import TypeVar, type_text
from weft.ir.virtual_device import VirtualDevice
from weft.ir.visitor import children, evaluated, free_vars

VERSION = "1"
# Texts of these versions parse, with unchanged meaning.
READABLE_VERSIONS = (VERSION,)
_ENTER, _BIND, _EXIT = 0, 1, 2
# Deeper nested tuples are bound line by line, which bounds the length of a line.
_DEEPEST_INLINE = 3
# Deeper nested blocks are not indented further, which bounds the size of deeply nested text.
_DEEPEST_MARGIN = 40
_LONGEST_COMMENT = 1_000
_ATOMS = (expr.Var, expr.GlobalVar, expr.Constant, expr.Constructor, Op)


def as_text(node: expr.Expr | IRModule, *, metadata: bool = True, types: bool = False,
            spans: bool = False, devices: Mapping[expr.Expr, VirtualDevice] | None = None,
            affine: Mapping[expr.Expr, AffineType] | None = None) -> str:
    """The text form of a module or an expression.

    ``metadata=False`` omits the bytes of large constants (such text does not parse back);
    ``types`` adds inferred types as comments; ``spans`` adds source locations to calls, which the
    parser reads back; ``devices`` adds the devices of expressions (``weft.virtual_devices``), and
    ``affine`` the affine types of quantised ones (``weft.transform.affine_types``).
    """
    printer = _Printer(types=types, spans=spans, devices=devices or {}, affine=affine or {})
    if isinstance(node, IRModule):
        text = printer.module(node)
    elif isinstance(node, Op):
        return node.name
    else:
        text = printer.expression(node)
    return text + printer.metadata() if metadata else text


class _Printer:
    """The state of one printing: assigned names and collected constants."""

    def __init__(self, *, types: bool, spans: bool, devices: Mapping[expr.Expr, VirtualDevice],
                 affine: Mapping[expr.Expr, AffineType]) -> None:
        self.types = types
        self.affine = affine
        self.devices = devices
        self.spans = spans
        self.names = Names()
        self.type_text = TypeText()
        self.variables: dict[int, str] = {}
        self.constants: dict[int, int] = {}
        self.constant_data: list[expr.Constant] = []

    # -- whole programs ------------------------------------------------------------------------

    def module(self, mod: IRModule) -> str:
        lines = [f'#[version = "{VERSION}"]']
        if mod.attrs:
            lines.append(f"#[attrs = {value_text(mod.attrs)}]")
        lines.extend(self._definition(data) for data in mod.type_definitions.values())
        for name, fn in mod.functions.items():
            lines.extend(self._function_lines(f"def {global_name(name)}", fn))
        return "\n".join(lines).rstrip("\n") + "\n"

    def expression(self, node: expr.Expr) -> str:
        free = (v for v in free_vars(node) if v is not node)
        lines = [f"free_var {self._binder(v)};" for v in free]
        lines += _Body(self, node).lines(0)
        return "\n".join(lines)

    def _function_lines(self, prefix: str, fn: expr.Function) -> list[str]:
        self.names, self.variables = Names(), {}
        body = _Body(self, fn)
        body.walk()
        head = f"{prefix}{self.signature(fn)} {{"
        return [*_render([head, body.plan.inner[id(fn), 0], "}"], 0), ""]

    def _definition(self, data: expr.TypeData) -> str:
        generics = self._generics(data.type_vars)
        lines = [f"type {data.header}{generics} {{"]
        for constructor in data.constructors:
            inputs = ", ".join(map(self.type_text, constructor.inputs))
            lines.append(f"  {constructor.name}{f'({inputs})' if inputs else ''},")
        return "\n".join([*lines, "}"])

    def metadata(self) -> str:
        """The section with the constants that are too large for a line."""
        if not self.constant_data:
            return ""
        records = []
        for constant in self.constant_data:
            data = constant.data
            record = {
                "dtype": DType.of(data.dtype).name,
                "shape": list(data.shape),
                "data": base64.b64encode(data.tobytes()).decode(),
            }
            records.append("    " + json.dumps(record))
        inner = ",\n".join(records)
        return f'\n#[metadata]\n{{\n  "constants": [\n{inner}\n  ]\n}}\n'

    # -- signatures, names and types ------------------------------------------------------------

    def signature(self, fn: expr.Function) -> str:
        parts = [self._binder(p) for p in fn.params]
        parts += [f"{_key_text(k)}={value_text(v)}" for k, v in fn.attrs.items()]
        result = f" -> {self.type_text(fn.ret_type)}" if fn.ret_type is not None else ""
        return f"{self._generics(fn.type_params)}({', '.join(parts)}){result}"

    def _generics(self, variables: tuple[TypeVar, ...]) -> str:
        names = ", ".join(str(self.type_text.variable(v)) for v in variables)
        return f"[{names}]" if names else ""

    def _binder(self, variable: expr.Var) -> str:
        name = self.variable(variable)
        if variable.annotation is None:
            return name
        return f"{name}: {self.type_text(variable.annotation)}"

    def variable(self, variable: expr.Var) -> str:
        known = self.variables.get(id(variable))
        if known is None:
            known = f"%{self.names.unique(variable.name)}"
            self.variables[id(variable)] = known
        return known

    def constant(self, constant: expr.Constant) -> str:
        literal = constant_text(constant)
        if literal is not None:
            return literal
        index = self.constants.setdefault(id(constant), len(self.constant_data))
        if index == len(self.constant_data):
            self.constant_data.append(constant)
        return f"meta[Constant][{index}]"

    def let_binder(self, variable: expr.Var) -> str:
        return f"let {self._binder(variable)}"

    def pattern(self, pattern: expr.Pattern) -> str:
        if isinstance(pattern, expr.PatternVar):
            return self._binder(pattern.var)
        if isinstance(pattern, expr.PatternTuple):
            return _tuple_text([self.pattern(p) for p in pattern.patterns])
        if isinstance(pattern, expr.PatternConstructor):
            inner = ", ".join(map(self.pattern, pattern.patterns))
            return f"{pattern.constructor.name}({inner})"
        return "_"

    def comment(self, node: expr.Expr) -> str:
        device = self.devices.get(node)
        where = f" /* on {device} */" if device is not None and str(device) else ""
        stored = f" /* {self.affine[node]} */" if node in self.affine else ""
        return self._type_comment(node) + where + stored

    def _type_comment(self, node: expr.Expr) -> str:
        if not self.types or node.checked_type is None:
            return ""
        text = type_text(node.checked_type, limit=_LONGEST_COMMENT)
        if len(text) > _LONGEST_COMMENT:
            # Nodes of deeply nested tuples have types as long as the program.
            return f" /* ty={text[:_LONGEST_COMMENT]} .. */"
        return f" /* ty={self.type_text(node.checked_type)} */"


def global_name(name: str) -> str:
    """``@name``, quoted unless it is an identifier."""
    return f"@{name}" if name.isidentifier() and name.isascii() else f"@{json.dumps(name)}"


def _key_text(key: str) -> str:
    return key if key.isidentifier() and key.isascii() else json.dumps(key)


def _tuple_text(parts: list[str]) -> str:
    return f"({', '.join(parts)}{',' if len(parts) == 1 else ''})"


class _Body:
    """The text of one function or single expression.

    ``segments`` holds the text of each node as strings and blocks: a single string for a node
    that is written inline, several for one that spans lines.
    """

    def __init__(self, printer: _Printer, root: expr.Expr) -> None:
        self.printer = printer
        self.root = root
        self.plan = BlockPlan(root)
        self.segments: dict[int, list[object]] = {}
        self.nesting: dict[int, int] = {}
        self.bound = 0

    def lines(self, indent: int) -> list[str]:
        self.walk()
        return _render([self.plan.top], indent)

    def walk(self) -> None:
        """Fill the blocks, in order of evaluation."""
        stack: list[tuple[expr.Expr, int]] = [(self.root, _ENTER)]
        entered: set[int] = set()
        while stack:
            node, step = stack.pop()
            if step == _BIND:
                self._bind(node)
            elif step == _EXIT:
                self._finish(node)
            elif id(node) not in entered:
                entered.add(id(node))
                stack.append((node, _EXIT))
                if isinstance(node, expr.Let):
                    stack += [(node.body, _ENTER), (node, _BIND), (node.value, _ENTER)]
                else:
                    stack.extend((c, _ENTER) for c in reversed(evaluated(node)))
        self.plan.top.result = self.segments[id(self.root)]

    def _bind(self, node: expr.Expr) -> None:
        if isinstance(node, expr.Let):
            head = self.printer.let_binder(node.var)
            comment = self.printer.comment(node.value)
            block = self.plan.block_of_let(node)
            block.statements.append([f"{head} = ", *self.segments[id(node.value)], f";{comment}"])

    def _finish(self, node: expr.Expr) -> None:
        text = _TEXT[type(node)](self, node)
        segments = text if isinstance(text, list) else [text]
        if self.printer.spans and not isinstance(node, expr.Let):
            segments = [*segments, self._location(node)]
        if self._in_place(node):
            self.segments[id(node)] = segments
            return
        name = f"%{self.bound}"
        self.bound += 1
        comment = self.printer.comment(node)
        self.plan.home[id(node)].statements.append([f"{name} = ", *segments, f";{comment}"])
        self.segments[id(node)] = [name]

    def _location(self, node: expr.Expr) -> str:
        """The suffix with the source location of ``node``; empty for variables and constants."""
        if node.span is None or isinstance(node, _ATOMS):
            return ""
        at = node.span
        return f" loc{value_text(at.fields())}"

    def _in_place(self, node: expr.Expr) -> bool:
        if isinstance(node, _ATOMS):
            return True
        if self.plan.standalone(node):
            return True
        if self.plan.uses[id(node)] > 1 or not isinstance(node, (expr.Tuple, expr.TupleGetItem)):
            return False
        depth = 1 + max((self.nesting.get(id(c), 0) for c in children(node)), default=0)
        self.nesting[id(node)] = depth
        return depth <= _DEEPEST_INLINE

    # -- one method per kind of node --------------------------------------------------------------

    def one(self, node: expr.Expr) -> str:
        return "".join(map(str, self.segments[id(node)]))

    def _block(self, node: expr.Expr, index: int, result: expr.Expr) -> Block:
        block = self.plan.inner[id(node), index]
        block.result = self.segments[id(result)]
        return block

    def call(self, call: expr.Call) -> str:
        callee = call.op.name if isinstance(call.op, Op) else self.one(call.op)
        generics = call.type_args or (call.checked_type_args if self.printer.types else ())
        if generics:
            callee += f"[{', '.join(map(self.printer.type_text, generics))}]"
        parts = [self.one(a) for a in call.args]
        parts += [f"{k}={value_text(v)}" for k, v in call.attrs.non_default_items()]
        return f"{callee}({', '.join(parts)})"

    def function(self, fn: expr.Function) -> list[object]:
        return [f"fn {self.printer.signature(fn)} {{", self._block(fn, 0, fn.body), "}"]

    def let_text(self, let: expr.Let) -> list[object]:
        if id(let) in self.plan.tail:
            return self.segments[id(let.body)]
        return ["{", self._block(let, 0, let.body), "}"]

    def if_text(self, node: expr.If) -> list[object]:
        return [f"if ({self.one(node.cond)}) {{", self._block(node, 0, node.true_branch),
                "} else {", self._block(node, 1, node.false_branch), "}"]

    def match(self, node: expr.Match) -> list[object]:
        clauses = Block()
        for index, clause in enumerate(node.clauses):
            head = f"{self.printer.pattern(clause.lhs)} => {{"
            clauses.statements.append([head, self._block(node, index, clause.rhs), "},"])
        return [f"match{'' if node.complete else '?'} ({self.one(node.data)}) {{", clauses, "}"]


_TEXT: dict[type, Callable[[_Body, Any], str | list[object]]] = {
    Op: lambda _, e: e.name,
    expr.Constructor: lambda _, e: e.name,
    expr.Var: lambda body, e: body.printer.variable(e),
    expr.GlobalVar: lambda _, e: global_name(e.name),
    expr.Constant: lambda body, e: body.printer.constant(e),
    expr.Tuple: lambda body, e: _tuple_text([body.one(f) for f in e.fields]),
    expr.TupleGetItem: lambda body, e: f"{body.one(e.tuple_value)}.{e.index}",
    expr.RefCreate: lambda body, e: f"ref({body.one(e.value)})",
    expr.RefRead: lambda body, e: f"ref_read({body.one(e.ref)})",
    expr.RefWrite: lambda body, e: f"ref_write({body.one(e.ref)}, {body.one(e.value)})",
    expr.Call: _Body.call,
    expr.Function: _Body.function,
    expr.Let: _Body.let_text,
    expr.If: _Body.if_text,
    expr.Match: _Body.match,
}


def _render(segments: list[object], indent: int) -> list[str]:
    """The lines of ``segments``; a block is indented relative to the line that opens it."""
    lines: list[str] = []
    current: str | None = None
    # A frame is a sequence of text segments on one line, or the statements of a block.
    stack: list[tuple[bool, Iterator[Any], int]] = [(False, iter(segments), indent)]
    while stack:
        is_block, rest, depth = stack[-1]
        item = next(rest, None)
        if item is None:
            stack.pop()
        elif is_block:
            stack.append((False, iter(item), depth))
            continue
        elif isinstance(item, str):
            margin = "  " * min(depth, _DEEPEST_MARGIN)
            current = (current if current is not None else margin) + item
            continue
        else:
            # Only a block that follows text is indented; a whole program is a block as well.
            inner = depth + (current is not None or bool(lines))
            stack.append((True, iter([*item.statements, item.result]), inner))
        if current is not None:
            lines.append(current)
            current = None
    return lines
