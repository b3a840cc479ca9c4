"""Check that weft supports all operators of a graph, before the conversion starts."""

from __future__ import annotations

import torch.fx
from torch._ops import OpOverload

from weft.frontend.common.coverage import counted, unsupported_operators
from weft.frontend.torch import converters as _converters  # noqa: F401 - fills the table
from weft.frontend.torch.calls import is_converted
from weft.frontend.torch.spans import module_path, span_of, target_name


def check_coverage(graph: torch.fx.Graph, model: str) -> None:
    """Raise ``UnsupportedModelError`` with all unsupported operators, counts and locations."""
    missing: dict[str, list[torch.fx.Node]] = {}
    for node in graph.nodes:
        if node.op in ("placeholder", "output") or is_converted(node):
            continue
        missing.setdefault(target_name(node), []).append(node)
    if not missing:
        return
    raise unsupported_operators(
        f"the model uses {counted(len(missing), 'operator')} that weft does not support",
        {name: [_position(node) for node in nodes] for name, nodes in missing.items()}, model,
        _help(missing), noun="time")


def _help(missing: dict[str, list[torch.fx.Node]]) -> str | None:
    """How to add an operator, if one of those that are ``missing`` can be added."""
    operators = sorted(n for n, nodes in missing.items() if isinstance(nodes[0].target, OpOverload))
    if not operators:
        return None
    library, name, _ = operators[0].split(".", 2)
    return (f'register @weft.torch_converter("{library}::{name}"), as in '
            "docs/tutorials/add_converter.md")


def _position(node: torch.fx.Node) -> str:
    span = span_of(node)
    path = module_path(node)
    return path if span.line is None else f"{path} at {span.source}:{span.line}"
