"""The operator calls of a function as a graph, and its post-dominator tree.

Tuples and projections are edges, not nodes: an operator that takes a tuple depends on the tuple's
fields. The post-dominator of a call is the first call on every path from it to the result.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field

from weft.ir import Op, OpPattern, TensorType, children, dim_product, has_any, post_order
from weft.ir.expr import Call, Expr, Function, Let, Tuple, TupleGetItem, Var
from weft.support.dataclass import dataclass
from weft.transform.analysis.graph import enters, known_type, op_name
from weft.transform.analysis.scopes import Scopes


@dataclass(eq=False, slots=True)
class DataflowNode:
    """One operator call; ``users`` pairs each user with the pattern of the use.

    ``is_extern``: an expression other than an operator call uses the value too.
    """

    index: int
    call: Call
    pattern: OpPattern
    users: list[tuple[int, OpPattern]] = field(default_factory=list)
    is_extern: bool = False


@dataclass(frozen=True, slots=True)
class Dominator:
    """A node of the post-dominator tree; ``pattern`` is the highest on the way to ``parent``."""

    parent: int | None
    depth: int
    pattern: OpPattern


def wired_calls(expr: Expr) -> Iterator[Expr]:
    """The producers of ``expr``, each once, looking through tuples and projections."""
    pending = [expr]
    seen: set[Expr] = set()
    while pending:
        node = pending.pop()
        if node in seen:
            continue
        seen.add(node)
        if isinstance(node, Tuple):
            pending.extend(reversed(node.fields))
        elif isinstance(node, TupleGetItem):
            whole = node.tuple_value
            pending.append(whole.fields[node.index] if isinstance(whole, Tuple) else whole)
        else:
            yield node


class DataflowGraph:
    """``nodes`` are in topological order, producers first."""

    def __init__(self, fn: Function, *, is_barrier: frozenset[Call] = frozenset()) -> None:
        self.nodes: list[DataflowNode] = []
        self.index_of: dict[Expr, int] = {}
        self._levels = _closure_levels(fn)
        for expr in post_order(fn, enter=enters):
            self._add(expr, is_barrier)

    def _add(self, expr: Expr, barriers: frozenset[Call]) -> None:
        if isinstance(expr, Call) and isinstance(expr.op, Op):
            pattern = OpPattern.OPAQUE if expr in barriers else expr.op.pattern
            node = DataflowNode(len(self.nodes), expr, pattern)
            self.nodes.append(node)
            self.index_of[expr] = node.index
            for arg in expr.args:
                self._connect(arg, node)
        elif isinstance(expr, Function) and enters(expr):
            self._mark_extern(expr.body)
        elif not isinstance(expr, (Tuple, TupleGetItem)):
            for child in children(expr):
                self._mark_extern(child)

    def _connect(self, arg: Expr, user: DataflowNode) -> None:
        for producer in wired_calls(arg):
            index = self.index_of.get(producer)
            if index is not None:
                edge = _edge_pattern(self.nodes[index].call, arg, user)
                self.nodes[index].users.append((user.index, edge))
                # A closure may run more often than the code around it (loops are closures), so a
                # loop invariant must not be fused into the kernels of the closure.
                if self._levels.get(producer, 0) != self._levels.get(user.call, 0):
                    self.nodes[index].is_extern = True

    def _mark_extern(self, expr: Expr) -> None:
        for producer in wired_calls(expr):
            index = self.index_of.get(producer)
            if index is not None:
                self.nodes[index].is_extern = True

    def post_dominators(self) -> list[Dominator]:
        """The tree as a list by node index; ``None`` is the parent of nodes with outside uses."""
        tree: list[Dominator | None] = [None] * len(self.nodes)
        for node in reversed(self.nodes):
            parent, pattern = None, OpPattern.OPAQUE
            if node.users and not node.is_extern:
                parent, pattern = _common_ancestor(node.users, tree)
            depth = 1 if parent is None else tree[parent].depth + 1  # type: ignore[union-attr]
            tree[node.index] = Dominator(parent, depth, pattern)
        return tree  # type: ignore[return-value]


def _closure_levels(fn: Function) -> dict[Expr, int]:
    """The depth of the innermost closure on whose parameters an expression depends.

    Only expressions deeper than the function's own body are in the result.
    """
    order = list(post_order(fn, enter=enters))[:-1]
    if not any(isinstance(expr, Function) and enters(expr) for expr in order):
        return {}
    scopes = Scopes(fn.body)
    levels: dict[Expr, int] = {}
    for (owner, position), scope in scopes.inner.items():
        if isinstance(owner, Function) and position == len(owner.params):
            for param in owner.params:
                levels[param] = scope.depth
    bound = {expr.var: expr.value for expr in order if isinstance(expr, Let)}

    def level_of(expr: Expr) -> int:
        while isinstance(expr, Var) and expr in bound:
            expr = bound[expr]  # which precedes the uses of the variable
        return levels.get(expr, 0)

    for expr in order:
        if not isinstance(expr, Var):
            level = max(map(level_of, children(expr)), default=0)
            if level:
                levels[expr] = level
    return levels


def _edge_pattern(producer: Call, arg: Expr, user: DataflowNode) -> OpPattern:
    """The pattern of the use when ``user`` reads ``producer`` through ``arg``."""
    if user.pattern is not OpPattern.BROADCAST and op_name(user.call) != "broadcast_to":
        return user.pattern
    source, result = known_type(arg), known_type(user.call)
    if not isinstance(source, TensorType) or not isinstance(result, TensorType):
        return user.pattern
    if source.shape == result.shape and not has_any(result.shape):
        return OpPattern.ELEMWISE
    if producer.args and dim_product(source.shape) != dim_product(result.shape):
        # Fused, every element would be recomputed for each element that it is broadcast to.
        return OpPattern.OPAQUE
    return user.pattern


def _common_ancestor(
    users: list[tuple[int, OpPattern]], tree: list[Dominator | None]
) -> tuple[int | None, OpPattern]:
    ancestor: int | None = users[0][0]
    pattern = users[0][1]
    for user, edge in users[1:]:
        pattern = max(pattern, edge)
        ancestor, pattern = _meet(ancestor, user, pattern, tree)
    return ancestor, pattern


def _meet(
    a: int | None, b: int | None, pattern: OpPattern, tree: list[Dominator | None]
) -> tuple[int | None, OpPattern]:
    """The lowest common ancestor, found by climbing from the deeper node."""
    while a != b:
        if a is None or b is None:
            return None, OpPattern.OPAQUE
        up_a, up_b = tree[a], tree[b]
        if up_a is None or up_b is None:
            return None, OpPattern.OPAQUE
        if up_a.depth >= up_b.depth:
            pattern, a = max(pattern, up_a.pattern), up_a.parent
        if up_b.depth >= up_a.depth:
            pattern, b = max(pattern, up_b.pattern), up_b.parent
    return a, pattern
