"""Loops whose number of iterations differs between the examples of a batch.

A function in tail form is a loop: some paths through its conditions end in a call of itself, with
the next values of the parameters, the others in a result. For a batch the loop runs until all
examples are done. An example that is done keeps its parameters, so that it stays done, and the
result of each example follows from its last parameters (as in JAX's ``while_loop``).
"""

from __future__ import annotations

from collections.abc import Callable

from weft import op
from weft.ir import Call, Constant, Expr, Function, GlobalVar, If, const, infer_expr, post_order
from weft.ir.trampoline import Routine, run
from weft.support.dataclass import dataclass
from weft.transform.autodiff.batching.batch_types import NotVectorisedError


@dataclass(frozen=True, slots=True)
class DivergentLoop:
    """A function in tail form for one example, taken apart.

    ``goes_on`` says whether it calls itself, ``following`` are the parameters of that call, else
    the present ones, and ``result`` is the result where it does not go on.
    """

    goes_on: Expr
    following: tuple[Expr, ...]
    result: Expr


def divergent_loop(fn: Function, body: Expr, name: str) -> DivergentLoop:
    """``fn``, whose ``body`` has no lets, taken apart.

    Raises ``PassError`` unless all recursive calls are calls of ``@name`` in tail position.
    """
    tails: set[Expr] = set()
    _check(body, name, tails)
    goes_on = run(_choose(body, name, lambda _: const(True), lambda _: const(False)))
    following = tuple(
        run(_choose(body, name, lambda call, i=i: call.args[i], lambda _, p=p: p))
        for i, p in enumerate(fn.params))
    result = run(_choose(body, name, lambda _: None, lambda value: value))
    if result is None:
        raise NotVectorisedError(f"vmap of @{name}: the recursion never ends", where=fn.span)
    if goes_on is None or None in following:
        raise NotVectorisedError(f"vmap of @{name}: the recursion has no call in tail position",
                                 where=fn.span)
    goes_on = _as_condition(goes_on)
    typed = [infer_expr(e, trust=True) for e in (goes_on, *following, result) if e is not None]
    return DivergentLoop(typed[0], tuple(typed[1:-1]), typed[-1])


def _as_condition(goes_on: Expr) -> Expr:
    """``if (c) { true } else { false }`` as ``c``, and its reverse as ``not c``."""
    if isinstance(goes_on, If) and isinstance(goes_on.true_branch, Constant) \
            and isinstance(goes_on.false_branch, Constant):
        is_true = bool(goes_on.true_branch.data)
        return goes_on.cond if is_true else op.logical_not(goes_on.cond)
    return goes_on


def _is_call_of(node: Expr, name: str) -> bool:
    return isinstance(node, Call) and isinstance(node.op, GlobalVar) and node.op.name == name


def _check(body: Expr, name: str, tails: set[Expr]) -> None:
    """Raise ``PassError`` for recursive calls that are not in tail position."""
    pending = [body]
    while pending:
        node = pending.pop()
        if isinstance(node, If):
            pending += [node.true_branch, node.false_branch]
        elif _is_call_of(node, name):
            tails.add(node)
    for node in post_order(body):
        if _is_call_of(node, name) and node not in tails:
            raise NotVectorisedError(
                f"vmap of @{name}: the depth of the recursion differs between examples",
                where=node.span, expected="recursive calls in tail position, as in a loop",
                help="pass the partial result as a parameter")


Leaf = Callable[..., Expr | None]


def _choose(node: Expr, name: str, at_call: Leaf, at_result: Leaf) -> Routine[Expr | None]:
    """``node`` with other values at the ends of its paths; ``None`` marks ends not of interest."""
    if _is_call_of(node, name):
        return at_call(node)
    if not isinstance(node, If):
        return at_result(node)
    yes = yield _choose(node.true_branch, name, at_call, at_result)
    no = yield _choose(node.false_branch, name, at_call, at_result)
    if yes is None or no is None or yes is no:
        return no if yes is None else yes
    return If(node.cond, yes, no, span=node.span)

