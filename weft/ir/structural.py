"""Structural equality and hashing of programs.

Two programs are equal if they differ only in names of bound variables, spans and inferred types.
Sharing matters: ``add(%0, %0)`` with one ``%0`` differs from ``add`` of two equal calls. Both
operations take one walk over the DAG.

Values that are not expressions (attributes, types, arrays) have a canonical text: equal text means
equal values, in every process and on every machine.
"""

from __future__ import annotations

import dataclasses
import enum
import hashlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from weft.ir import expr
from weft.ir.attrs import Attrs
from weft.ir.dtype import DType
from weft.ir.module import IRModule
from weft.ir.op import Op
from weft.ir.shape import AnyDim, SymDim
from weft.ir.types import CompositeType, IncompleteType, Type, TypeVar
from weft.ir.typing.report import describe
from weft.ir.visitor import binders, children, post_order
from weft.support.dataclass import dataclass
from weft.support.errors import InternalError, WeftError


def array_digest(array: np.ndarray) -> str:
    """A digest of dtype, shape and bytes (so NaN equals NaN, and 0 is not -0)."""
    digest = hashlib.blake2b(f"{array.dtype.name}{array.shape}".encode(), digest_size=16)
    digest.update(np.ascontiguousarray(array).view(np.uint8).reshape(-1).data)
    return digest.hexdigest()


def encode_value(value: Any) -> str:
    """Canonical text of an attribute's value.

    Raises ``InternalError`` for objects without value semantics.
    """
    if isinstance(value, np.generic):
        value = value.item()  # a NumPy scalar encodes like the number it holds
    if value is None or isinstance(value, (bool, str, bytes)):
        return repr(value)
    if isinstance(value, (int, float)) and not isinstance(value, enum.Enum):
        return f"{type(value).__name__}:{value!r}"
    if isinstance(value, (DType, SymDim, AnyDim)):
        return f"{type(value).__name__}:{value}"
    if isinstance(value, (tuple, list)):
        return f"({','.join(map(encode_value, value))})"
    if isinstance(value, (set, frozenset)):
        return f"{{{','.join(sorted(map(encode_value, value)))}}}"
    if isinstance(value, Mapping):
        items = sorted((encode_value(k), encode_value(v)) for k, v in value.items())
        return f"{{{','.join(f'{k}:{v}' for k, v in items)}}}"
    return _encode_object(value)


def _encode_object(value: Any) -> str:
    if isinstance(value, enum.Enum):
        return f"{type(value).__name__}.{value.name}"
    if isinstance(value, Attrs):
        return encode_attrs(value)
    if isinstance(value, Type):
        return TypeEncoder().encode(value)
    if isinstance(value, np.ndarray):
        return f"array:{array_digest(value)}"
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
        return f"{type(value).__name__}{encode_value(fields)}"
    raise InternalError(f"an attribute value of type {type(value).__name__} has no canonical form",
                        help="use numbers, strings, tuples, dtypes or frozen dataclasses")


def encode_attrs(attrs: Attrs) -> str:
    """The record's class and all its values as canonical text."""
    return f"{type(attrs).__name__}{encode_value(dict(attrs.items()))}"


class TypeEncoder:
    """Encodes types with numbers for type variables and incomplete types.

    One encoder serves one program: the same variable gets the same number throughout.
    """

    def __init__(self) -> None:
        self._numbers: dict[Type, int] = {}

    def encode(self, type_: Type | None) -> str:
        if type_ is None:
            return "-"
        written: list[str] = []
        stack: list[Type | str] = [type_]
        while stack:
            item = stack.pop()
            if isinstance(item, CompositeType):
                generics = ",".join(self._number(v) for v in item.binds())
                written.append(f"{type(item).__name__}[{generics}](")
                stack.append(")")
                for part in reversed(item.components()):
                    stack += [",", part]
            elif isinstance(item, (TypeVar, IncompleteType)):
                written.append(self._number(item))
            else:
                written.append(str(item))
        return "".join(written)

    def _number(self, type_: Type) -> str:
        return f"{type(type_).__name__}{self._numbers.setdefault(type_, len(self._numbers))}"


Node = expr.Expr | IRModule


class StructuralMismatchError(WeftError):
    """Two programs that should be equal differ; ``where`` is the path to the first difference."""

    code = "E0320"


def structural_equal(a: Any, b: Any, *, map_free_vars: bool = False) -> bool:
    """Whether two expressions, modules, types or attribute records are equal.

    A free variable equals itself; with ``map_free_vars`` also another one, one to one.
    """
    return _first_difference(a, b, map_free_vars=map_free_vars) is None


