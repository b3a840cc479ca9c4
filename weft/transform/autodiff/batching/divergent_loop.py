"""Loops whose number of iterations differs between the examples of a batch.

A function in tail form is a loop: some paths through its conditions end in a call of itself, with
the next values of the parameters, the others in a result. For a batch the loop runs until all
examples are done. An example that is done keeps its parameters, so it stays done, and its result
follows from its last parameters (as in JAX's ``while_loop``).
"""

from __future__ import annotations

from collections.abc import Callable

from weft import op
from weft.ir import Constant, Expr, Function, If, const, infer_expr, post_order
from weft.ir.visitor import Routine, is_call_of, run_routine
from weft.support.dataclass import dataclass
from weft.transform.autodiff.batching.batch_types import NotVectorisedError


@dataclass(frozen=True, slots=True)
class DivergentLoop:
    """The parts of a function in tail form, for one example.

    ``continues`` is the condition of the recursive call. ``next_params`` are the arguments of that
    call, or the present parameters if there is none; ``result`` is the result if there is none.
    """

    continues: Expr
    next_params: tuple[Expr, ...]
    result: Expr


def divergent_loop(fn: Function, body: Expr, name: str) -> DivergentLoop:
    """The parts of ``fn``, whose ``body`` has no lets.

    Raises ``PassError`` unless all recursive calls are calls of ``@name`` in tail position.
    """
    tails: set[Expr] = set()
    check_tails(body, name, tails)
    continues = run_routine(choose(body, name, lambda _: const(True), lambda _: const(False)))
    next_params = tuple(
        run_routine(choose(body, name, lambda call, i=i: call.args[i], lambda _, p=p: p))
        for i, p in enumerate(fn.params))
    result = run_routine(choose(body, name, lambda _: None, lambda value: value))
    if result is None:
        raise NotVectorisedError(f"vmap of @{name}: the recursion never ends", where=fn.span)
    if continues is None or None in next_params:
        raise NotVectorisedError(f"vmap of @{name}: the recursion has no call in tail position",
                                 where=fn.span)
    continues = as_condition(continues)
    typed = [infer_expr(e, trust=True) for e in (continues, *next_params, result) if e is not None]
    return DivergentLoop(typed[0], tuple(typed[1:-1]), typed[-1])


def as_condition(continues: Expr) -> Expr:
    """``if (c) { true } else { false }`` as ``c``, and its reverse as ``not c``."""
    if isinstance(continues, If) and isinstance(continues.true_branch, Constant) \
            and isinstance(continues.false_branch, Constant):
        is_true = bool(continues.true_branch.data)
        return continues.cond if is_true else op.logical_not(continues.cond)
    return continues


def check_tails(body: Expr, name: str, tails: set[Expr]) -> None:
    """Raise ``PassError`` for recursive calls that are not in tail position."""
    pending = [body]
    while pending:
        node = pending.pop()
        if isinstance(node, If):
            pending += [node.true_branch, node.false_branch]
        elif is_call_of(node, name):
            tails.add(node)
    for node in post_order(body):
        if is_call_of(node, name) and node not in tails:
            raise NotVectorisedError(
                f"vmap of @{name}: the depth of the recursion differs between examples",
                where=node.span, expected="recursive calls in tail position, as in a loop",
                help="pass the partial result as a parameter")


Leaf = Callable[..., Expr | None]


def choose(node: Expr, name: str, at_call: Leaf, at_result: Leaf) -> Routine[Expr | None]:
    """``node`` with other values at the ends of its paths; ``None`` marks unused ends."""
    if is_call_of(node, name):
        return at_call(node)
    if not isinstance(node, If):
        return at_result(node)
    yes = yield choose(node.true_branch, name, at_call, at_result)
    no = yield choose(node.false_branch, name, at_call, at_result)
    if yes is None or no is None or yes is no:
        return no if yes is None else yes
    return If(node.cond, yes, no, span=node.span)
