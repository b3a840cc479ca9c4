"""What users' converters of ONNX and torch operators share.

A converter is a function ``convert(node, *tensors, **attributes)`` that returns the results as
expressions. Its positional parameters are the inputs of the operator, as typed expressions; its
keyword-only parameters are the attributes, as Python values. ``node`` has the name of the operator
and its position in the model, and builds calls and constants: ``node.call``, ``node.constant``.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import TypeAlias, TypeVar

from weft.ir import Expr, infer_expr
from weft.support.errors import OperatorError

UserConverter: TypeAlias = "Callable[..., Expr | Sequence[Expr]]"
C = TypeVar("C", bound=UserConverter)


def attribute_names(function: UserConverter) -> dict[str, inspect.Parameter]:
    """The keyword-only parameters of a converter."""
    return {name: p for name, p in inspect.signature(function).parameters.items()
            if p.kind is inspect.Parameter.KEYWORD_ONLY}


def required_attributes(function: UserConverter) -> list[str]:
    """The attributes of a converter that have no default."""
    return [name for name, p in attribute_names(function).items() if p.default is p.empty]


def most_inputs(function: UserConverter) -> int | None:
    """The largest number of inputs that a converter takes; ``None`` for any number."""
    kinds = [p.kind for p in inspect.signature(function).parameters.values()]
    if inspect.Parameter.VAR_POSITIONAL in kinds:
        return None
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return sum(kind in positional for kind in kinds) - 1


def typed_results(made: object, name: str, where: object) -> tuple[Expr, ...]:
    """The typed results of a converter; ``OperatorError`` if one is not an expression."""
    results = (made,) if isinstance(made, Expr) or not isinstance(made, Sequence) else tuple(made)
    wrong = [r for r in results if not isinstance(r, Expr)]
    if wrong or not results:
        raise OperatorError(
            f"the converter of {name} returned no expression", where=where,
            expected="an expression, such as a call of an operator, or a sequence of them",
            got=f"{type(wrong[0]).__name__}: {wrong[0]!r}"[:100] if wrong else "an empty sequence")
    return tuple(typed_whole(r) for r in results if isinstance(r, Expr))


def typed_whole(expr: Expr) -> Expr:
    """``expr`` with its type; inference visits only the nodes that have none."""
    return expr if expr.checked_type is not None else infer_expr(expr)