def assert_structural_equal(a: Any, b: Any, *, map_free_vars: bool = False) -> None:
    """Raise ``StructuralMismatchError`` with the path to the first difference."""
    found = _first_difference(a, b, map_free_vars=map_free_vars)
    if found is not None:
        path, left, right = found
        raise StructuralMismatchError(
            "the programs are not structurally equal", where=path, expected=right, got=left
        )


def structural_hash(node: Any) -> str:
    """A hex digest, the same in every process, and equal for structurally equal programs."""
    digest = hashlib.blake2b(digest_size=20)
    for record in _records(node):
        digest.update(record.encode())
        digest.update(b"\n")
    return digest.hexdigest()


def program_hash(mod: IRModule) -> str:
    """What decides about the code of a program, as text: ``structural_hash`` omits names, and those
    of main's parameters name inputs.
    """
    names = [param.name for param in mod["main"].params] if "main" in mod else []
    return f"{structural_hash(mod)} {names!r} {sorted(mod.attrs.items())!r}"


_Difference = tuple[str, str, str]


def _first_difference(a: Any, b: Any, *, map_free_vars: bool) -> _Difference | None:
    if isinstance(a, expr.Expr) and isinstance(b, expr.Expr):
        return _Comparison(map_free_vars).compare(a, b, "")
    if isinstance(a, IRModule) and isinstance(b, IRModule):
        return _compare_modules(a, b, map_free_vars=map_free_vars)
    left, right = encode_value(a), encode_value(b)
    return None if left == right else ("value", str(a), str(b))


def _compare_modules(a: IRModule, b: IRModule, *, map_free_vars: bool) -> _Difference | None:
    for what, left, right in (("functions", sorted(a.functions), sorted(b.functions)),
                              ("data types", _definitions(a), _definitions(b)),
                              ("attributes", encode_value(a.attrs), encode_value(b.attrs))):
        if left != right:
            return what, str(left), str(right)
    for name, fn in a.functions.items():
        found = _Comparison(map_free_vars).compare(fn, b.functions[name], f"@{name}")
        if found is not None:
            return found
    return None


def _definitions(mod: IRModule) -> list[str]:
    return [_definition_text(mod.type_definitions[n]) for n in sorted(mod.type_definitions)]


def _definition_text(data: expr.TypeData) -> str:
    types = TypeEncoder()
    generics = [types.encode(v) for v in data.type_vars]
    parts = [f"{c.name}({','.join(map(types.encode, c.inputs))})" for c in data.constructors]
    return f"{data.header}{generics}{parts}"


# -- the label of a node: all but its operands ---------------------------------------------------


def _label(node: expr.Expr, types: TypeEncoder) -> str:
    """Everything about ``node`` that is neither an operand nor a variable's identity."""
    kind = type(node)
    extra = _EXTRA.get(kind)
    return kind.__name__ if extra is None else f"{kind.__name__} {extra(node, types)}"


def _call_label(call: expr.Call, types: TypeEncoder) -> str:
    name = call.op.name if isinstance(call.op, Op) else ""
    generics = f" [{','.join(map(types.encode, call.type_args))}]" if call.type_args else ""
    return f"{name} {encode_attrs(call.attrs)}{generics}"


def _function_label(fn: expr.Function, types: TypeEncoder) -> str:
    generics = ",".join(types.encode(v) for v in fn.type_params)
    return f"[{generics}] {encode_value(fn.attrs)} {types.encode(fn.ret_type)}"


def _match_label(match: expr.Match, _: TypeEncoder) -> str:
    return f"{match.complete} {' '.join(_pattern_text(c.lhs) for c in match.clauses)}"


def _pattern_text(pattern: expr.Pattern) -> str:
    if isinstance(pattern, expr.PatternConstructor):
        return f"{pattern.constructor.name}({','.join(map(_pattern_text, pattern.patterns))})"
    if isinstance(pattern, expr.PatternTuple):
        return f"({','.join(map(_pattern_text, pattern.patterns))})"
    return "%" if isinstance(pattern, expr.PatternVar) else "_"


_EXTRA: dict[type, Callable[[Any, TypeEncoder], str]] = {
    Op: lambda e, _: e.name,
    expr.Var: lambda e, types: types.encode(e.annotation),
    expr.GlobalVar: lambda e, _: e.name,
    expr.Constant: lambda e, _: array_digest(e.data),
    expr.Constructor: lambda e, _: f"{e.belongs_to}.{e.name}",
    expr.Call: _call_label,
    expr.Function: _function_label,
    expr.TupleGetItem: lambda e, _: str(e.index),
    expr.Match: _match_label,
}
# Nodes of these kinds compare by value: sharing one makes no difference.
_VALUES = (Op, expr.GlobalVar, expr.Constant, expr.Constructor)


