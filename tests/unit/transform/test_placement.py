"""Placement of nodes on devices: constraints, costs, and the optimum of small problems."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.runtime.device import HOST, Device
from weft.support.errors import TargetError
from weft.transform.placement.problem import COPY_LATENCY, PlacementProblem

GPU, OTHER = Device("cuda", 0), Device("cuda", 1)


def test_nodes_go_to_the_cheapest_device_and_the_first_of_equals():
    problem = PlacementProblem()
    problem.add("a", {GPU: 0.0, HOST: 0.0})
    problem.add("b", {HOST: 1.0, GPU: 0.0})
    problem.add("c", {HOST: 0.0})
    assert problem.solve() == [GPU, GPU, HOST]


def test_nodes_between_others_move_where_they_save_copies():
    problem = PlacementProblem()
    ends = [problem.add(name, {HOST: 0.0}) for name in "ab"]
    between = problem.add("c", {GPU: 0.0, HOST: 10.0})
    for end in ends:
        problem.connect(end, between, 4)
    assert problem.solve()[between] == HOST
    costly = PlacementProblem()
    ends = [costly.add(name, {HOST: 0.0}) for name in "ab"]
    between = costly.add("c", {GPU: 0.0, HOST: 3.0 * COPY_LATENCY})
    for end in ends:
        costly.connect(end, between, 4)
    assert costly.solve()[between] == GPU


def test_nodes_that_belong_together_share_a_device():
    problem = PlacementProblem()
    a = problem.add("a", {GPU: 0.0, HOST: 5.0})
    b = problem.add("b", {HOST: 0.0, OTHER: 9.0})
    c = problem.add("c", {GPU: 0.0, OTHER: 0.0, HOST: 1.0})
    problem.together(a, b)
    assert problem.solve()[:2] == [HOST, HOST]
    problem.together(b, c)
    assert problem.solve() == [HOST, HOST, HOST]


def test_contradicting_constraints_are_an_error():
    problem = PlacementProblem()
    problem.together(problem.add("conv", {GPU: 0.0}), problem.add("unique", {HOST: 0.0}))
    with pytest.raises(TargetError, match="cannot be") as raised:
        problem.solve()
    assert "conv: cuda:0" in str(raised.value)


@given(st.data())
def test_a_solution_is_legal_and_no_single_move_improves_it(data):
    devices = [HOST, GPU, OTHER]
    count = data.draw(st.integers(1, 6))
    costs = [{device: float(data.draw(st.integers(0, 400_000)))
              for device in data.draw(st.lists(st.sampled_from(devices), min_size=1, unique=True))}
             for _ in range(count)]
    edges = data.draw(st.lists(st.tuples(st.integers(0, count - 1), st.integers(0, count - 1),
                                         st.integers(0, 200_000)), max_size=8))
    edges = [edge for edge in edges if edge[0] != edge[1]]
    problem = PlacementProblem()
    for number, one in enumerate(costs):
        problem.add(str(number), one)
    for edge in edges:
        problem.connect(*edge)

    def total(chosen):
        return sum(costs[n][device] for n, device in enumerate(chosen)) + sum(
            nbytes + COPY_LATENCY for a, b, nbytes in edges if chosen[a] != chosen[b])

    found = problem.solve()
    assert all(device in costs[n] for n, device in enumerate(found))
    for number in range(count):
        for device in costs[number]:
            moved = [*found[:number], device, *found[number + 1:]]
            assert total(found) <= total(moved) + 1e-6
    best = min(total(chosen) for chosen in itertools.product(*costs))
    assert total(found) >= best - 1e-6
