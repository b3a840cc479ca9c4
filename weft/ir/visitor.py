"""Walking and rebuilding expressions without recursion.

A program is a DAG that may be hundreds of thousands of nodes deep, so every walk uses an explicit
stack. Each shared node is visited once; memo tables are keyed by identity.

The children of a node include the variables it binds (parameters, let variables, pattern
variables), before the expressions in their scope. The ``Op`` of a call is not a child.

Other recursive algorithms are generators that ``run_routine`` runs with an explicit stack. One
calls another by ``result = yield other(...)``: depth is bounded by memory, not by Python's stack.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias, TypeGuard, TypeVar

from weft.ir import expr
from weft.ir.op import Op
from weft.support.dataclass import replace
from weft.support.errors import InternalError

Enter = Callable[[expr.Expr], bool]


def pattern_vars(pattern: expr.Pattern) -> tuple[expr.Var, ...]:
    """The variables that a match pattern binds, left to right."""
    found: list[expr.Var] = []
    pending = [pattern]
    while pending:
        current = pending.pop()
        if isinstance(current, expr.PatternVar):
            found.append(current.var)
        elif isinstance(current, (expr.PatternConstructor, expr.PatternTuple)):
            pending.extend(reversed(current.patterns))
    return tuple(found)


def branches_of(node: expr.If | expr.Match) -> tuple[expr.Expr, ...]:
    """The values between which an ``if`` or a ``match`` chooses."""
    if isinstance(node, expr.If):
        return node.true_branch, node.false_branch
    return tuple(clause.rhs for clause in node.clauses)


def is_call_of(node: expr.Expr, name: str) -> TypeGuard[expr.Call]:
    """Whether a node calls the global function ``@name``."""
    return isinstance(node, expr.Call) and isinstance(node.op, expr.GlobalVar) \
        and node.op.name == name


def _no_children(_: Any) -> tuple[expr.Expr, ...]:
    return ()


def _call_children(call: expr.Call) -> tuple[expr.Expr, ...]:
    return call.args if isinstance(call.op, Op) else (call.op, *call.args)


def _match_children(match: expr.Match) -> tuple[expr.Expr, ...]:
    found: list[expr.Expr] = [match.data]
    for clause in match.clauses:
        found.extend(pattern_vars(clause.lhs))
        found.append(clause.rhs)
    return tuple(found)


_CHILDREN: dict[type, Callable[[Any], tuple[expr.Expr, ...]]] = {
    Op: _no_children,
    expr.Var: _no_children,
    expr.GlobalVar: _no_children,
    expr.Constant: _no_children,
    expr.Constructor: _no_children,
    expr.Call: _call_children,
    expr.Tuple: lambda e: e.fields,
    expr.TupleGetItem: lambda e: (e.tuple_value,),
    expr.Function: lambda e: (*e.params, e.body),
    expr.Let: lambda e: (e.var, e.value, e.body),
    expr.If: lambda e: (e.cond, e.true_branch, e.false_branch),
    expr.RefCreate: lambda e: (e.value,),
    expr.RefRead: lambda e: (e.ref,),
    expr.RefWrite: lambda e: (e.ref, e.value),
    expr.Match: _match_children,
}
_LEAVES = frozenset(kind for kind, parts in _CHILDREN.items() if parts is _no_children)


def children(node: expr.Expr) -> tuple[expr.Expr, ...]:
    """The direct sub-expressions, binders included, in order of evaluation."""
    if type(node) is expr.Call and type(node.op) is Op:  # most nodes
        return node.args
    try:
        return _CHILDREN[type(node)](node)
    except KeyError:
        raise InternalError(f"not an expression of the IR: {type(node).__name__}") from None


def binders(node: expr.Expr) -> tuple[expr.Var, ...]:
    """The variables that ``node`` itself binds."""
    if isinstance(node, expr.Function):
        return node.params
    if isinstance(node, expr.Let):
        return (node.var,)
    if isinstance(node, expr.Match):
        return tuple(v for clause in node.clauses for v in pattern_vars(clause.lhs))
    return ()


def evaluated(node: expr.Expr) -> tuple[expr.Expr, ...]:
    """``children`` without the variables bound here: the evaluated subexpressions."""
    if isinstance(node, expr.Function):
        return (node.body,)
    if isinstance(node, expr.Let):
        return (node.value, node.body)
    if isinstance(node, expr.Match):
        return (node.data, *(clause.rhs for clause in node.clauses))
    return children(node)


def is_primitive(node: expr.Expr) -> bool:
    """Whether ``node`` is a function that becomes one kernel."""
    return type(node) is expr.Function and bool(node.attrs.get("primitive"))


def enters(node: expr.Expr) -> bool:
    """Whether a pass over a program visits the inside of ``node``: not for primitive functions."""
    return type(node) is not expr.Function or not is_primitive(node)


class Walk(NamedTuple):
    """The nodes below a function in post-order, and those of them that are functions."""

    nodes: Sequence[expr.Expr]
    functions: Sequence[expr.Function]


def walk_of(fn: expr.Function) -> Walk:
    """The walk over a function, which never changes; kept with it.

    A program is walked many times between two changes: by passes, inference and the verifier.
    """
    try:
        return fn.walk
    except AttributeError:
        nodes = list(_walk(fn, None))
        nodes.pop()  # the function itself, which must not refer to itself
        inner = [node for node in nodes if type(node) is expr.Function]
        found = Walk(tuple(nodes), inner)
        object.__setattr__(fn, "walk", found)
        return found


def post_order(root: expr.Expr, *, enter: Enter | None = None) -> Iterator[expr.Expr]:
    """Every node once, after its operands.

    If ``enter`` is false for a node, the walk yields it but does not enter its children.
    """
    if type(root) is expr.Function and enter in (None, enters):
        walk = walk_of(root)
        if enter is None or not any(map(is_primitive, (*walk.functions, root))):
            return itertools.chain(walk.nodes, (root,))
    return _walk(root, enter)


def _walk(root: expr.Expr, enter: Enter | None) -> Iterator[expr.Expr]:
    """See ``post_order``; ``enter`` is asked as late as possible, as it may change meanwhile."""
    seen: set[expr.Expr] = set()
    stack: list[expr.Expr | None] = [root]
    see, pop = seen.add, stack.pop
    while stack:
        node = pop()
        if node is None:  # below it is a node whose operands are done
            yield pop()  # type: ignore[misc]
            continue
        if node in seen:
            continue
        see(node)
        kind = type(node)
        if kind in _LEAVES or (enter is not None and not enter(node)):
            yield node
            continue
        parts = node.args if kind is expr.Call and type(node.op) is Op else children(node)  # type: ignore[attr-defined]
        waiting = [part for part in parts if part not in seen]
        if waiting:
            waiting.reverse()
            stack += (node, None, *waiting)
        else:
            yield node


def rebuild(node: expr.Expr, parts: Sequence[expr.Expr], **changes: Any) -> expr.Expr:
    """``node`` with ``parts`` for ``children(node)``; ``node`` itself if all are identical.

    ``changes`` sets further fields (``checked_type``). By default the new node is untyped.
    """
    old = children(node)
    if len(old) != len(parts) or not all(map(operator.is_, old, parts)):
        changes = {**_REBUILD[type(node)](node, tuple(parts)), **changes}
        changes.setdefault("checked_type", None)
    return replace(node, **changes) if changes else node


def replace_children(node: expr.Expr, parts: Sequence[expr.Expr]) -> expr.Expr:
    """``node`` over new children of equal types, keeping its type; itself if all are identical."""
    is_plain = type(node) is expr.Call and type(node.op) is Op  # most nodes
    old = node.args if is_plain else children(node)  # type: ignore[attr-defined]
    if len(old) == len(parts) and all(map(operator.is_, old, parts)):
        return node
    if is_plain:
        return _with_args(node, tuple(parts))  # type: ignore[arg-type]
    return rebuild(node, parts, checked_type=node.checked_type)


def _with_args(call: expr.Call, args: tuple[expr.Expr, ...]) -> expr.Call:
    """``replace(call, args=args)`` in half of the time: passes mostly make such nodes."""
    return expr.Call(call.op, args, call.attrs, call.type_args, call.checked_type_args,
                     span=call.span, checked_type=call.checked_type)


def _call_fields(call: expr.Call, parts: tuple[expr.Expr, ...]) -> dict[str, Any]:
    return {"args": parts} if isinstance(call.op, Op) else {"op": parts[0], "args": parts[1:]}


def _binder(part: expr.Expr) -> expr.Var:
    if not isinstance(part, expr.Var):
        raise InternalError("a binding variable was replaced by another expression",
                            expected="a variable", got=type(part).__name__,
                            help="replace the node that binds it as well")
    return part


def _match_fields(match: expr.Match, parts: tuple[expr.Expr, ...]) -> dict[str, Any]:
    rest = iter(parts)
    data = next(rest)
    clauses = []
    for clause in match.clauses:
        renamed = {v: _binder(next(rest)) for v in pattern_vars(clause.lhs)}
        clauses.append(expr.Clause(_rename_pattern(clause.lhs, renamed), next(rest)))
    return {"data": data, "clauses": tuple(clauses)}


def _rename_pattern(pattern: expr.Pattern, renamed: Mapping[expr.Var, expr.Var]) -> expr.Pattern:
    # Patterns are written by hand and short, which bounds this recursion.
    if isinstance(pattern, expr.PatternVar):
        return expr.PatternVar(renamed[pattern.var])
    if isinstance(pattern, expr.PatternConstructor):
        inner = tuple(_rename_pattern(p, renamed) for p in pattern.patterns)
        return expr.PatternConstructor(pattern.constructor, inner)
    if isinstance(pattern, expr.PatternTuple):
        return expr.PatternTuple(tuple(_rename_pattern(p, renamed) for p in pattern.patterns))
    return pattern


_REBUILD: dict[type, Callable[[Any, tuple[expr.Expr, ...]], dict[str, Any]]] = {
    expr.Call: _call_fields,
    expr.Tuple: lambda _, parts: {"fields": parts},
    expr.TupleGetItem: lambda _, parts: {"tuple_value": parts[0]},
    expr.Function: lambda _, parts: {"params": tuple(map(_binder, parts[:-1])), "body": parts[-1]},
    expr.Let: lambda _, parts: {"var": _binder(parts[0]), "value": parts[1], "body": parts[2]},
    expr.If: lambda _, parts: {
        "cond": parts[0],
        "true_branch": parts[1],
        "false_branch": parts[2],
    },
    expr.RefCreate: lambda _, parts: {"value": parts[0]},
    expr.RefRead: lambda _, parts: {"ref": parts[0]},
    expr.RefWrite: lambda _, parts: {"ref": parts[0], "value": parts[1]},
    expr.Match: _match_fields,
}


def rewrite_post_order(
    root: expr.Expr, fn: Callable[[expr.Expr], expr.Expr], *, enter: Enter | None = None
) -> expr.Expr:
    """Replace every node by ``fn`` of it, in post-order.

    ``fn`` is called once per node, with the node over its replaced operands, and returns it to
    leave it unchanged. Unchanged subexpressions keep their identity and types.
    """
    memo: dict[int, expr.Expr] = {}
    for node in post_order(root, enter=enter):
        rebuilt = node
        if enter is None or enter(node):
            parts = children(node)
            if parts:
                rebuilt = rebuild(node, [memo[id(c)] for c in parts])
        memo[id(node)] = fn(rebuilt)
    return memo[id(root)]


def free_vars(root: expr.Expr) -> tuple[expr.Var, ...]:
    """Variables used but not bound in ``root``, in order of first use."""
    bound: set[int] = set()
    used: dict[int, expr.Var] = {}
    for node in post_order(root):
        bound.update(id(v) for v in binders(node))
        if isinstance(node, expr.Var):
            used[id(node)] = node
    return tuple(v for key, v in used.items() if key not in bound)


def substitute(node: expr.Expr, values: Mapping[expr.Var, expr.Expr]) -> expr.Expr:
    """Replace free variables. Variables are unique, so capture is impossible."""
    if not values:
        return node
    return rewrite_post_order(node, lambda e: values.get(e, e) if isinstance(e, expr.Var) else e)


def count_uses(root: expr.Expr) -> dict[expr.Expr, int]:
    """The number of uses of each node as an operand or result of a block; binding is not a use.

    The root counts as used once.
    """
    uses: dict[expr.Expr, int] = {root: 1}
    for node in post_order(root):
        for part in evaluated(node):
            uses[part] = uses.get(part, 0) + 1
    return uses


R = TypeVar("R")
Routine: TypeAlias = Generator[Any, Any, R]


def run_routine(routine: Routine[R]) -> R:
    """Run ``routine`` and all it calls; exceptions propagate through the callers."""
    stack: list[Routine[Any]] = [routine]
    value: Any = None
    error: BaseException | None = None
    while stack:
        try:
            if error is not None:
                pending, error = error, None
                called = stack[-1].throw(pending)
            else:
                called = stack[-1].send(value)
        except StopIteration as done:
            stack.pop()
            value = done.value
        except Exception as raised:  # noqa: BLE001
            stack.pop()
            error = raised
        else:
            stack.append(called)
            value = None
    if error is not None:
        raise error
    return value
