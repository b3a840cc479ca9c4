"""Constant operands in another order, as views of the weights of the model.

A weight is often transposed when it is imported, and packed for its kernel later. As views these
steps cost nothing; the weight is copied once, into the memory of the program.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from weft.ir.expr import Call
from weft.topi.layout import Layout, transform_steps
from weft.transform.analysis.graph import op_name


def constant_view(call: Call, array: np.ndarray) -> np.ndarray | None:
    """The result of ``call`` on ``array`` as a view of it; ``None`` if it needs a computation.

    If the elements have no regular order in ``array``, the result is a view of a copy.
    """
    view = _VIEWS.get(op_name(call))
    return None if view is None else view(array, dict(call.attrs.items()))


def _transposed(array: np.ndarray, attrs: Mapping[str, Any]) -> np.ndarray:
    return np.transpose(array, attrs["axes"])


def _relaid(array: np.ndarray, attrs: Mapping[str, Any]) -> np.ndarray:
    src, dst = Layout.parse(attrs["src_layout"]), Layout.parse(attrs["dst_layout"])
    for kind, argument in transform_steps(src, dst, array.shape):
        array = array.reshape(argument) if kind == "reshape" else array.transpose(argument)
    return array


_VIEWS: dict[str, Callable[[np.ndarray, Mapping[str, Any]], np.ndarray]] = {
    "transpose": _transposed,
    "layout_transform": _relaid,
}
