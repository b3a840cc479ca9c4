"""Operators that cannot be differentiated, all listed in one error with the user's lines."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from weft.ir import Call, Expr, Function, IRModule, Op, TensorType, Var, children, post_order
from weft.support.errors import PassError
from weft.transform.analysis.graph import op_name, type_of
from weft.transform.autodiff.reverse.activity import active_nodes
from weft.transform.autodiff.reverse.adjoint import is_differentiable
from weft.transform.autodiff.reverse.pure_graph import pure_graph

_SHOWN = 5  # lines for each operator


def check_gradients_exist(functions: Iterable[Function], passive: frozenset[Var]) -> None:
    """Raise ``PassError`` that lists the operators of ``functions`` that lack a gradient rule.

    Calls that depend on ``passive`` parameters alone need no rule.
    """
    missing: dict[str, list[Call]] = {}
    first: Expr | None = None
    for fn in functions:
        for name, calls in missing_calls(pure_graph(fn.body), passive).items():
            missing.setdefault(name, []).extend(calls)
            first = first or fn
    if missing:
        raise PassError(f"missing gradient of {', '.join(missing)}",
                        where=None if first is None else first.span, notes=_lines(missing),
                        help="register one with @op.gradient, or keep it out of the function")


def _lines(missing: Mapping[str, list[Call]]) -> list[str]:
    lines = []
    for name, calls in missing.items():
        reasons = dict.fromkeys(c.op.no_gradient_reason for c in calls if isinstance(c.op, Op))
        lines += [f"{name}: {reason}" for reason in reasons if reason]
        locations = list(dict.fromkeys(str(c.span) for c in calls if c.span is not None))
        lines += [f"{name} at {location}" for location in locations[:_SHOWN]]
        if len(locations) > _SHOWN:
            lines.append(f"{name} in {len(locations) - _SHOWN} more locations")
    return lines


def missing_gradients(body: Expr) -> list[str]:
    """Operators called in ``body`` that need a gradient rule and lack one.

    ``reinterpret`` is among them where the bits of a float become a float again, because the
    derivative is not zero there, unlike that of other integers.
    """
    return list(missing_calls(body))


def missing_calls(body: Expr, passive: frozenset[Var] = frozenset()) -> dict[str, list[Call]]:
    """The calls in the pure graph ``body`` that need a gradient rule, by operator."""
    missing: dict[str, list[Call]] = {}
    order = list(post_order(body))
    active = active_nodes(order, passive, is_differentiable)
    for node in order:
        if node in active and isinstance(node, Call) and isinstance(node.op, Op) and (
                _lacks_rule(node.op)):
            missing.setdefault(node.op.name, []).append(node)
    for node in _floats_from_bits(body):
        missing.setdefault("reinterpret", []).append(node)
    return missing


def _lacks_rule(operator: Op) -> bool:
    return not operator.traits.has_zero_gradient and operator.gradient_rule is None


def _floats_from_bits(body: Expr) -> list[Call]:
    """The calls where the bits of a float become a float again."""
    found: list[Call] = []
    bits: set[Expr] = set()
    for node in post_order(body):
        if not isinstance(node, Call) or not isinstance(node.op, Op):
            continue
        reinterprets = node.op.name == "reinterpret"
        from_bits = any(child in bits for child in children(node))
        if reinterprets and from_bits and is_differentiable(type_of(node)):
            found.append(node)
        begins = reinterprets and is_differentiable(type_of(node.args[0]))
        if begins or (from_bits and not node.op.traits.has_zero_gradient and not _is_bool(node)):
            bits.add(node)
    return found


def _is_bool(node: Expr) -> bool:
    type_ = type_of(node)
    return isinstance(type_, TensorType) and type_.dtype.is_bool


def refuse_ambiguous(mod: IRModule, *, training: bool | None) -> None:
    """Raise ``PassError`` for operators whose results differ between training and inference.

    ``training=False`` accepts all of them; ``training=True`` accepts batch norm, which then uses
    the statistics of the batch, but not dropout, which needs a key.
    """
    if training is False:
        return
    found: list[str] = []
    for function in mod.functions.values():
        found += [_ambiguity(n) for n in post_order(function) if _is_ambiguous(n, training)]
    if found:
        raise PassError(
            f"ambiguous gradient of {', '.join(dict.fromkeys(found))}",
            where=next(n.span for f in mod.functions.values() for n in post_order(f)
                       if _is_ambiguous(n, training)),
            help="training=False differentiates the inference behaviour: batch norm by the given "
                 "statistics, and nothing is dropped; training=True takes the statistics of the "
                 "batch; dropout in training is random.dropout, which takes a key",
        )


def _is_ambiguous(node: Expr, training: bool | None) -> bool:
    name = op_name(node)
    if name == "nn.batch_norm":
        return training is None
    return name == "nn.dropout" and isinstance(node, Call) and _rate(node) > 0


def _ambiguity(node: Expr) -> str:
    name = str(op_name(node))
    return f"{name} with rate {_rate(node)}" if name == "nn.dropout" else name


def _rate(node: Expr) -> float:
    return float(node.attrs.rate) if isinstance(node, Call) else 0.0  # type: ignore[attr-defined]