# -- equality ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Path:
    """Steps from the root, as a linked list, so that deep programs need no copy per node."""

    parent: _Path | None
    step: str

    def __str__(self) -> str:
        steps = []
        current: _Path | None = self
        while current is not None:
            steps.append(current.step)
            current = current.parent
        return "".join(reversed(steps))


class _Comparison:
    """Walks two programs in lockstep, and keeps a one-to-one map between their nodes."""

    def __init__(self, map_free_vars: bool) -> None:
        self.map_free_vars = map_free_vars
        self.left: dict[int, expr.Expr] = {}
        self.right: dict[int, expr.Expr] = {}
        self.left_types = TypeEncoder()
        self.right_types = TypeEncoder()

    def compare(self, a: expr.Expr, b: expr.Expr, root: str) -> _Difference | None:
        pending = [(a, b, _Path(None, root))]
        while pending:
            x, y, path = pending.pop()
            if id(x) in self.left or id(y) in self.right:
                if self.left.get(id(x)) is not y or self.right.get(id(y)) is not x:
                    return self._differ(path, x, y, "different sharing: ")
                continue
            if isinstance(x, _VALUES) or isinstance(y, _VALUES):
                if x is not y and not self._same_label(x, y):
                    return self._differ(path, x, y)
                continue
            if isinstance(x, expr.Var) and x is not y and not self.map_free_vars:
                return self._differ(path, x, y, "free variable ")
            if not self._same_label(x, y):
                return self._differ(path, x, y)
            self._pair(x, y)
            if not self._pair_binders(x, y):
                return self._differ(path, x, y, "parameters of ")
            parts = list(zip(children(x), children(y), strict=False))
            if len(children(x)) != len(children(y)):
                return self._differ(path, x, y, f"{len(children(x))} operands: ")
            steps = _steps(x, len(parts))
            pending.extend(
                (c, d, _Path(path, s))
                for (c, d), s in reversed(list(zip(parts, steps, strict=True)))
            )
        return None

    def _pair(self, x: expr.Expr, y: expr.Expr) -> None:
        self.left[id(x)] = y
        self.right[id(y)] = x

    def _pair_binders(self, x: expr.Expr, y: expr.Expr) -> bool:
        mine, theirs = binders(x), binders(y)
        if len(mine) != len(theirs):
            return False
        for v, w in zip(mine, theirs, strict=True):
            if not self._same_label(v, w):
                return False
            self._pair(v, w)
        return True

    def _same_label(self, x: expr.Expr, y: expr.Expr) -> bool:
        if type(x) is not type(y):
            return False
        return _label(x, self.left_types) == _label(y, self.right_types)

    def _differ(self, path: _Path, x: expr.Expr, y: expr.Expr, prefix: str = "") -> _Difference:
        left, right = describe(x), describe(y)
        if left == right:
            left, right = _label(x, self.left_types), _label(y, self.right_types)
        return str(path) or "root", prefix + left, prefix + right


def _steps(node: expr.Expr, count: int) -> list[str]:
    if isinstance(node, expr.Call) and isinstance(node.op, Op):
        return [f".{node.op.name}[{i}]" for i in range(count)]
    if isinstance(node, expr.Function):
        return [f".params[{i}]" for i in range(count - 1)] + [".body"]
    if isinstance(node, expr.Let):
        return [".var", ".value", ".body"]
    return [f".{type(node).__name__.lower()}[{i}]" for i in range(count)]


# -- hashing -------------------------------------------------------------------------------------


def _records(node: Any) -> list[str]:
    if isinstance(node, IRModule):
        records = ["module", encode_value(node.attrs), *_definitions(node)]
        for name in sorted(node.functions):
            records += [f"@{name}", *_expr_records(node.functions[name])]
        return records
    return _expr_records(node) if isinstance(node, expr.Expr) else [encode_value(node)]


def _expr_records(root: expr.Expr) -> list[str]:
    """One line per node: its label and the numbers of its operands."""
    types = TypeEncoder()
    bound = {id(v) for node in post_order(root) for v in binders(node)}
    operand: dict[int, str] = {}
    records: list[str] = []
    for node in post_order(root):
        label = _label(node, types)
        if isinstance(node, _VALUES):
            operand[id(node)] = label
            continue
        if isinstance(node, expr.Var) and id(node) not in bound:
            label += f" {node.name}"
        parts = " ".join(operand[id(c)] for c in children(node))
        operand[id(node)] = str(len(records))
        records.append(f"{label} <- {parts}")
    return [*records, operand[id(root)]]
