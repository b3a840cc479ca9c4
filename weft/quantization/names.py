"""The names of layers: what ``keep`` matches, and reports show."""

from __future__ import annotations

import re

from weft.ir import Call, Constant, Op

_LABEL = re.compile(r" \([^()]*\)$")  # of an operator, after the name of a node


def layer_name(call: Call, weight: Constant) -> str:
    """The name of a layer: that of its weight without ``.weight``, or of its node in the model.

    Programs without names of either have the name of the operator.
    """
    name = None if weight.span is None else weight.span.tensor
    if name is not None:
        return name.removesuffix(".weight")
    if call.span is not None and call.span.node:
        return _LABEL.sub("", call.span.node)
    return operator_name(call)


def operator_name(call: Call) -> str:
    """The name of the operator that is called."""
    return call.op.name if isinstance(call.op, Op) else "call"
