"""Facts about programs: their variables, types, operators and language features."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from weft.ir import expr
from weft.ir.dtype import DType
from weft.ir.module import IRModule
from weft.ir.op import Op
from weft.ir.types import CompositeType, TensorType, TupleType, Type, TypeVar
from weft.ir.typing.adt import uncovered_cases
from weft.ir.visitor import binders, free_vars, post_order

_KINDS: tuple[tuple[str, type[expr.Expr]], ...] = (
    ("var", expr.Var), ("global_var", expr.GlobalVar), ("constant", expr.Constant),
    ("tuple", expr.Tuple), ("tuple_get_item", expr.TupleGetItem), ("function", expr.Function),
    ("call", expr.Call), ("let", expr.Let), ("if", expr.If), ("ref_create", expr.RefCreate),
    ("ref_read", expr.RefRead), ("ref_write", expr.RefWrite), ("constructor", expr.Constructor),
    ("match", expr.Match)
)


def known_type(node: expr.Expr) -> Type | None:
    """The inferred type, else the declared one, else ``None``."""
    if node.checked_type is not None:
        return node.checked_type
    fields: list[int] = []
    while isinstance(node, expr.TupleGetItem) and node.checked_type is None:
        fields.append(node.index)
        node = node.tuple_value
    found = node.checked_type
    if found is None and isinstance(node, expr.Var):
        found = node.annotation
    for index in reversed(fields):
        if not isinstance(found, TupleType):
            return None
        found = found.fields[index]
    return found


def all_vars(node: expr.Expr) -> tuple[expr.Var, ...]:
    """Variables bound or used, in order of first occurrence."""
    return tuple(n for n in post_order(node) if isinstance(n, expr.Var))


def bound_vars(root: expr.Expr) -> tuple[expr.Var, ...]:
    """Variables that functions, lets and patterns inside ``root`` bind."""
    found = {id(v): v for node in post_order(root) for v in binders(node)}
    return tuple(found.values())


def types_in(root: expr.Expr) -> Iterator[Type]:
    """Every declared or inferred type in ``root``, and its component types, each once."""
    seen: set[Type] = set()
    for node in post_order(root):
        pending = [t for t in _types_of(node) if t is not None]
        while pending:
            current = pending.pop()
            if current in seen:
                continue
            seen.add(current)
            yield current
            if isinstance(current, CompositeType):
                pending.extend(reversed(current.components()))


def _types_of(node: expr.Expr) -> list[Type | None]:
    found: list[Type | None] = [node.checked_type]
    if isinstance(node, expr.Var):
        found.append(node.annotation)
    elif isinstance(node, expr.Function):
        found.append(node.ret_type)
    elif isinstance(node, expr.Call):
        found.extend(node.type_args)
    return found


def bound_type_vars(node: expr.Expr) -> tuple[TypeVar, ...]:
    """Type parameters of functions in ``node``, and of function types in its types."""
    functions = (n for n in post_order(node) if isinstance(n, expr.Function))
    found = dict.fromkeys(v for fn in functions for v in fn.type_params)
    for type_ in types_in(node):
        if isinstance(type_, CompositeType):
            found.update(dict.fromkeys(type_.binds()))
    return tuple(found)


def free_type_vars(node: expr.Expr) -> tuple[TypeVar, ...]:
    """Type variables that are not bound in ``node``."""
    bound = set(bound_type_vars(node))
    return tuple(t for t in types_in(node) if isinstance(t, TypeVar) and t not in bound)


def all_dtypes(node: expr.Expr) -> frozenset[DType]:
    """Element types of the tensors in ``node``, which must be typed."""
    return frozenset(t.dtype for t in types_in(node) if isinstance(t, TensorType))


def op_counts(program: expr.Expr | IRModule) -> dict[str, int]:
    """The number of calls of each operator, most frequent first."""
    roots = program.functions.values() if isinstance(program, IRModule) else [program]
    counts = Counter(
        node.op.name
        for root in roots
        for node in post_order(root)
        if isinstance(node, expr.Call) and isinstance(node.op, Op)
    )
    return dict(counts.most_common())


def unmatched_cases(match: expr.Match, mod: IRModule) -> list[str]:
    """Patterns that together describe the values not covered by any clause of ``match``."""
    return list(uncovered_cases(match.clauses, mod.type_definitions))


def features(root: expr.Expr) -> frozenset[str]:
    """The language features that ``root`` uses.

    One name for each kind of node, and ``op``, ``graph`` (a node other than a variable or constant
    has several uses), ``let_rec`` (a function calls itself by its let variable), ``closure`` (a
    function captures variables).
    """
    nodes = list(post_order(root))
    found = {name for name, kind in _KINDS if any(isinstance(n, kind) for n in nodes)}
    if any(isinstance(n, expr.Call) and isinstance(n.op, Op) for n in nodes):
        found.add("op")
    if _shares(nodes):
        found.add("graph")
    for node in nodes:
        if isinstance(node, expr.Let) and isinstance(node.value, expr.Function):
            if node.var in free_vars(node.value):
                found.add("let_rec")
        elif isinstance(node, expr.Function) and node is not root and free_vars(node):
            found.add("closure")
    return frozenset(found)


def _shares(nodes: list[expr.Expr]) -> bool:
    values = [n for n in nodes if isinstance(n, (expr.Call, expr.Tuple, expr.TupleGetItem))]
    operands: Counter[int] = Counter()
    for node in values:
        if isinstance(node, expr.Call):
            operands.update(map(id, node.args))
        elif isinstance(node, expr.Tuple):
            operands.update(map(id, node.fields))
        else:
            operands[id(node.tuple_value)] += 1
    return any(operands[id(n)] > 1 for n in values)


class CallGraph:
    """The direct calls between global functions."""

    def __init__(self, mod: IRModule) -> None:
        self.callees: dict[str, tuple[str, ...]] = {}
        for name, fn in mod.functions.items():
            called = (n.name for n in post_order(fn) if isinstance(n, expr.GlobalVar))
            self.callees[name] = tuple(dict.fromkeys(called))

    def callers(self, name: str) -> tuple[str, ...]:
        """Functions that refer to ``@name``."""
        return tuple(n for n, called in self.callees.items() if name in called)

    def reachable(self, name: str) -> tuple[str, ...]:
        """``name`` and all its direct and indirect callees, in order of discovery."""
        found: dict[str, None] = {}
        pending = [name]
        while pending:
            current = pending.pop()
            if current not in found:
                found[current] = None
                pending.extend(reversed(self.callees.get(current, ())))
        return tuple(found)

    def is_recursive(self, name: str) -> bool:
        """Whether ``@name`` may call itself, directly or indirectly."""
        return any(name in self.callees.get(n, ()) for n in self.reachable(name))
