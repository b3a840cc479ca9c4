"""What edges and scopes mean for expressions: control edges, devices and colocation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from weft.compat.graphdef.definitions import NodeDef
from weft.frontend.common.typed import inferred
from weft.ir import Constant, Expr, Span, TensorType, Tuple, Var
from weft.op import annotation
from weft.support.errors import InvalidModelError

_LOCATION = "loc:@"
_Region: TypeAlias = "tuple[str, str]"  # the device and the colocation group of nodes
_ANYWHERE: _Region = ("", "")


def ordered_after(x: Expr, after: Sequence[Expr], span: Span) -> Expr:
    """``x``, available once the tensors ``after`` are computed: a control edge."""
    token = after[0] if len(after) == 1 else Tuple(tuple(after), span=span)
    return inferred(annotation.barrier(x, token, span=span))


def colocated_with(node: NodeDef) -> tuple[str, ...]:
    """The nodes that a node asks to share its device with (``_class = ["loc:@name"]``).

    Raises ``InvalidModelError`` for an attribute that is no list of text.
    """
    value = node.attrs.get("_class", ())
    if isinstance(value, (str, bytes)) or not isinstance(value, Sequence):
        raise InvalidModelError("attribute '_class' must be a list of 'loc:@node'",
                                where=node.span or node.label, got=repr(value))
    texts = [v.decode("utf-8", "replace") if isinstance(v, bytes) else str(v) for v in value]
    return tuple(t.removeprefix(_LOCATION) for t in texts if t.startswith(_LOCATION))


class Placements:
    """The devices and colocation groups of the nodes of a graph, as annotations of edges.

    Nodes with one device and one group form a region. An edge that leaves a region gets
    ``annotation.on_device``, so a region is optimised as a whole. An edge from nodes without a
    device gets ``annotation.on_device`` without a device; Relay's rules would otherwise add these
    nodes to the region. Constants and inputs belong to no region: a constant lies on the device
    that reads it, and the caller holds the inputs.
    """

    def __init__(self, nodes: Mapping[str, NodeDef]) -> None:
        self._nodes = nodes
        self._root: dict[str, str] = {}
        self._annotated: dict[tuple[Expr, _Region], Expr] = {}
        for name, node in nodes.items():
            for other in colocated_with(node):
                self._join(other, name)

    def _join(self, a: str, b: str) -> None:
        first, second = self._group(a), self._group(b)
        if first != second:
            self._root[second] = first

    def _group(self, name: str) -> str:
        root = self._root.setdefault(name, name)
        while self._root[root] != root:
            root = self._root[root]
        self._root[name] = root
        return root

    def _region(self, name: str) -> _Region:
        return self._nodes[name].device, self._group(name) if name in self._root else ""

    def read(self, result: Expr, producer: str, consumer: str | None, span: Span) -> Expr:
        """``result`` of ``producer`` as ``consumer`` (``None``: the caller) reads it."""
        source = self._region(producer)
        target = _ANYWHERE if consumer is None else self._region(consumer)
        if source == target or isinstance(result, (Constant, Var)) \
                or not isinstance(result.checked_type, TensorType):
            return result
        found = self._annotated.get((result, source))
        if found is None:
            device, group = source
            found = inferred(annotation.on_device(result, device=device, colocate=group, span=span,
                                       constrain_body=source != _ANYWHERE))
            self._annotated[result, source] = found
        return found
