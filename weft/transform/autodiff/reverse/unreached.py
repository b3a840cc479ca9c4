"""Parameters on which a result does not depend, or only through operators without a derivative."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from weft.ir import Call, Expr, Op, Var, post_order
from weft.ir.visitor import evaluated
from weft.support.errors import PassError
from weft.transform.analysis.graph import op_name
from weft.transform.autodiff.reverse.adjoint import is_differentiable

_SHOWN = 8  # nodes of a path in a message


def refuse_unreached(body: Expr, params: Sequence[Var], where: object) -> None:
    """Raise ``PassError`` that says for each of ``params`` why its derivative is always zero.

    ``params`` are the parameters for which a sweep over ``body`` found no gradient.
    """
    raise PassError(
        f"the result has no derivative with respect to {', '.join(f'%{p.name}' for p in params)}",
        where=where, notes=[line for param in params for line in _reasons(body, param)],
        help='unused="zeros" gives zeros instead; with_respect_to chooses parameters',
    )


def _reasons(body: Expr, param: Var) -> list[str]:
    came_from, ends = _reached(body, param)
    if not ends:
        return [f"%{param.name}: the result does not use it"]
    lines = [f"%{param.name}: each way to the result passes an operator without a derivative"]
    for node, through in ends:
        path = _path(through, came_from)
        lines.append(f"  {_described(node)}; its operand is {path}")
    return lines


def _reached(body: Expr, param: Var) -> tuple[dict[Expr, Expr], list[tuple[Expr, Expr]]]:
    """The nodes with a derivative, and the calls at which it ends, one for each operator.

    The first result maps a node to the operand through which it depends on ``param``; the second
    lists pairs of a call and such an operand.
    """
    came_from: dict[Expr, Expr] = {param: param}
    ends: dict[str, tuple[Expr, Expr]] = {}
    for node in post_order(body):
        through = next((c for c in evaluated(node) if c in came_from), None)
        if through is None:
            continue
        if _ends_derivative(node):
            ends.setdefault(op_name(node), (node, through))
        else:
            came_from[node] = through
    return came_from, list(ends.values())


def _ends_derivative(node: Expr) -> bool:
    if not isinstance(node, Call) or not isinstance(node.op, Op):
        return False
    zero = node.op.traits.has_zero_gradient and node.op.gradient_rule is None
    return zero or not is_differentiable(node.checked_type)


def _described(node: Expr) -> str:
    text = op_name(node) if node.span is None else f"{op_name(node)} at {node.span}"
    operator = node.op if isinstance(node, Call) else None
    reason = operator.no_gradient_reason if isinstance(operator, Op) else None
    return f"{text} ({reason})" if reason else text


def _path(node: Expr, came_from: Mapping[Expr, Expr]) -> str:
    """The operators from the parameter to ``node``: ``exp(.. tanh(%x))``."""
    names: list[str] = []
    while came_from[node] is not node:
        if op_name(node):
            names.append(op_name(node))
        node = came_from[node]
    shown = names if len(names) <= _SHOWN else [*names[: _SHOWN - 1], "..", names[-1]]
    variable = f"%{node.name}" if isinstance(node, Var) else "a value"
    return f"{'('.join([*shown, variable])}{')' * len(shown)}"
