"""Source spans of the nodes of a traced graph, and the graphs within it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import torch
import torch.fx
from torch._ops import HigherOrderOperator, OpOverload

from weft.ir.span import Span

_FRAME = re.compile(r'File "([^"]+)", line (\d+)')
_TORCH = str(Path(torch.__file__).parent)
_WEFT = str(Path(__file__).parents[2])


def span_of(node: torch.fx.Node) -> Span:
    """The innermost source line outside torch that created ``node``, and the path of its module."""
    own = _frames_of_model(node)
    label = f"{module_path(node)} ({target_name(node)})"
    if not own:
        return Span("<torch>", node=label)
    file, line = own[-1]
    return Span(file, int(line), node=label)


def body_of(node: torch.fx.Node) -> torch.fx.GraphModule | None:
    """The graph that a ``get_attr`` node names; ``None`` for other nodes."""
    module = node.graph.owning_module
    if node.op != "get_attr" or module is None:
        return None
    found = dict(module.named_modules()).get(str(node.target))
    return found if isinstance(found, torch.fx.GraphModule) else None


def bodies_of(node: torch.fx.Node) -> Iterator[torch.fx.GraphModule]:
    """The bodies that a call of control flow takes."""
    is_call = isinstance(node.target, HigherOrderOperator)
    return filter(None, map(body_of, node.all_input_nodes if is_call else ()))


def _frames_of_model(node: torch.fx.Node) -> list[tuple[str, str]]:
    """The file and line of each frame of the model's code, the outermost first.

    Code that torch generates for bodies of control flow is in no file; frames up to the last one
    of weft are those that compile the model.
    """
    frames = _FRAME.findall(node.meta.get("stack_trace") or "")
    callers = [i for i, (file, _) in enumerate(frames) if file.startswith(_WEFT)]
    inner = frames[callers[-1] + 1 :] if callers else frames
    return [frame for frame in inner if not frame[0].startswith((_TORCH, "<"))]


def place_bodies(graph: torch.fx.Graph) -> None:
    """Give nodes of bodies of control flow, which have no line, that of the call."""
    for node in graph.nodes:
        for body in bodies_of(node):
            for inner in body.graph.nodes:
                if not _frames_of_model(inner):
                    inner.meta["stack_trace"] = node.meta.get("stack_trace")
            place_bodies(body.graph)


def module_path(node: torch.fx.Node) -> str:
    """The path of the module whose ``forward`` created the node, such as ``layers.0.attention``."""
    stack = node.meta.get("nn_module_stack") or {}
    path = next(reversed(stack.values()), ("",))[0] if stack else ""
    cleaned = re.sub(r"^L\['self'\]\.?|^L__self___?", "", str(path))
    return cleaned or node.name


def target_name(node: torch.fx.Node) -> str:
    """The name of an operator, such as ``aten.add.Tensor``, or of a Python function."""
    target = node.target
    if isinstance(target, HigherOrderOperator):  # those that call another operator
        target = next((a for a in node.args[:2] if isinstance(a, OpOverload)), target)
    if isinstance(target, OpOverload):
        return str(target)
    return getattr(target, "__name__", None) or str(target)
