"""The division of a joint graph into forward and backward, and what the first saves for the second.

torch's min-cut partitioner (``torch._functorch.partitioners``) chooses the saved tensors: it saves
the fewest bytes and computes again what fuses with its uses. ``activation_memory_budget`` of
``torch._functorch.config`` makes it save less for more work.

A saved tensor costs some 6 us: two conversions between torch and NumPy, memory of its own, and the
bookkeeping of autograd. So tensors are saved together, in two ways.

- The steps of an unrolled recurrence save hundreds of tensors of the same shapes. They are stacked,
  which regions do without a copy (``stacks``). The step of an LSTM of 64 steps at batch 8 saves 2
  stacks instead of 894 tensors.
- Networks with batch norm save dozens of vectors of one number per channel, whose copies take a
  fraction of that. They are joined to few longer vectors, which the backward reads in slices:
  ResNet9's step at batch 8 takes 9 % less on one core of Zen 5.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from typing import Any

import torch
import torch.fx
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch._guards import detect_fake_mode

from weft.compiler.integrations.torch.views import viewed

_SMALL_BYTES = 1 << 10  # copying the 4 KB tensors of an unrolled LSTM made it 7 % slower
_LEAST = 4  # tensors of a vector
_LEAST_STACKED = 8
_LINE = 64  # bytes of a cache line, at which the items of a stack start
_MOST = 64  # a kernel with more operands takes long to compile

aten = torch.ops.aten


def partition(joint: torch.fx.GraphModule, inputs: Sequence[Any], *, num_fwd_outputs: int,
              **options: Any) -> tuple[torch.fx.GraphModule, torch.fx.GraphModule]:
    """The forward and the backward graph, as AOTAutograd's ``partition_fn``."""
    forward, backward = min_cut_rematerialization_partition(
        joint, inputs, num_fwd_outputs=num_fwd_outputs, **options)
    join_saved(forward, backward, num_fwd_outputs)
    _trace_repeated_draws(backward.graph)
    return forward, backward


def _trace_repeated_draws(graph: torch.fx.Graph) -> None:
    """Give the draws that a checkpointed backward repeats their traced values: torch omits them."""
    for node in graph.nodes:
        if str(node.target) == "run_with_rng_state" and "val" not in node.meta:
            _, called, *rest = node.args
            mode = detect_fake_mode([n.meta.get("val") for n in graph.nodes])
            args, kwargs = torch.fx.map_arg((rest, node.kwargs), lambda n: n.meta["val"])
            with mode or nullcontext():
                node.meta["val"] = called(*args, **kwargs)


def join_saved(forward: torch.fx.GraphModule, backward: torch.fx.GraphModule, results: int
               ) -> None:
    """Join tensors that the forward saves; its first ``results`` outputs are the user's."""
    output = next(n for n in forward.graph.nodes if n.op == "output")
    for groups, join, split in _WAYS:
        outputs = list(output.args[0])
        taken = {n.name: n for n in backward.graph.nodes if n.op == "placeholder"}
        for group in groups(outputs[:results], outputs[results:], taken):
            with forward.graph.inserting_before(output):
                joined = join(forward.graph, group)
            outputs[outputs.index(group[0])] = joined
            members = set(group)
            outputs = [n for n in outputs if n not in members]
            split(backward.graph, joined, [taken[n.name] for n in group])
        output.args = (outputs,)
    for graph in (forward, backward):
        graph.graph.lint()
        graph.recompile()


def _equal(results: Sequence[Any], saved: Sequence[Any], taken: dict[str, torch.fx.Node]
           ) -> Iterator[list[torch.fx.Node]]:
    """Saved tensors of one shape and dtype, which the regions pass as a stack without a copy.

    None where sizes vary: programs for all sizes would copy.
    """
    if not all(isinstance(size, int) for node in taken.values() for size in _shape(node)):
        return
    found: dict[tuple[object, ...], list[torch.fx.Node]] = {}
    for node in dict.fromkeys(saved):
        if node not in results and _is_dense(node) and node.name in taken \
                and not _is_of_argument(node):
            value = node.meta["val"]
            if value.ndim and value.numel() * value.element_size() % _LINE == 0:
                found.setdefault((value.dtype, value.shape), []).append(node)
    yield from (group for group in found.values() if len(group) >= _LEAST_STACKED)


