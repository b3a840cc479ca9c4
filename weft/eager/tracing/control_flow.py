"""Choices that depend on values, for traced functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft.eager.cell import MODE, Cell
from weft.eager.functions.elementwise import where
from weft.eager.tracing.pytree import flatten, unflatten
from weft.support.errors import InvalidInputError


def cond(pred: Any, true_fn: Callable[..., Any], false_fn: Callable[..., Any], *operands: Any
         ) -> Any:
    """``true_fn(*operands)`` if ``pred`` holds, else ``false_fn(*operands)``.

    ``pred`` is a boolean or a tensor of one. Both functions return nested containers of the same
    structure, shapes and dtypes. In a traced function the program computes both results and
    selects; elsewhere one function runs.
    """
    if MODE.trace is None or not isinstance(pred, Cell):
        return true_fn(*operands) if pred else false_fn(*operands)
    ours, structure = flatten(true_fn(*operands))
    others, other_structure = flatten(false_fn(*operands))
    if structure != other_structure:
        raise InvalidInputError("the functions of cond return different containers",
                                got=f"{structure} and {other_structure}")
    return unflatten(structure, [_selected(pred, a, b)
                                 for a, b in zip(ours, others, strict=True)])


def _selected(pred: Any, a: Any, b: Any) -> Any:
    if not isinstance(a, Cell) and not isinstance(b, Cell) and type(a) is type(b) and a == b:
        return a
    for part, x, y in (("shape", *_both(a, b, "shape")), ("dtype", *_both(a, b, "dtype"))):
        if x != y:
            raise InvalidInputError(f"the functions of cond return another {part}",
                                    got=f"{x} and {y}")
    return where(pred, a, b)


def _both(a: Any, b: Any, name: str) -> tuple[Any, Any]:
    """An attribute of two results; a number has that of the other."""
    first, second = getattr(a, name, None), getattr(b, name, None)
    return (second if first is None else first), (first if second is None else second)
