"""Stop ``weft.grad`` at the results of ``torch.no_grad()`` blocks of exported programs.

``torch.export`` represents such a block as a call of a submodule. The decomposition to core ATen
inlines the submodule and drops the mode, so ``detach`` nodes mark the results before.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
import torch.fx


@contextmanager
def no_grad_as_detach(exported: torch.export.ExportedProgram) -> Iterator[None]:
    """Within the context, the results of ``torch.no_grad()`` blocks in the program are detached."""
    graph = exported.graph
    added = [_detached(graph, node) for node in _results_without_gradient(graph)]
    try:
        yield
    finally:
        for node in added:  # restore the user's program
            (source,) = node.all_input_nodes
            node.replace_all_uses_with(source)
            graph.erase_node(node)


def _results_without_gradient(graph: torch.fx.Graph) -> list[torch.fx.Node]:
    block = torch.ops.higher_order.wrap_with_set_grad_enabled
    return [result for node in graph.nodes if node.target is block and node.args[0] is False
            for result in node.users if isinstance(result.meta.get("val"), torch.Tensor)]


def _detached(graph: torch.fx.Graph, node: torch.fx.Node) -> torch.fx.Node:
    with graph.inserting_after(node):
        detached = graph.call_function(torch.ops.aten.detach.default, (node,))
    detached.meta = dict(node.meta)
    node.replace_all_uses_with(detached, delete_user_cb=lambda user: user is not detached)
    return detached
