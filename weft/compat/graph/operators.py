"""Access to the catalogue of operators by attribute: ``g.op.nn.relu(x)``."""

from __future__ import annotations

from typing import Any

import weft.op  # noqa: F401 - fills the catalogue
from weft.compat.graph.node import OwnerGraph, Tensor
from weft.ir.op import OPS
from weft.support.errors import RegistryError
from weft.support.suggestion import did_you_mean


class OperatorNames:
    """An operator, or a group of operators, of the catalogue; calls make nodes of ``graph``."""

    __slots__ = ("_graph", "_name")

    def __init__(self, graph: OwnerGraph, name: str) -> None:
        self._graph = graph
        self._name = name

    def __getattr__(self, name: str) -> OperatorNames:
        if name.startswith("__"):
            raise AttributeError(name)
        full = f"{self._name}.{name}" if self._name else name
        if full not in OPS and not any(known.startswith(f"{full}.") for known in OPS):
            raise RegistryError(f"unknown operator {full!r}",
                                help=did_you_mean(full, OPS))
        return OperatorNames(self._graph, full)

    def __call__(self, *inputs: Any, name: str | None = None, **attrs: Any
                 ) -> Tensor | tuple[Tensor, ...]:
        """See ``Graph.call``."""
        return self._graph.call(self._name, *inputs, name=name, **attrs)

    def __dir__(self) -> list[str]:
        prefix = f"{self._name}." if self._name else ""
        return sorted({known[len(prefix):].split(".")[0] for known in OPS
                       if known.startswith(prefix)})

    def __repr__(self) -> str:
        return f"<operator {self._name or 'names'}>"
