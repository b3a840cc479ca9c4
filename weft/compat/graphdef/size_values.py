"""Small integer tensors whose elements are sizes: shapes of inputs with symbolic sizes.

Models compute shapes from shapes: ``Reshape(x, Pack(Shape(x)[0], -1))``. Where a size is symbolic,
such a tensor is no constant; its elements are known as expressions of symbols all the same. They
are held in arrays of objects (integers and ``SymDim``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from weft.compat.graphdef.definitions import NodeDef
from weft.ir import Expr, TensorType
from weft.ir.shape import AnyDim, Dim, SymDim, dim_add, dim_floordiv, dim_mul, dim_product, dim_sub

_LARGEST = 64
_ARITHMETIC: Mapping[str, Callable[[Dim, Dim], Dim]] = {
    "Add": dim_add, "AddV2": dim_add, "Sub": dim_sub, "Mul": dim_mul, "FloorDiv": dim_floordiv,
}
_SAME = frozenset({"Identity", "Cast", "Snapshot", "StopGradient"})


def is_symbolic(value: np.ndarray | None) -> bool:
    """Whether a known value has symbols among its elements."""
    return value is not None and value.dtype == object


def size_values(proto: NodeDef, inputs: Sequence[Expr], values: Sequence[np.ndarray | None]
                ) -> list[np.ndarray] | None:
    """The results of a node that computes with sizes; ``None`` if they are not known."""
    if proto.op in ("Shape", "ShapeN", "Size"):
        shapes = [x.checked_type.shape for x in inputs if isinstance(x.checked_type, TensorType)]
        if len(shapes) < len(inputs) or any(isinstance(d, AnyDim) for s in shapes for d in s):
            return None
        if proto.op == "Size":
            return [_array(dim_product(shapes[0]))]
        return [_array(*shape).reshape(len(shape)) for shape in shapes]
    if not any(is_symbolic(v) for v in values) or any(v is None for v in values):
        return None
    known = [v for v in values if v is not None]
    if sum(v.size for v in known) > _LARGEST:
        return None
    result = _computed(proto, known)
    return None if result is None else [np.asarray(result, object)]


def _array(*values: Dim) -> np.ndarray:
    found = np.empty(len(values), object)
    found[:] = values
    return found.reshape(()) if len(values) == 1 else found


def _computed(proto: NodeDef, values: Sequence[np.ndarray]) -> np.ndarray | None:
    op, attrs = proto.op, proto.attrs
    if op in _SAME:
        return values[0]
    if op == "Pack":
        return np.stack([v.astype(object) for v in values], axis=attrs.get("axis", 0))
    if op == "ConcatV2":
        return np.concatenate([v.astype(object) for v in values[:-1]], axis=int(values[-1]))
    if op == "ExpandDims":
        return np.expand_dims(values[0], int(values[1].reshape(-1)[0]))
    if op == "Squeeze":
        return values[0].reshape([n for n in values[0].shape if n != 1])
    if op in ("GatherV2", "Gather") and not is_symbolic(values[1]):
        return np.asarray(np.take(values[0], values[1].astype(np.int64), axis=0), object)
    if op == "StridedSlice" and not any(map(is_symbolic, values[1:])):
        return _sliced(values, attrs)
    if op == "Prod":
        return _array(dim_product(tuple(values[0].reshape(-1))))
    if op in _ARITHMETIC and len(values) == 2:
        a, b = np.broadcast_arrays(*(v.astype(object) for v in values))
        made = [_ARITHMETIC[op](_dim(x), _dim(y)) for x, y in zip(a.flat, b.flat, strict=True)]
        found = np.empty(len(made), object)
        found[:] = made
        return found.reshape(a.shape)
    return None


def _dim(value: object) -> Dim:
    return value if isinstance(value, SymDim) else int(value)  # type: ignore[call-overload]


def _sliced(values: Sequence[np.ndarray], attrs: Mapping[str, object]) -> np.ndarray | None:
    """A range or one element of a vector."""
    masks = [attrs.get(name, 0) for name in ("ellipsis_mask", "new_axis_mask")]
    if values[0].ndim != 1 or any(masks) or values[1].size != 1:
        return None
    begin, end, step = (int(v.reshape(-1)[0]) for v in values[1:4])
    if attrs.get("shrink_axis_mask", 0):
        return np.asarray(values[0][begin], object)
    first = None if attrs.get("begin_mask", 0) else begin
    last = None if attrs.get("end_mask", 0) else end
    return values[0][first:last:step]
