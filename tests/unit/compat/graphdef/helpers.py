"""Graphs of one node, run by the reference interpreter."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.compat.graphdef import GraphDef, NodeDef, ShapeAttr, from_graphdef
from weft.ir.dtype import DType
from weft.transform.analysis.reference import evaluate


def placeholder(name: str, value: np.ndarray) -> NodeDef:
    return NodeDef(name, "Placeholder", attrs={"dtype": DType.of(value.dtype),
                                               "shape": ShapeAttr(value.shape)})


def const(name: str, value: Any) -> NodeDef:
    data = np.asarray(value)
    return NodeDef(name, "Const", attrs={"dtype": DType.of(data.dtype), "value": data})


class Fixed:
    """An operand that is a constant of the graph."""

    def __init__(self, value: Any, dtype: str = "int32") -> None:
        self.value = np.asarray(value) if isinstance(value, np.ndarray) \
            else np.asarray(value, DType.of(dtype).numpy)


def run(op: str, *operands: Any, results: int = 1, **attrs: Any) -> Any:
    """The results of a node: arrays are inputs, ``Fixed`` are constants."""
    nodes = [const(f"i{n}", x.value) if isinstance(x, Fixed) else placeholder(f"i{n}", x)
             for n, x in enumerate(operands)]
    nodes.append(NodeDef("y", op, tuple(f"i{n}" for n in range(len(operands))), attrs=attrs))
    graph = GraphDef(tuple(nodes))
    mod = from_graphdef(graph, outputs=[f"y:{i}" for i in range(results)])
    feeds = {f"i{n}": x for n, x in enumerate(operands) if not isinstance(x, Fixed)}
    names = mod.attrs["input_names"]
    return evaluate(mod, [feeds[name] for name in names])
