"""Inputs and outputs of graphs."""

from __future__ import annotations

import re

from onnx import ValueInfoProto, helper

from weft.export.onnx.graph import element_type
from weft.ir import AnyDim, SymDim, TensorType

_RANGE = re.compile(r"\{[^}]*\}")


def value_info(name: str, type_: TensorType) -> ValueInfoProto:
    """The declaration of a tensor; symbolic sizes are dimension parameters."""
    shape = [d if isinstance(d, int) else None if isinstance(d, AnyDim) else _name(d)
             for d in type_.shape]
    return helper.make_tensor_value_info(name, element_type(type_.dtype), shape)


def _name(dim: SymDim) -> str:
    """The text of a size without the ranges of its symbols."""
    return _RANGE.sub("", str(dim))