def _shape(node: torch.fx.Node) -> Sequence[Any]:
    """The sizes of a tensor; a number stands for itself."""
    value = node.meta.get("val")
    return value.shape if isinstance(value, torch.Tensor) else (value,)


def _is_of_argument(node: torch.fx.Node) -> bool:
    """Whether the node is a view of an argument, which saving does not copy."""
    while (source := viewed(node)) is not None:
        node = source
    return node.op != "call_function"


def _stacked(graph: torch.fx.Graph, group: Sequence[torch.fx.Node]) -> torch.fx.Node:
    value = group[0].meta["val"]
    stack = graph.call_function(aten.stack.default, (list(group),))
    stack.meta["val"] = value.new_empty((len(group), *value.shape))
    return stack


def _unstack(graph: torch.fx.Graph, joined: torch.fx.Node, members: Sequence[torch.fx.Node]
             ) -> None:
    """Replace placeholders by the items of one placeholder, which stands where the first did."""
    point = [n for n in graph.nodes if n.op == "placeholder"][-1]
    with graph.inserting_before(members[0]):
        source = graph.placeholder(joined.name)
    source.meta["val"] = joined.meta["val"]
    with graph.inserting_after(point):
        point = items = graph.call_function(aten.unbind.int, (source,))
    items.meta["val"] = tuple(node.meta["val"] for node in members)
    for number, node in enumerate(members):
        with graph.inserting_after(point):
            point = graph.call_function(operator.getitem, (items, number))
        point.meta["val"] = node.meta["val"]
        node.replace_all_uses_with(point)
    for node in members:
        graph.erase_node(node)


def _groups(results: Sequence[Any], saved: Sequence[Any], taken: dict[str, torch.fx.Node]
            ) -> Iterator[list[torch.fx.Node]]:
    """Small saved tensors of one dtype; one that is also a result may change before it is read."""
    found: dict[torch.dtype, list[torch.fx.Node]] = {}
    for node in dict.fromkeys(saved):
        if node not in results and _is_small(node) and node.name in taken:
            found.setdefault(node.meta["val"].dtype, []).append(node)
    for nodes in found.values():
        for start in range(0, len(nodes), _MOST):
            group = nodes[start : start + _MOST]
            if len(group) >= _LEAST:
                yield group


def _is_small(node: Any) -> bool:
    return _is_dense(node) \
        and node.meta["val"].numel() * node.meta["val"].element_size() <= _SMALL_BYTES


def _is_dense(node: Any) -> bool:
    if not isinstance(node, torch.fx.Node) or node.op != "call_function":
        return False
    value = node.meta.get("val")
    return (isinstance(value, torch.Tensor) and value.layout is torch.strided
            and all(isinstance(size, int) for size in value.shape)
            and value.numel() > 0 and value.is_contiguous()
            and not node.meta.get("saved_tensor_with_no_vc_check", False))


def _joined(graph: torch.fx.Graph, group: Sequence[torch.fx.Node]) -> torch.fx.Node:
    values = [node.meta["val"] for node in group]
    flat = []
    for node, value in zip(group, values, strict=True):
        flat.append(graph.call_function(aten.view.default, (node, [value.numel()])))
        flat[-1].meta["val"] = value.new_empty(value.numel())
    joined = graph.call_function(aten.cat.default, (flat,))
    joined.meta["val"] = values[0].new_empty(sum(value.numel() for value in values))
    return joined


def _split(graph: torch.fx.Graph, joined: torch.fx.Node, members: Sequence[torch.fx.Node]) -> None:
    """Replace placeholders by slices of one placeholder, which stands where the first did."""
    last = [n for n in graph.nodes if n.op == "placeholder"][-1]
    with graph.inserting_before(members[0]):
        source = graph.placeholder(joined.name)
    source.meta["val"] = joined.meta["val"]
    start, point = 0, last
    for node in members:
        value = node.meta["val"]
        end = start + value.numel()
        with graph.inserting_after(point):
            flat = graph.call_function(aten.slice.Tensor, (source, 0, start, end))
        with graph.inserting_after(flat):
            point = graph.call_function(aten.view.default, (flat, list(value.shape)))
        flat.meta["val"] = value.new_empty(value.numel())
        point.meta["val"] = value
        node.replace_all_uses_with(point)
        start = end
    for node in members:
        graph.erase_node(node)


# How tensors are joined, in this order: their groups, the join in the forward, the split of it in
# the backward.
_WAYS = ((_equal, _stacked, _unstack), (_groups, _joined, _split))
