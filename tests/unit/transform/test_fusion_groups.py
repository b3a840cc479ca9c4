"""The grouping behind fusion, against the definitions it rests on."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.unit.transform.random_programs import programs
from weft import op
from weft.ir.expr import Function, Tuple, var
from weft.ir.module import IRModule
from weft.ir.op import OpPattern
from weft.ir.typing.infer import infer_type
from weft.transform.analysis.dataflow_graph import DataflowGraph
from weft.transform.fusion.fusion_groups import FusionGroups

bounded = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True
)
OUTSIDE = -1


def post_dominators(graph):
    """By the definition: the nodes on every path from a node to the outside."""
    found = {OUTSIDE: {OUTSIDE}}
    for node in reversed(graph.nodes):
        ahead = [found[user] for user, _ in node.users]
        if node.is_extern or not ahead:
            ahead.append(found[OUTSIDE])
        found[node.index] = {node.index} | set.intersection(*ahead)
    return found


@bounded
@given(programs(max_steps=16))
def test_the_tree_holds_the_immediate_post_dominators(mod):
    graph = DataflowGraph(mod["main"])
    expected = post_dominators(graph)
    for node, dominator in zip(graph.nodes, graph.post_dominators(), strict=True):
        others = expected[node.index] - {node.index, OUTSIDE}
        nearest = min(others, default=None)
        assert dominator.parent == nearest


@bounded
@given(programs(max_steps=16), st.sampled_from([1, 3, 64]), st.booleans())
def test_groups_have_one_result_bounded_size_and_no_cycles(mod, depth, epilogue):
    graph = DataflowGraph(mod["main"])
    groups = FusionGroups(graph, max_depth=depth, reduce_epilogue=epilogue).members()
    group_of = {index: number for number, members in enumerate(groups) for index in members}
    assert sorted(group_of) == list(range(len(graph.nodes)))
    for number, members in enumerate(groups):
        assert len(members) <= depth
        for index in members[:-1]:
            node = graph.nodes[index]
            assert not node.is_extern
            assert all(group_of[user] == number for user, _ in node.users)
    # Groups are in order of their results, so edges that go forward cannot close a cycle.
    for node in graph.nodes:
        assert all(group_of[user] >= group_of[node.index] for user, _ in node.users)


def graph_of(body, *params) -> DataflowGraph:
    return DataflowGraph(infer_type(IRModule.from_expr(Function(params, body)))["main"])


def test_edges_say_what_the_use_demands():
    x = var("x", (4, 3))
    row = op.exp(op.sum(x, axis=(0,)))
    graph = graph_of(op.add(op.negative(x), row), x)
    demanded = {n.call.op.name: [edge for _, edge in n.users] for n in graph.nodes}
    assert demanded == {
        "negative": [OpPattern.ELEMWISE],
        "sum": [OpPattern.ELEMWISE],
        "exp": [OpPattern.OPAQUE],  # a row spread over the matrix would be computed four times
        "add": [],
    }


def test_tuples_and_projections_are_wires():
    x = var("x", (4, 4))
    parts = op.split(x, indices_or_sections=2, axis=1)
    graph = graph_of(op.concatenate(Tuple((op.exp(parts[0]), op.exp(parts[1]))), axis=1), x)
    names = [n.call.op.name for n in graph.nodes]
    users = {n.index: [names[u] for u, _ in n.users] for n in graph.nodes}
    assert users[0] == ["exp", "exp"]
    assert users[1] == users[2] == ["concatenate"]
    assert [n.is_extern for n in graph.nodes] == [False, False, False, True]
