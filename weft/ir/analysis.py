"""Facts about programs: their variables, types, operators and language features."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from weft.ir.dtype import DType
from weft.ir.expr import (
    Call,
    Constant,
    Constructor,
    Expr,
    Function,
    GlobalVar,
    If,
    Let,
    Match,
    RefCreate,
    RefRead,
    RefWrite,
    Tuple,
    TupleGetItem,
    Var,
)
from weft.ir.module import IRModule
from weft.ir.op import Op
from weft.ir.types import CompositeType, TensorType, Type, TypeVar
from weft.ir.typing.adt import uncovered_cases
from weft.ir.visitor import binders, free_vars, post_order

_KINDS: tuple[tuple[str, type[Expr]], ...] = (
    ("var", Var),
    ("global_var", GlobalVar),
    ("constant", Constant),
    ("tuple", Tuple),
    ("tuple_get_item", TupleGetItem),
    ("function", Function),
    ("call", Call),
    ("let", Let),
    ("if", If),
    ("ref_create", RefCreate),
    ("ref_read", RefRead),
    ("ref_write", RefWrite),
    ("constructor", Constructor),
    ("match", Match),
)


def all_vars(expr: Expr) -> tuple[Var, ...]:
    """Variables bound or used, in order of first occurrence."""
    return tuple(n for n in post_order(expr) if isinstance(n, Var))


def bound_vars(expr: Expr) -> tuple[Var, ...]:
    """Variables that functions, lets and patterns inside ``expr`` bind."""
    found = {id(v): v for node in post_order(expr) for v in binders(node)}
    return tuple(found.values())


def types_in(expr: Expr) -> Iterator[Type]:
    """Every declared or inferred type in ``expr``, and its component types, each once."""
    seen: set[Type] = set()
    for node in post_order(expr):
        pending = [t for t in _types_of(node) if t is not None]
        while pending:
            current = pending.pop()
            if current in seen:
                continue
            seen.add(current)
            yield current
            if isinstance(current, CompositeType):
                pending.extend(reversed(current.components()))


def _types_of(node: Expr) -> list[Type | None]:
    found: list[Type | None] = [node.checked_type]
    if isinstance(node, Var):
        found.append(node.annotation)
    elif isinstance(node, Function):
        found.append(node.ret_type)
    elif isinstance(node, Call):
        found.extend(node.type_args)
    return found


def bound_type_vars(expr: Expr) -> tuple[TypeVar, ...]:
    """Type parameters of functions in ``expr``, and of function types in its types."""
    functions = (n for n in post_order(expr) if isinstance(n, Function))
    found = dict.fromkeys(v for fn in functions for v in fn.type_params)
    for type_ in types_in(expr):
        if isinstance(type_, CompositeType):
            found.update(dict.fromkeys(type_.binds()))
    return tuple(found)


def free_type_vars(expr: Expr) -> tuple[TypeVar, ...]:
    """Type variables that are not bound in ``expr``."""
    bound = set(bound_type_vars(expr))
    return tuple(t for t in types_in(expr) if isinstance(t, TypeVar) and t not in bound)


def all_dtypes(expr: Expr) -> frozenset[DType]:
    """Element types of the tensors in ``expr``, which must be typed."""
    return frozenset(t.dtype for t in types_in(expr) if isinstance(t, TensorType))


def op_counts(program: Expr | IRModule) -> dict[str, int]:
    """The number of calls of each operator, most frequent first."""
    roots = program.functions.values() if isinstance(program, IRModule) else [program]
    counts = Counter(
        node.op.name
        for root in roots
        for node in post_order(root)
        if isinstance(node, Call) and isinstance(node.op, Op)
    )
    return dict(counts.most_common())


def unmatched_cases(match: Match, mod: IRModule) -> list[str]:
    """Patterns that together describe the values not covered by any clause of ``match``."""
    return list(uncovered_cases(match.clauses, mod.type_definitions))


def features(expr: Expr) -> frozenset[str]:
    """The language features that ``expr`` uses.

    One name for each kind of node, and ``op``, ``graph`` (a node other than a variable or constant
    has several uses), ``let_rec`` (a function calls itself by its let variable), ``closure`` (a
    function captures variables).
    """
    nodes = list(post_order(expr))
    found = {name for name, kind in _KINDS if any(isinstance(n, kind) for n in nodes)}
    if any(isinstance(n, Call) and isinstance(n.op, Op) for n in nodes):
        found.add("op")
    if _shares(nodes):
        found.add("graph")
    for node in nodes:
        if isinstance(node, Let) and isinstance(node.value, Function):
            if node.var in free_vars(node.value):
                found.add("let_rec")
        elif isinstance(node, Function) and node is not expr and free_vars(node):
            found.add("closure")
    return frozenset(found)


def _shares(nodes: list[Expr]) -> bool:
    values = [n for n in nodes if isinstance(n, (Call, Tuple, TupleGetItem))]
    operands: Counter[int] = Counter()
    for node in values:
        if isinstance(node, Call):
            operands.update(map(id, node.args))
        elif isinstance(node, Tuple):
            operands.update(map(id, node.fields))
        else:
            operands[id(node.tuple_value)] += 1
    return any(operands[id(n)] > 1 for n in values)


class CallGraph:
    """The direct calls between global functions."""

    def __init__(self, mod: IRModule) -> None:
        self.callees: dict[str, tuple[str, ...]] = {}
        for name, fn in mod.functions.items():
            called = (n.name for n in post_order(fn) if isinstance(n, GlobalVar))
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
