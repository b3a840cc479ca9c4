"""``weft.autograd``: gradients of recorded tensors, and users' functions with their own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft.eager import backward as reverse
from weft.eager.cell import Cell
from weft.eager.functions.elementwise import cast
from weft.eager.grad_mode import enable_grad, inference_mode, no_grad, set_grad_enabled
from weft.eager.record import as_node, wrap
from weft.support.errors import InvalidInputError


def grad(outputs: Any, inputs: Any, grad_outputs: Any = None, retain_graph: bool | None = None,
         create_graph: bool = False, allow_unused: bool = False) -> tuple[Any, ...]:
    """The gradients of the sum of ``outputs`` by each of ``inputs``, without touching ``grad``.

    ``grad_outputs`` are the gradients that arrive at outputs of several elements. An input that
    nothing depends on raises ``InvalidInputError``, or gets ``None`` with ``allow_unused``.
    """
    results, wanted = _listed(outputs), _listed(inputs)
    given = [None] * len(results) if grad_outputs is None else _listed(grad_outputs)
    arriving = [None if g is None else cast(as_node(g), r.dtype)
                for g, r in zip(given, results, strict=True)]
    found = reverse.gradients_of(
        results, wanted, arriving, create_graph=create_graph,
        retain_graph=create_graph if retain_graph is None else retain_graph)
    if not allow_unused and None in found:
        raise InvalidInputError(f"nothing depends on input {found.index(None)}",
                                help="pass allow_unused=True to get None for it")
    return tuple([None if node is None else wrap(node) for node in found])


def backward(tensors: Any, grad_tensors: Any = None, retain_graph: bool | None = None,
             create_graph: bool = False) -> None:
    """``backward`` of several tensors at once."""
    results = _listed(tensors)
    given = [None] * len(results) if grad_tensors is None else _listed(grad_tensors)
    arriving = [None if g is None else cast(as_node(g), r.dtype)
                for g, r in zip(given, results, strict=True)]
    reverse.backward(results, arriving, create_graph=create_graph,
                     retain_graph=create_graph if retain_graph is None else retain_graph)


def _listed(values: Any) -> Sequence[Any]:
    return (values,) if isinstance(values, Cell) else tuple(values)


__all__ = ["backward", "enable_grad", "grad", "inference_mode", "no_grad", "set_grad_enabled"]
