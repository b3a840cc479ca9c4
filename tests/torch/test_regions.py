"""Splitting a graph: what it computes stays, and calls with an order keep it."""

from __future__ import annotations

import operator

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

from weft.compiler.integrations.torch.regions import split, without_trivial_regions  # noqa: E402

aten = torch.ops.aten


def random_graph(rng: np.random.Generator, length: int) -> torch.fx.GraphModule:
    graph = torch.fx.Graph()
    values = [graph.placeholder(f"x{i}") for i in range(2)]
    for _ in range(length):
        a, b = (values[i] for i in rng.integers(len(values), size=2))
        kind = rng.integers(6)
        if kind == 0:
            values.append(graph.call_function(aten.bernoulli.p, (a, 0.5)))
        elif kind == 1:
            values.append(graph.call_function(aten.view.default, (a, [2, 2])))
        elif kind == 2:
            pair = graph.call_function(aten.sort.default, (a,))
            values.append(graph.call_function(operator.getitem, (pair, 0)))
        elif kind == 3:
            parts = graph.call_function(aten.split.Tensor, (a, 1))
            items = [graph.call_function(operator.getitem, (parts, i)) for i in range(2)]
            values.append(graph.call_function(aten.cat.default, (items,)))
        else:
            values.append(graph.call_function(aten.add.Tensor, (a, b)))
    picked = [values[i] for i in rng.integers(len(values), size=4)]
    graph.output((*picked, values[-1]))
    for node in graph.nodes:
        node.meta["val"] = torch.empty(2, 2)
    return torch.fx.GraphModule(torch.nn.Module(), graph)


def taken_of(rng: np.random.Generator, graph: torch.fx.Graph) -> set[torch.fx.Node]:
    """Some nodes, none that draw numbers; an item is taken where its call is."""
    taken = set()
    for node in graph.nodes:
        if node.target is operator.getitem:
            follows = node.args[0] in taken
            taken |= {node} if follows else set()
        elif node.op == "call_function" and node.target is not aten.bernoulli.p \
                and rng.random() < 0.7:
            taken.add(node)
    return taken


@pytest.mark.sample(0.1)
@pytest.mark.parametrize("seed", range(150))
def test_random_graphs(seed):
    rng = np.random.default_rng(seed)
    graph = random_graph(rng, int(rng.integers(1, 25)))
    taken = without_trivial_regions(graph.graph, taken_of(rng, graph.graph))
    regions = []

    def make(inner, inputs):
        assert len(inputs) == sum(n.op == "placeholder" for n in inner.graph.nodes)
        regions.append(inner)

        def run(*args):
            return inner(*args)

        return run

    inputs = torch.arange(4.).view(2, 2), torch.full((2, 2), 0.5)
    made = split(graph, taken, make)
    made.graph.lint()
    assert sum(n.target is aten.bernoulli.p for r in regions for n in r.graph.nodes) == 0
    results = []
    for module in (graph, made):
        torch.manual_seed(seed)
        results.append(module(*inputs))
    torch.testing.assert_close(*results, rtol=0, atol=0)


def chain(*targets):
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    for target in targets:
        x = graph.call_function(target, (x,))
    graph.output(x)
    return torch.fx.GraphModule(torch.nn.Module(), graph)


def regions_of(graph, taken) -> list[list[str]]:
    found = []

    def make(inner, _):
        found.append([n.target for n in inner.graph.nodes if n.op == "call_function"])

        def run(*args):
            return inner(*args)

        return run

    split(graph, without_trivial_regions(graph.graph, taken), make)
    return found


def test_what_comes_after_two_calls_of_torch_is_one_region():
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    first = graph.call_function(aten.sin.default, (x,))
    one, two = (graph.call_function(aten.bernoulli.p, (x, p)) for p in (0.25, 0.75))
    left = graph.call_function(aten.mul.Tensor, (first, one))
    right = graph.call_function(aten.mul.Tensor, (left, two))
    graph.output(right)
    taken = {first, left, right}
    found = regions_of(torch.fx.GraphModule(torch.nn.Module(), graph), taken)
    assert found == [[aten.sin.default, aten.mul.Tensor, aten.mul.Tensor]]


def test_views_alone_are_not_worth_a_region():
    graph = chain(aten.t.default, aten.erfinv.default, aten.t.default, aten.sin.default)
    taken = {n for n in graph.graph.nodes if n.target in (aten.t.default, aten.sin.default)}
    for node in graph.graph.nodes:
        node.meta["val"] = torch.empty(2, 2)
    assert regions_of(graph, taken) == [[aten.t.default, aten.sin.default]]
