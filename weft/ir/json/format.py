"""Modules as JSON: one record per node, operands by number, like NNVM's graphs.

The format is versioned. The functions in ``UPGRADES`` convert a document of an earlier version,
one version at a time, before it is read. Version 2 added ``named``, the names of tensors; version 3
constants whose bytes are kept outside of the text.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np

from weft.ir import expr
from weft.ir.dtype import DType
from weft.ir.json.types import TypeReader, TypeWriter
from weft.ir.json.values import load_value, save_value
from weft.ir.module import IRModule
from weft.ir.op import Op, get_op
from weft.ir.span import Span
from weft.ir.types import GlobalTypeVar
from weft.ir.visitor import children, post_order
from weft.support.errors import ParseError, WeftError

FORMAT = "weft-module"
VERSION = 3
Record = dict[str, Any]
# Keeps the bytes of a constant and gives what finds them again; ``None``: they are in the text.
Keep: TypeAlias = "Callable[[np.ndarray], Record | None]"
# The bytes that ``Keep`` kept, by what it gave.
Kept: TypeAlias = "Callable[[Record], bytes | memoryview]"


def _from_1(document: Record) -> Record:
    """Version 1 to 2: no tensor has a name of its own."""
    return {**document, "named": {}, "version": 2}


def _from_2(document: Record) -> Record:
    """Version 2 to 3: all constants are in the text."""
    return {**document, "version": 3}


# UPGRADES[n] converts a document of version n to version n + 1.
UPGRADES: dict[int, Callable[[Record], Record]] = {1: _from_1, 2: _from_2}


def save_json(mod: IRModule, keep: Keep = lambda _: None, *, spans: bool = True) -> str:
    """``mod`` as JSON text, without inferred types.

    ``keep`` may store constants elsewhere; ``load_json`` then takes a function that reads them.

    Of the named tensors (``IRModule.named``), the text has those that depend on the parameters of
    ``main`` alone: passes that change ``main`` leave the others outdated.
    """
    writer = _Writer(keep, spans=spans)
    document = {
        "format": FORMAT,
        "version": VERSION,
        "attrs": save_value(dict(mod.attrs)),
        "type_definitions": [writer.definition(d) for d in mod.type_definitions.values()],
        "functions": {name: writer.write(fn) for name, fn in mod.functions.items()},
        "named": {name: writer.write(node) for name, node in _named_of(mod).items()},
    }
    # The nodes that functions and definitions refer to, in post-order.
    document |= {"types": writer.types.records, "nodes": writer.nodes}
    return json.dumps(document)


def _named_of(mod: IRModule) -> dict[str, expr.Expr]:
    """The named tensors over the parameters of ``main``."""
    if not mod.named:
        return {}
    params = set(mod["main"].params)
    whole = expr.Tuple(tuple(mod.named.values()))
    foreign: set[expr.Expr] = set()
    for node in post_order(whole):
        is_other = isinstance(node, expr.Var) and node not in params
        if is_other or any(part in foreign for part in children(node)):
            foreign.add(node)
    return {name: node for name, node in mod.named.items() if node not in foreign}


def load_json(text: str, *, source: str = "<json>", kept: Kept | None = None) -> IRModule:
    """The module that ``save_json`` of this or an earlier version wrote.

    ``kept`` gives the bytes of constants that are not in the text.

    Raises ``ParseError`` for text that is corrupt, not a module, or of a later version.
    """
    try:
        document = json.loads(text)
    except (json.JSONDecodeError, RecursionError) as error:
        raise ParseError("invalid JSON", where=source, got=error) from None
    document = _current(document, source)
    try:
        return _Reader(document, kept).module()
    except WeftError as error:
        raise ParseError(f"invalid module: {error.what}", where=source, expected=error.expected,
                         got=error.got, help=error.help) from None
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
        raise ParseError(
            "corrupt module", where=source, got=f"{type(error).__name__}: {error}"
        ) from None


def _current(document: Any, source: str) -> dict[str, Any]:
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise ParseError("not a module of weft", where=source, expected=f'"format": "{FORMAT}"')
    version = document.get("version")
    if not isinstance(version, int) or version > VERSION:
        raise ParseError("unsupported module version", where=source,
                         expected=f"version {VERSION} or earlier", got=version,
                         help="upgrade weft, or save the module with this version")
    while version < VERSION:
        if version not in UPGRADES:
            raise ParseError("the module version cannot be upgraded", where=source, got=version)
        document = UPGRADES[version](document)
        version += 1
    return document


class _Writer:
    """The table of nodes; a shared node has one record."""

    def __init__(self, keep: Keep, *, spans: bool) -> None:
        self.types = TypeWriter()
        self._keep = keep
        self._spans = spans
        self.nodes: list[Record] = []
        self._numbers: dict[int, int] = {}

    def write(self, root: expr.Expr) -> int:
        for node in post_order(root):
            self._number(node)
        return self._numbers[id(root)]

    def definition(self, data: expr.TypeData) -> Record:
        constructors = [
            {"name": c.name, "inputs": [self.types.write(t) for t in c.inputs]}
            for c in data.constructors
        ]
        generics = [self.types.write(v) for v in data.type_vars]
        return {"name": data.header.name, "type_vars": generics, "constructors": constructors}

    def _number(self, node: expr.Expr) -> int:
        known = self._numbers.get(id(node))
        if known is not None:
            return known
        record: Record = {"kind": type(node).__name__, **_SAVE[type(node)](self, node)}
        if node.span is not None and self._spans:
            record["span"] = node.span.fields()
        elif isinstance(node, expr.Constant) and node.span is not None and node.span.tensor:
            record["span"] = Span("", node=node.span.tensor).fields()
        self._numbers[id(node)] = len(self.nodes)
        self.nodes.append(record)
        return self._numbers[id(node)]

    # A walk does not visit operators, globals and constructors; they are numbered on demand.
    def all(self, nodes: tuple[expr.Expr, ...]) -> list[int]:
        return [self._number(n) for n in nodes]

    def call(self, call: expr.Call) -> Record:
        record: Record = {"op": self._number(call.op), "args": self.all(call.args)}
        attrs = call.attrs.non_default_items()
        if attrs:
            record["attrs"] = {name: save_value(value) for name, value in attrs}
        if call.type_args:
            record["type_args"] = [self.types.write(t) for t in call.type_args]
        return record

    def function(self, fn: expr.Function) -> Record:
        record: Record = {"params": self.all(fn.params), "body": self._number(fn.body)}
        if fn.ret_type is not None:
            record["ret_type"] = self.types.write(fn.ret_type)
        if fn.type_params:
            record["type_params"] = [self.types.write(v) for v in fn.type_params]
        if fn.attrs:
            record["attrs"] = save_value(dict(fn.attrs))
        return record

    def var(self, var: expr.Var) -> Record:
        if var.annotation is None:
            return {"name": var.name}
        return {"name": var.name, "type": self.types.write(var.annotation)}

    def match(self, match: expr.Match) -> Record:
        clauses = [[self._pattern(c.lhs), self._number(c.rhs)] for c in match.clauses]
        return {"data": self._number(match.data), "clauses": clauses, "complete": match.complete}

    def constant(self, constant: expr.Constant) -> Record:
        data = constant.data
        record = {"dtype": DType.of(data.dtype).name, "shape": list(data.shape)}
        place = self._keep(data)
        if place is not None:
            return {**record, "kept": place}
        return {**record, "data": base64.b64encode(data.tobytes()).decode()}

    def _pattern(self, pattern: expr.Pattern) -> Any:
        # Patterns are written by hand and short, which bounds this recursion.
        if isinstance(pattern, expr.PatternVar):
            return self._number(pattern.var)
        if isinstance(pattern, expr.PatternTuple):
            return {"tuple": [self._pattern(p) for p in pattern.patterns]}
        if isinstance(pattern, expr.PatternConstructor):
            inner = [self._pattern(p) for p in pattern.patterns]
            return {"constructor": self._number(pattern.constructor), "fields": inner}
        return None


_SAVE: dict[type, Callable[[_Writer, Any], Record]] = {
    Op: lambda _, e: {"name": e.name},
    expr.GlobalVar: lambda _, e: {"name": e.name},
    expr.Constructor: lambda _, e: {"type": e.belongs_to.name, "name": e.name},
    expr.Var: _Writer.var,
    expr.Constant: _Writer.constant,
    expr.Tuple: lambda w, e: {"fields": w.all(e.fields)},
    expr.TupleGetItem: lambda w, e: {"tuple": w.all((e.tuple_value,))[0], "index": e.index},
    expr.Call: _Writer.call,
    expr.Function: _Writer.function,
    expr.Let: lambda w, e: {"parts": w.all((e.var, e.value, e.body))},
    expr.If: lambda w, e: {"parts": w.all((e.cond, e.true_branch, e.false_branch))},
    expr.RefCreate: lambda w, e: {"parts": w.all((e.value,))},
    expr.RefRead: lambda w, e: {"parts": w.all((e.ref,))},
    expr.RefWrite: lambda w, e: {"parts": w.all((e.ref, e.value))},
    expr.Match: _Writer.match,
}


class _Reader:
    """Creates nodes in order; a record refers only to earlier ones."""

    def __init__(self, document: Mapping[str, Any], kept: Kept | None) -> None:
        self.document = document
        self._kept = kept
        self.types = TypeReader(document["types"])
        self.definitions = {d["name"]: self._definition(d) for d in document["type_definitions"]}
        self.nodes: list[expr.Expr] = []

    def module(self) -> IRModule:
        for record in self.document["nodes"]:
            node = _LOAD[record["kind"]](self, record)
            span = record.get("span")
            # Operators are looked up in the registry.
            is_final = span is None or isinstance(node, Op)
            self.nodes.append(node if is_final else node.replace(span=Span(*span)))
        functions = {name: self._function(i) for name, i in self.document["functions"].items()}
        named = {name: self.nodes[i] for name, i in self.document["named"].items()}
        return IRModule(functions, self.definitions, load_value(self.document["attrs"]),
                        named=named)

    def _function(self, index: int) -> expr.Function:
        found = self.nodes[index]
        if not isinstance(found, expr.Function):
            raise TypeError(f"node {index} is not a function")
        return found

    def _definition(self, record: Record) -> expr.TypeData:
        header = GlobalTypeVar(record["name"])
        made = [
            expr.Constructor(c["name"], tuple(map(self.types.type_, c["inputs"])), header, tag)
            for tag, c in enumerate(record["constructors"])
        ]
        generics = tuple(self.types.variable(i) for i in record["type_vars"])
        return expr.TypeData(header, generics, tuple(made))

    def all(self, numbers: list[int]) -> tuple[expr.Expr, ...]:
        return tuple(self.nodes[i] for i in numbers)

    def var(self, index: int) -> expr.Var:
        found = self.nodes[index]
        if not isinstance(found, expr.Var):
            raise TypeError(f"node {index} is not a variable")
        return found

    def call(self, record: Record) -> expr.Expr:
        op, args = self.nodes[record["op"]], self.all(record["args"])
        attrs = {name: load_value(value) for name, value in record.get("attrs", {}).items()}
        if isinstance(op, Op):
            return expr.Call(op, args, op.attrs_type.make(attrs))
        type_args = tuple(map(self.types.type_, record.get("type_args", ())))
        return expr.Call(op, args, type_args=type_args)

    def function(self, record: Record) -> expr.Expr:
        result = record.get("ret_type")
        return expr.Function(tuple(self.var(i) for i in record["params"]),
                             self.nodes[record["body"]],
                             None if result is None else self.types.type_(result),
                             tuple(self.types.variable(i) for i in record.get("type_params", ())),
                             load_value(record["attrs"]) if "attrs" in record else {})

    def variable(self, record: Record) -> expr.Expr:
        type_ = record.get("type")
        return expr.Var(record["name"], None if type_ is None else self.types.type_(type_))

    def match(self, record: Record) -> expr.Expr:
        clauses = tuple(expr.Clause(self._pattern(p), self.nodes[i]) for p, i in record["clauses"])
        return expr.Match(self.nodes[record["data"]], clauses, record["complete"])

    def _pattern(self, record: Any) -> expr.Pattern:
        if record is None:
            return expr.PatternWildcard()
        if isinstance(record, int):
            return expr.PatternVar(self.var(record))
        if "tuple" in record:
            return expr.PatternTuple(tuple(map(self._pattern, record["tuple"])))
        constructor = self.nodes[record["constructor"]]
        if not isinstance(constructor, expr.Constructor):
            raise TypeError("a pattern names something other than a constructor")
        return expr.PatternConstructor(constructor, tuple(map(self._pattern, record["fields"])))

    def constructor(self, record: Record) -> expr.Expr:
        found = self.definitions[record["type"]].constructors
        return next(c for c in found if c.name == record["name"])

    def constant(self, record: Record) -> expr.Expr:
        data: bytes | memoryview
        if "kept" in record:
            if self._kept is None:
                raise ParseError("the bytes of a constant are outside of the text",
                                 got=record["kept"], help="load the artifact that it is part of")
            data = self._kept(record["kept"])
        else:
            data = base64.b64decode(record["data"], validate=True)
        dtype = DType.parse(record["dtype"]).numpy
        return expr.Constant(np.frombuffer(data, dtype).reshape(record["shape"]))


_LOAD: dict[str, Callable[[_Reader, Record], expr.Expr]] = {
    "Op": lambda _, r: get_op(r["name"]),
    "GlobalVar": lambda _, r: expr.GlobalVar(r["name"]),
    "Constructor": _Reader.constructor,
    "Var": _Reader.variable,
    "Constant": _Reader.constant,
    "Tuple": lambda reader, r: expr.Tuple(reader.all(r["fields"])),
    "TupleGetItem": lambda reader, r: expr.TupleGetItem(reader.nodes[r["tuple"]], r["index"]),
    "Call": _Reader.call,
    "Function": _Reader.function,
    "Let": lambda reader, r: expr.Let(reader.var(r["parts"][0]), *reader.all(r["parts"][1:])),
    "If": lambda reader, r: expr.If(*reader.all(r["parts"])),
    "RefCreate": lambda reader, r: expr.RefCreate(*reader.all(r["parts"])),
    "RefRead": lambda reader, r: expr.RefRead(*reader.all(r["parts"])),
    "RefWrite": lambda reader, r: expr.RefWrite(*reader.all(r["parts"])),
    "Match": _Reader.match,
}
