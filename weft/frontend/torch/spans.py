"""Where a node of a traced graph comes from in the user's code."""

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
    """The last line outside torch that led to ``node``, and the path of the module it is in."""
    frames = _FRAME.findall(node.meta.get("stack_trace") or "")
    own = [frame for frame in frames if not frame[0].startswith(_TORCH)]
    label = f"{module_path(node)} ({target_name(node)})"
    if not own:
        return Span("<torch>", node=label)
    file, line = own[-1]
    return Span(file, int(line), node=label)


def module_path(node: torch.fx.Node) -> str:
    """``layers.0.attention``: the module whose ``forward`` made the node."""
    stack = node.meta.get("nn_module_stack") or {}
    path = next(reversed(stack.values()), ("",))[0] if stack else ""
    cleaned = re.sub(r"^L\['self'\]\.?|^L__self___?", "", str(path))
    return cleaned or node.name


def target_name(node: torch.fx.Node) -> str:
    """``aten.add.Tensor`` for an operator, the name for a Python function."""
    target = node.target
    if isinstance(target, OpOverload):
        return str(target)
    return getattr(target, "__name__", None) or str(target)
