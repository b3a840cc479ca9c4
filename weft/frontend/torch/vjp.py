"""Gradients of converters, by weft's reverse-mode differentiation.

ATen has backward operators for convolutions and pools. Each is the vector-Jacobian product of the
forward converter, so weft's gradient rules can derive it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from weft.ir import Expr, Function, PassContext, Tuple, Var, infer_expr
from weft.support.errors import UnsupportedModelError
from weft.transform.autodiff.reverse.differentiable import missing_gradients
from weft.transform.autodiff.reverse.expand_for_gradient import ExpandForGradient
from weft.transform.autodiff.reverse.pure_graph import pure_graph
from weft.transform.autodiff.reverse.sweep import gradients_of
from weft.transform.normal_form.alpha import fresh_copy


def input_gradients(
    forward: Callable[..., Expr], inputs: Sequence[Expr], grad: Expr
) -> list[Expr]:
    """Gradients of ``forward(*inputs)`` for its inputs, given ``grad`` of its result.

    ``forward`` is called with variables instead of the inputs. The inputs, ``grad`` and the
    results are typed. Raises ``UnsupportedModelError`` if an operator has no gradient.
    """
    stand_ins = tuple(_variable(f"x{i}", x) for i, x in enumerate(inputs))
    seed = _variable("grad", grad)
    simple = ExpandForGradient().run(Function(stand_ins, forward(*stand_ins)), PassContext())
    body = pure_graph(infer_expr(simple.body, trust=True))
    missing = missing_gradients(body)
    if missing:
        raise UnsupportedModelError(f"no gradient for {', '.join(missing)}")
    found = gradients_of(body, simple.params, seed)
    together = infer_expr(Tuple(tuple(found)), trust=True)
    values: dict[Expr, Expr] = dict(zip((*simple.params, seed), (*inputs, grad), strict=True))
    result = fresh_copy(together, values)
    return list(result.fields) if isinstance(result, Tuple) else []


def _variable(name: str, like: Expr) -> Var:
    return Var(name, like.checked_type, span=like.span, checked_type=like.checked_type)
