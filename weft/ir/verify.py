"""The verifier: invariants of every module between passes, types aside.

- A variable is bound once and used only in its scope.
- An expression that touches a reference has one position in the order of evaluation.
- Global functions and data types are defined.
- Calls and projections are complete.
- With ``typed``, every node has a type.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping

from weft.ir import expr
from weft.ir.module import IRModule
from weft.ir.op import Op
from weft.ir.types import FuncType, is_flat
from weft.ir.typing.report import describe, location_of
from weft.ir.visitor import children, evaluated, pattern_vars, post_order, walk_of
from weft.support.errors import WellFormedError


def verify_module(mod: IRModule, *, typed: bool = True, after: str | None = None) -> None:
    """Raise ``WellFormedError`` for a violation; ``after`` names the last pass."""
    for name, fn in mod.functions.items():
        if not isinstance(fn, expr.Function):
            raise WellFormedError(f"@{name} is not a function", got=type(fn).__name__)
        _verify(fn, _Rules(mod.functions, mod.type_definitions, name, typed, after))


def verify_expr(root: expr.Expr, *, typed: bool = False) -> None:
    """The same checks for a single expression, which may have free variables."""
    _verify(root, _Rules(None, None, None, typed, None))


def _verify(root: expr.Expr, rules: _Rules) -> None:
    if not isinstance(root, expr.Function) or not _is_closed(root, rules):
        for node in post_order(root):
            rules.check(node)
        _Scopes(rules).walk(root)


def _is_closed(root: expr.Function, rules: _Rules) -> bool:
    """Whether all nodes are plain and comply with the rules, each function inside uses only its own
    parameters, and no two bind the same one.
    """
    pending, seen, params = [root], {id(root)}, set[int]()
    while pending:
        fn = pending.pop()
        own = set(map(id, fn.params))
        if len(own) < len(fn.params) or not own.isdisjoint(params):
            return False
        params |= own
        for node in _nodes_in(fn):
            kind = type(node)
            if kind not in _PLAIN or (kind is expr.Var and id(node) not in own):
                return False
            if kind not in _FREE or node.checked_type is None:
                rules.check(node)
            if isinstance(node, expr.Function) and id(node) not in seen:
                seen.add(id(node))
                pending.append(node)
    return True


def _nodes_in(fn: expr.Function) -> Iterator[expr.Expr]:
    """``fn`` and all below it but the inside of other functions."""
    if not walk_of(fn).functions:
        return post_order(fn)
    return itertools.chain(fn.params, post_order(fn.body, enter=_is_no_function), (fn,))


def _is_no_function(node: expr.Expr) -> bool:
    return type(node) is not expr.Function


class _Rules:
    """The checks of a single node, and the report of a violation."""

    def __init__(self, functions: Mapping[str, expr.Function] | None,
                 definitions: Mapping[str, expr.TypeData] | None, function: str | None, typed: bool,
                 after: str | None) -> None:
        self.functions = functions
        self.definitions = definitions
        self.function = function
        self.typed = typed
        self.after = after

    def check(self, node: expr.Expr) -> None:
        if self.typed and node.checked_type is None and not isinstance(node, (expr.Constructor,
                                                                              Op)):
            self.fail(node, f"{describe(node)} is untyped")
        if type(node) in _FREE:
            return
        if isinstance(node, expr.Call) and isinstance(node.op, Op):
            self._check_op_call(node, node.op)
        elif isinstance(node, expr.Call):
            self._check_type_args(node)
        elif isinstance(node, expr.TupleGetItem) and node.index < 0:
            self.fail(node, "a tuple index is negative", ">= 0", node.index)
        elif isinstance(node, expr.GlobalVar):
            if self.functions is not None and node.name not in self.functions:
                self.fail(node, f"unknown function @{node.name}")
        elif isinstance(node, expr.Constructor):
            header = node.belongs_to
            if self.definitions is not None and header.name not in self.definitions:
                self.fail(node, f"unknown data type {header}")

    def _check_op_call(self, call: expr.Call, op: Op) -> None:
        if len(call.args) != len(op.inputs):
            what = f"{op.name} is called with the wrong number of arguments"
            self.fail(call, what, len(op.inputs), len(call.args))
        if not isinstance(call.attrs, op.attrs_type):
            what = f"{op.name} is called with the attributes of another operator"
            self.fail(call, what, op.attrs_type.__name__, type(call.attrs).__name__)

    def _check_type_args(self, call: expr.Call) -> None:
        callee = call.op.checked_type
        asked = len(callee.type_params) if isinstance(callee, FuncType) else 0
        for given in filter(None, (call.type_args, call.checked_type_args)):
            if isinstance(callee, FuncType) and len(given) != asked:
                what = f"{describe(call)} has the wrong number of type arguments"
                self.fail(call, what, asked, len(given))

    def fail(self, node: expr.Expr, what: str, expected: object = None, got: object = None) -> None:
        raise WellFormedError(
            what if self.after is None else f"after the pass {self.after}: {what}",
            where=location_of(node, self.function), expected=expected, got=got
        )


# Kinds of nodes without a rule of their own, and those that bind no variable but parameters and
# touch no reference.
_FREE = frozenset((expr.Var, expr.Constant, expr.Tuple, expr.Function))
_PLAIN = _FREE | {expr.Call, expr.TupleGetItem, expr.If, expr.GlobalVar, expr.Constructor}
_EFFECTS = (expr.RefCreate, expr.RefRead, expr.RefWrite)
_ENTER, _OPEN, _EXIT = 0, 1, 2
# The innermost scope that a node needs, as (depth, number of the scope).
_Need = tuple[int, int]
_NO_SCOPE: _Need = (0, 0)
_Step = tuple[expr.Expr, int, tuple[expr.Var, ...]]


class _Scopes:
    """One walk in order of evaluation, with a stack of open scopes.

    The walk visits a shared node once and records the innermost scope that the node needs. Another
    use is valid while that scope is open, because its outer scopes are then open too. An expression
    that touches a reference is evaluated at its first use. Another use is valid if control has
    passed the first one, which excludes the other branch and a closure that runs later.
    """

    def __init__(self, rules: _Rules) -> None:
        self.rules = rules
        self.bound: set[int] = set()
        self.open = [0]
        self.scopes = 0
        self.home: dict[int, _Need] = {}
        self.needs: dict[int, _Need] = {}
        self.effects: dict[int, _Need] = {}  # the scope in which each node was evaluated
        self.reach: dict[int, int] = {}
        self._clause_open: set[int] = set()
        self.stack: list[_Step] = []

    def walk(self, root: expr.Expr) -> None:
        self.stack.append((root, _ENTER, ()))
        while self.stack:
            node, step, variables = self.stack.pop()
            if step == _ENTER:
                self._enter(node)
            elif step == _OPEN:
                self._open(node, variables)
            else:
                self._exit(node)

    def _enter(self, node: expr.Expr) -> None:
        if isinstance(node, expr.Var):
            self._use(node)
        elif id(node) in self.needs:
            if not self._is_open(self.needs[id(node)]):
                self.rules.fail(node, f"{describe(node)} is used out of the scope of its variables")
            if not self._is_open(self.effects.get(id(node), _NO_SCOPE)):
                self.rules.fail(
                    node,
                    f"{describe(node)} touches a reference in scopes that exclude each other",
                    "one position in the order of evaluation: bind it by let, or copy it",
                )
        else:
            self.stack.append((node, _EXIT, ()))
            self.stack.extend(reversed(self._steps(node)))

    def _steps(self, node: expr.Expr) -> list[_Step]:
        if isinstance(node, expr.Function):
            return [(node, _OPEN, node.params), (node.body, _ENTER, ())]
        if isinstance(node, expr.Let):
            value, opened = (node.value, _ENTER, ()), (node, _OPEN, (node.var,))
            recursive = isinstance(node.value, expr.Function)
            return [*((opened, value) if recursive else (value, opened)), (node.body, _ENTER, ())]
        if isinstance(node, expr.Match):
            steps: list[_Step] = [(node.data, _ENTER, ())]
            for clause in node.clauses:
                steps += [(node, _OPEN, pattern_vars(clause.lhs)), (clause.rhs, _ENTER, ())]
            return steps
        if isinstance(node, expr.If):
            branches = (node.true_branch, node.false_branch)
            opened = [[(node, _OPEN, ()), (b, _ENTER, ())] for b in branches]
            return [(node.cond, _ENTER, ()), *opened[0], *opened[1]]
        return [(child, _ENTER, ()) for child in children(node)]

    def _is_open(self, need: _Need) -> bool:
        depth, scope = need
        return depth < len(self.open) and self.open[depth] == scope

    def _use(self, variable: expr.Var) -> None:
        need = self.home.get(id(variable), _NO_SCOPE)
        known = id(variable) in self.home
        if not self._is_open(need):
            self.rules.fail(variable, f"%{variable.name} is used outside the scope that binds it")
        if not known and self.rules.function is not None:
            self.rules.fail(variable, f"unbound variable %{variable.name}")
        self.needs[id(variable)] = need

    def _open(self, node: expr.Expr, variables: tuple[expr.Var, ...]) -> None:
        self.scopes += 1
        if isinstance(node, (expr.If, expr.Match)):
            self._close_clause(node)
        self.open.append(self.scopes)
        for variable in variables:
            if id(variable) in self.bound:
                self.rules.fail(node, f"%{variable.name} is bound twice", "one binder per variable")
            self.bound.add(id(variable))
            self.home[id(variable)] = (len(self.open) - 1, self.scopes)

    def _close_clause(self, node: expr.Expr) -> None:
        """Close the scope of the previous branch or clause before the next one starts."""
        if id(node) in self._clause_open:
            self.open.pop()
        self._clause_open.add(id(node))

    def _exit(self, node: expr.Expr) -> None:
        if isinstance(node, (expr.Function, expr.If, expr.Let)) or (isinstance(node, expr.Match)
                                                                    and node.clauses):
            self.open.pop()
        depth = len(self.open)
        inner = [self.needs[id(c)] for c in children(node) if id(c) in self.needs]
        self.needs[id(node)] = max((n for n in inner if n[0] < depth), default=_NO_SCOPE)
        reach = self._reach(node)
        if reach is not None:
            self.effects[id(node)] = (len(self.open) - 1, self.open[-1])
            self.reach[id(node)] = reach

    def _reach(self, node: expr.Expr) -> int | None:
        """The depth of the outermost reference that evaluating ``node`` touches, or ``None``."""
        inside = () if isinstance(node, expr.Function) else evaluated(node)  # a closure runs later
        found = [self.reach[id(c)] for c in inside if id(c) in self.effects]
        if isinstance(node, _EFFECTS):
            ref = None if isinstance(node, expr.RefCreate) else node.ref
            found.append(self.home.get(id(ref), _NO_SCOPE)[0])
        if isinstance(node, expr.Let) and found and isinstance(node.value, expr.RefCreate):
            # A reference that does not outlive the expression is invisible outside.
            depth = self.home[id(node.var)][0]
            inner = self.reach.get(id(node.body), depth) >= depth
            if inner and id(node.value.value) not in self.effects and is_flat(node.checked_type):
                return None
        return min(found, default=None)
