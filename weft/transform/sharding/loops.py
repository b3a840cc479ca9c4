"""Programs with control flow, as ``partition`` takes them: calls inlined, loops as functions.

A loop is a global function that calls itself in tail position. A function that is not recursive and
not inlined is one without such calls.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from weft.ir import (
    Call,
    Constant,
    Expr,
    Function,
    GlobalVar,
    If,
    IRModule,
    Op,
    PassContext,
    TupleType,
    Var,
    infer_expr,
    infer_type,
    post_order,
)
from weft.ir.visitor import children, is_call_of, replace_children
from weft.op.cut_axes import tensor_types
from weft.support.dataclass import dataclass
from weft.support.errors import PassError
from weft.transform.normal_form.lambda_lift import LambdaLift
from weft.transform.passes.extract_subgraph import tensors_and_body
from weft.transform.passes.inline import Inline
from weft.transform.sharding.index_maps import tree_of
from weft.transform.sharding.tuples import tensors_of_tree

_ANY_SIZE = 1 << 62  # of functions that are inlined


@dataclass(frozen=True, slots=True, eq=False)
class Loop:
    """A function of tensors. ``ends`` are where the paths through it end.

    Some of them are calls of the function itself (``again``), the others are results.
    ``conditions`` decide about the path, inner ones first.
    """

    name: str
    params: tuple[Var, ...]
    body: Expr
    ends: tuple[Expr, ...]
    conditions: tuple[If, ...]

    @property
    def again(self) -> list[Call]:
        return [e for e in self.ends if is_call_of(e, self.name)]


def iterations_of(loop: Loop, given: Sequence[Expr]) -> int | None:
    """How often a loop that counts runs, from the initial tensors; ``None`` for others.

    It goes on while an integer is below a limit, and adds a constant to it each time.
    """
    conditions, again = loop.conditions, loop.again
    if len(conditions) != 1 or len(again) != 1 or conditions[0].true_branch is not again[0]:
        return None
    state = dict(zip(loop.params, given, strict=True))
    following = dict(zip(loop.params, [t for a in again[0].args for t in tensors_of_tree(a)],
                         strict=False))
    match conditions[0].cond:
        case Call(op=Op(name="less"), args=(Var() as counter, limit)):
            pass
        case _:
            return None
    if isinstance(limit, Var) and following.get(limit) is limit:
        limit = state.get(limit, limit)
    match following.get(counter):
        case Call(op=Op(name="add"), args=(Var() as before, Constant() as step)) if \
                before is counter and step.data.item() > 0:
            first = state.get(counter)
        case _:
            return None
    if not isinstance(first, Constant) or not isinstance(limit, Constant):
        return None
    start, end, by = (one.data.item() for one in (first, limit, step))
    if not all(isinstance(one, int) for one in (start, end, by)):  # floats may be infinite or NaN
        return None
    return max(0, -((start - end) // by))


def first_order(module: IRModule) -> IRModule:
    """The module with all but recursive functions inlined, and closures as global functions."""
    if len(module.functions) == 1 and not any(
            isinstance(n, Function) for n in post_order(module["main"].body)):
        return module
    for pass_ in (Inline(max_nodes=_ANY_SIZE), LambdaLift(prefix="cut")):
        module = infer_type(pass_.run_module(module, PassContext()))
    return module


def loops_of(module: IRModule) -> dict[str, Loop]:
    """The functions that ``main`` calls, directly or not.

    Raises ``PassError`` for recursion that is no loop.
    """
    found: dict[str, Loop] = {}
    pending = list(callees(module["main"].body))
    while pending:
        name = pending.pop()
        if name not in found:
            found[name] = _loop(name, module[name])
            pending += callees(found[name].body)
    for name in found:
        _check_order(name, found)
    return found


def callees(body: Expr) -> list[str]:
    """The names of the functions that an expression calls."""
    return [n.op.name for n in post_order(body)
            if isinstance(n, Call) and isinstance(n.op, GlobalVar)]


def _loop(name: str, function: Function) -> Loop:
    params, body = _flat(function)
    conditions, ends = conditions_before(body, name), path_ends(body, name)
    for node in post_order(body):
        if is_call_of(node, name) and node not in ends:
            raise PassError(f"@{name} calls itself before its end", where=node.span,
                            expected="recursive calls in tail position, as in a loop",
                            help="pass the partial result as a parameter")
    if all(is_call_of(e, name) for e in ends):
        raise PassError(f"@{name} never ends", where=body.span, expected="a path with a result")
    return Loop(name, params, body, tuple(ends), tuple(conditions))


def _flat(function: Function) -> tuple[tuple[Var, ...], Expr]:
    """Parameters that are tensors, and the body over them without ``let``."""
    made: dict[Expr, Expr] = {}
    flat: list[Var] = []
    for param in function.params:
        if isinstance(param.checked_type, TupleType):
            parts = [Var(f"{param.name}_{n}", t)
                     for n, t in enumerate(tensor_types(param.checked_type))]
            made[param] = infer_expr(tree_of(param.checked_type, iter(parts)), trust=True)
            flat += parts
        else:
            flat.append(param)
    body = tensors_and_body(IRModule({"main": function}))[1]
    for node in post_order(body):
        if node not in made:
            made[node] = replace_children(node, [made[c] for c in children(node)])
    return tuple(flat), made[body]


def conditions_before(body: Expr, name: str) -> list[If]:
    """The conditions on the way to calls of ``@name`` in tail position, inner ones first."""
    order: list[Expr] = []
    pending = [body]
    while pending:
        node = pending.pop()
        order.append(node)
        if isinstance(node, If):
            pending += [node.true_branch, node.false_branch]
    leads: set[Expr] = {n for n in order if is_call_of(n, name)}
    found: dict[If, None] = {}
    for node in reversed(order):
        if isinstance(node, If) and leads & {node.true_branch, node.false_branch}:
            leads.add(node)
            found[node] = None
    return list(found)


def path_ends(body: Expr, name: str) -> list[Expr]:
    """The results of ``@name``, and the calls of itself that take their place."""
    conditions = conditions_before(body, name)
    ends = dict.fromkeys([body, *(b for c in conditions for b in (c.true_branch, c.false_branch))])
    return [e for e in ends if not any(e is c for c in conditions)]


def _check_order(name: str, loops: Mapping[str, Loop]) -> None:
    """Raise ``PassError`` if other functions that ``name`` calls call it."""
    seen: set[str] = set()
    pending = [c for c in callees(loops[name].body) if c != name]
    while pending:
        other = pending.pop()
        if other == name:
            raise PassError(f"@{name} calls itself through other functions",
                            where=loops[name].body.span, expected="a loop: a function whose "
                            "recursive calls are its own, in tail position")
        if other not in seen:
            seen.add(other)
            pending += callees(loops[other].body)
