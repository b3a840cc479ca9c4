"""Source spans of the nodes of a traced graph."""

from __future__ import annotations

import re
from pathlib import Path

import torch
import torch.fx
from torch._ops import OpOverload

from weft.ir.span import Span

_FRAME = re.compile(r'File "([^"]+)", line (\d+)')
_TORCH = str(Path(torch.__file__).parent)


def span_of(node: torch.fx.Node) -> Span:
    """The innermost source line outside torch that created ``node``, and the path of its module."""
    frames = _FRAME.findall(node.meta.get("stack_trace") or "")
    own = [frame for frame in frames if not frame[0].startswith(_TORCH)]
    label = f"{module_path(node)} ({target_name(node)})"
    if not own:
        return Span("<torch>", node=label)
    file, line = own[-1]
    return Span(file, int(line), node=label)


def module_path(node: torch.fx.Node) -> str:
    """The path of the module whose ``forward`` created the node, such as ``layers.0.attention``."""
    stack = node.meta.get("nn_module_stack") or {}
    path = next(reversed(stack.values()), ("",))[0] if stack else ""
    cleaned = re.sub(r"^L\['self'\]\.?|^L__self___?", "", str(path))
    return cleaned or node.name


def target_name(node: torch.fx.Node) -> str:
    """The name of an operator, such as ``aten.add.Tensor``, or of a Python function."""
    target = node.target
    if isinstance(target, OpOverload):
        return str(target)
    return getattr(target, "__name__", None) or str(target)
