"""Nodes and edges by themselves, and walks over them."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weft.graph import (
    SINK,
    SOURCE,
    Graph,
    NodeDef,
    dfs,
    fixup_source_and_sink_edges,
    get_post_order,
    get_reverse_post_order,
    prune_for_reverse_reachability,
    reverse_dfs,
)
from weft.support.errors import InvalidModelError


def diamond():
    g = Graph()
    a, b, c, d = (g.add_node(NodeDef(name, "NoOp")) for name in "abcd")
    for src, dst in ((a, b), (a, c), (b, d), (c, d)):
        g.add_control_edge(src, dst)
    return g, a, b, c, d


def test_ids_are_dense_and_never_used_again():
    g = Graph()
    assert [(n.id, n.name) for n in g.nodes] == [(SOURCE, "_SOURCE"), (SINK, "_SINK")]
    a, b = (g.add_node(NodeDef(name, "NoOp")) for name in "ab")
    g.remove_node(a)
    c = g.add_node(NodeDef("c", "NoOp"))
    assert (b.id, c.id) == (3, 4)
    assert (g.num_nodes, g.num_node_ids, len(g)) == (4, 5, 2)
    assert [n.name for n in g.op_nodes] == ["b", "c"]
    assert g.find_node("a") is None
    assert g.find_node("c") is c
    with pytest.raises(InvalidModelError, match="no node with id 2"):
        g.node(2)
    assert g.copy().find_node("c").id == 3


def test_edges():
    g = Graph()
    a, b = (g.add_node(NodeDef(name, "Any")) for name in "ab")
    edge = g.add_edge(a, 1, b, 0)
    assert str(edge) == "a:1 -> b:0"
    assert a.out_edges == {edge.id: edge}
    assert g.add_control_edge(a, b) is not None
    assert g.add_control_edge(a, b) is None
    assert g.add_control_edge(a, b, allow_duplicates=True) is not None
    assert b.definition().inputs == ("a:1", "^a", "^a")
    g.remove_control_edge(a, b)
    assert b.definition().inputs == ("a:1",)
    g.update_edge(a, 0, b, 0)
    assert b.definition().inputs == ("a",)
    g.remove_node(a)
    assert b.definition().inputs == ()
    assert g.num_edges == 1


def test_misuse_of_edges():
    g, a, b, *_ = diamond()
    g.add_edge(a, 0, b, 0)
    for arguments, match in (
        ((a, 0, b, 0), "is connected already"), ((a, -1, b, 1), "invalid indices"),
        ((a, -2, b, 1), "invalid indices"), ((Graph().source, 0, b, 1), "not part of this graph"),
    ):
        with pytest.raises(InvalidModelError, match=match):
            g.add_edge(*arguments)
    with pytest.raises(InvalidModelError, match="cannot be removed"):
        g.remove_node(g.source)
    with pytest.raises(InvalidModelError, match="is not connected"):
        g.update_edge(a, 0, b, 1)
    edge = g.edges[-1]
    g.remove_edge(edge)
    with pytest.raises(InvalidModelError, match="does not have the edge"):
        g.remove_edge(edge)
    with pytest.raises(InvalidModelError, match="has a node 'a' already"):
        g.add_node(NodeDef("a", "NoOp"))


def test_new_names():
    g, *_ = diamond()
    assert g.new_name("z") == "z"
    assert g.new_name("a") == "a_1"
    g.add_node(NodeDef("a_2", "NoOp"))
    assert [g.new_name("a"), g.new_name("a")] == ["a_3", "a_4"]


def test_types_follow_edges():
    g = Graph()
    x = g.placeholder((2, 3), name="x")
    y = g.op.tanh(x, name="y")
    z = g.op.exp(y, name="z")
    w = g.placeholder((4,), name="w")
    assert str(z.type) == "Tensor[(2, 3), float32]"
    g.update_edge(w.node, 0, y.node, 0)
    assert str(z.type) == "Tensor[(4,), float32]"
    assert g.to_module([z]).attrs["input_names"] == ("w",)


def test_walks():
    g, a, b, c, d = diamond()
    entered, left = [], []
    dfs(g, entered.append, left.append)
    assert [n.name for n in entered] == ["_SOURCE", "_SINK", "a", "b", "d", "c"]
    assert [n.name for n in left] == ["_SINK", "d", "b", "c", "a", "_SOURCE"]
    assert get_post_order(g) == left
    assert get_reverse_post_order(g) == left[::-1]
    before = []
    reverse_dfs(g, before.append, start=[c])
    assert before == [c, a, g.source]
    assert fixup_source_and_sink_edges(g)
    assert not fixup_source_and_sink_edges(g)
    assert {str(e) for e in g.source.out_edges.values()} == {"^_SOURCE -> _SINK", "^_SOURCE -> a"}
    assert prune_for_reverse_reachability(g, [b])
    assert g.op_nodes == [a, b]
    assert not prune_for_reverse_reachability(g, [b])
    assert d not in g.op_nodes


def test_walks_are_not_recursive():
    g = Graph()
    nodes = [g.add_node(NodeDef(f"n{i}", "NoOp")) for i in range(20_000)]
    for src, dst in itertools.pairwise(nodes):
        g.add_control_edge(src, dst, allow_duplicates=True)
    assert [n for n in get_reverse_post_order(g) if n.is_op] == nodes


def test_deep_graphs_become_modules():
    g = Graph()
    x = g.placeholder((2,), name="x")
    for _ in range(3000):
        x = g.op.tanh(x)
    assert str(g.copy().to_module().named["tanh_2999"].checked_type) == "Tensor[(2,), float32]"


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 15), st.integers(0, 15)), max_size=40))
def test_reverse_post_order_is_topological(pairs):
    g = Graph()
    nodes = [g.add_node(NodeDef(f"n{i}", "NoOp")) for i in range(16)]
    for a, b in pairs:
        if a < b:
            g.add_control_edge(nodes[a], nodes[b])
    order = {n: i for i, n in enumerate(get_reverse_post_order(g))}
    assert set(order) == set(g.nodes)
    assert all(order[e.src] < order[e.dst] for e in g.edges)


def test_drawings():
    g = Graph()
    x = g.placeholder((6,), name="x")
    with g.device("sim:1"):
        parts = g.op.split(x, indices_or_sections=2, name="parts")
    with g.control_dependencies([parts[0]]):
        g.constant(np.zeros(2, np.float32), name="c")
    text = g.to_dot()
    assert 'n3 [label="parts\\nsplit\\nsim:1"];' in text
    assert "n2 -> n3;" in text
    assert "n3 -> n4 [style=dashed];" in text
