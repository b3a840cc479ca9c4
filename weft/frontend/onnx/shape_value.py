"""Symbolic evaluation of shapes that the graph computes as tensors.

Exporters compute ``Reshape`` targets with nodes: ``Shape -> Gather -> Unsqueeze -> Concat``. If all
sizes are fixed, these fold to constants. If some are symbolic, a ``ShapeValue`` holds an array of
dimensions, and the operators in ``_RULES`` are evaluated on it at import; no kernels are generated.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from weft.frontend.onnx.slicing import sliced_positions
from weft.ir.expr import Constant
from weft.ir.shape import Dim, Shape, SymDim
from weft.support.errors import UnsupportedModelError

if TYPE_CHECKING:
    from weft.frontend.onnx.node import Node


@dataclass(frozen=True, eq=False)
class ShapeValue:
    """An int64 tensor whose elements are dimensions, at least one of them symbolic."""

    dims: np.ndarray  # of dtype object

    @staticmethod
    def of_shape(shape: Shape) -> ShapeValue:
        return ShapeValue(_object_array(list(shape)))

    def flat(self) -> tuple[Dim, ...]:
        return tuple(self.dims.reshape(-1).tolist())


def _object_array(items: list[Dim]) -> np.ndarray:
    array = np.empty(len(items), object)
    array[:] = items
    return array


def settle(dims: np.ndarray) -> ShapeValue | np.ndarray:
    """Return an int64 array if every dimension is a number, else a ``ShapeValue``."""
    if all(isinstance(d, int) for d in dims.reshape(-1).tolist()):
        return dims.astype(np.int64)
    return ShapeValue(dims)


def evaluate_on_shapes(node: Node) -> ShapeValue | np.ndarray:
    """Evaluate ``node`` on symbolic shapes.

    Raises ``UnsupportedModelError`` for operators without a rule in ``_RULES``.
    """
    rule = _RULES.get(node.op)
    if rule is None:
        raise UnsupportedModelError(
            f"{node.op} is applied to a shape that is only known at run time",
            where=node.span,
            help='fix the sizes at compile time: inputs={"x": (1, 3, 224, 224)}',
        )
    inputs = [_as_objects(node, i) for i in range(len(node.inputs))]
    try:
        return settle(rule(node, inputs))
    except TypeError:
        raise UnsupportedModelError(
            f"{node.op} of a shape needs a number that is only known at run time",
            where=node.span,
            help='fix the sizes at compile time: inputs={"x": (1, 3, 224, 224)}',
        ) from None
    except (ArithmeticError, IndexError, ValueError) as error:
        # Axes and indices come from the model; NumPy raises if they are out of range.
        raise node.fail("the shape cannot be computed", got=str(error)) from None


def _as_objects(node: Node, index: int) -> np.ndarray:
    value = node.inputs[index]
    if isinstance(value, ShapeValue):
        return value.dims
    if isinstance(value, Constant):
        return value.data.astype(object)
    raise UnsupportedModelError(
        f"{node.op} mixes a symbolic shape with computed values", where=node.span
    )


def _axes(node: Node, inputs: list[np.ndarray]) -> tuple[int, ...]:
    if len(inputs) > 1:
        return tuple(int(a) for a in inputs[1].reshape(-1).tolist())
    return node.attrs.integers("axes") or ()


def _slice(node: Node, inputs: list[np.ndarray]) -> np.ndarray:
    """Slice the only axis of a shape; ``axes`` is ignored."""
    if len(inputs) > 1:
        starts, ends = inputs[1].reshape(-1), inputs[2].reshape(-1)
    else:
        starts = np.array(node.attrs.integers("starts"), object)
        ends = np.array(node.attrs.integers("ends"), object)
    step = int(inputs[4].reshape(-1)[0]) if len(inputs) > 4 else 1
    positions = sliced_positions(len(inputs[0]), int(starts[0]), int(ends[0]), step)
    return inputs[0][list(positions)]


def _unsqueeze(node: Node, inputs: list[np.ndarray]) -> np.ndarray:
    return np.expand_dims(inputs[0], _axes(node, inputs))


def _squeeze(node: Node, inputs: list[np.ndarray]) -> np.ndarray:
    return np.squeeze(inputs[0], _axes(node, inputs) or None)


def _gather(node: Node, inputs: list[np.ndarray]) -> np.ndarray:
    indices = inputs[1].astype(np.int64)
    taken = np.take(inputs[0], indices, axis=node.attrs.integer("axis", 0))
    if isinstance(taken, np.ndarray):
        return taken
    scalar = np.empty((), object)  # NumPy returns the element itself for a scalar index
    scalar[()] = taken
    return scalar


def _divide(node: Node, inputs: list[np.ndarray]) -> np.ndarray:
    # ONNX truncates, which equals floor division for non-negative sizes.
    return _elementwise(lambda a, b: a // b)(node, inputs)


def _elementwise(function: Callable[..., Dim]) -> Callable[[Node, list[np.ndarray]], np.ndarray]:
    vector = np.frompyfunc(function, 2, 1)

    def rule(_: Node, inputs: list[np.ndarray]) -> np.ndarray:
        result = np.empty(np.broadcast_shapes(*(i.shape for i in inputs)), object)
        result[...] = vector(*inputs)
        return result

    return rule


def _same(_: Node, inputs: list[np.ndarray]) -> np.ndarray:
    return inputs[0]


def _concat(node: Node, inputs: list[np.ndarray]) -> np.ndarray:
    return np.concatenate(inputs, axis=node.attrs.integer("axis", 0))


def _reduce_prod(node: Node, inputs: list[np.ndarray]) -> np.ndarray:
    total: Dim = 1
    for dim in inputs[0].reshape(-1).tolist():
        total = dim * total if isinstance(dim, SymDim) else total * dim
    result = np.empty((1,) if node.attrs.flag("keepdims", True) else (), object)
    result[...] = total
    return result


_RULES: dict[str, Callable[[Node, list[np.ndarray]], np.ndarray]] = {
    "Add": _elementwise(lambda a, b: a + b),
    "Sub": _elementwise(lambda a, b: a - b),
    "Mul": _elementwise(lambda a, b: a * b),
    "Div": _divide,
    "Cast": _same,
    "Identity": _same,
    "Concat": _concat,
    "Gather": _gather,
    "Slice": _slice,
    "Squeeze": _squeeze,
    "Unsqueeze": _unsqueeze,
    "ReduceProd": _reduce_prod,
}
