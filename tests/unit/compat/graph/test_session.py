"""Sessions: fetches and feeds, variables, partial runs, callables, limits, and random use."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

import weft
from weft import CancellationToken
from weft.compat.graphdef.definitions import GraphDef, NodeDef
from weft.graph import Graph, Session
from weft.support.errors import (
    InvalidInputError,
    InvalidModelError,
    RunCancelledError,
    RunTimeoutError,
)

X = np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3)
ONE = np.ones((2, 3), np.float32)


def graph() -> Graph:
    g = Graph()
    x, y, w = (g.placeholder((2, 3), name=name) for name in "xyw")
    a = g.op.tanh(x, name="a")
    b = g.op.add(a, y, name="b")
    g.op.multiply(b, w, name="c")
    g.op.add(w, a, name="w_next")
    return g


def session(**options: Any) -> Session:
    return Session(graph(), variables={"w": ONE}, assign={"w_next": "w"}, **options)


def test_fetches_are_nested_as_they_were_asked_for() -> None:
    s = session()
    a = s.graph.tensor("a")
    found = s.run({"one": [a, "b:0"], "two": ("c",), "again": a}, {"x": X, s.graph.tensor("y"): X})
    np.testing.assert_allclose(found["one"][0], np.tanh(X), rtol=1e-6)
    np.testing.assert_array_equal(found["again"], found["one"][0])
    np.testing.assert_allclose(found["two"][0], np.tanh(X) + X, rtol=1e-6)
    np.testing.assert_array_equal(s.run("b", {"a": X, "y": X}), X + X)
    node = s.graph.find_node("a")
    assert s.run(["b", node], {"x": X, "y": X})[1] is None


@pytest.mark.parametrize(("fetches", "feeds", "what"), [
    ("q", {}, "no tensor 'q'"),
    ("a:1", {"x": X}, "no tensor 'a:1'"),
    ([], {}, "nothing to run"),
    (3, {}, "not a tensor of a graph"),
    ("a", {"a": X}, "both fed and fetched"),
    ("b", {"y": X}, "'x' is not fed"),
    ("b", {"x": X, "x:0": X}, "fed more than once"),
    ("b", {"x": X[:1], "y": X}, "x"),
])
def test_errors(fetches: Any, feeds: dict, what: str) -> None:
    with pytest.raises(InvalidInputError, match=what):
        session().run(fetches, feeds)


def test_tensors_of_other_graphs_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="another graph"):
        session().run(graph().tensor("a"))


def test_variables_are_assigned_by_runs_that_fetch_them() -> None:
    s = session()
    s.run("b", {"x": X, "y": X})
    np.testing.assert_array_equal(s.variables["w"], ONE)
    s.run("w_next", {"x": X})
    s.run(["w_next", "b"], {"x": X, "y": X})
    np.testing.assert_allclose(s.variables["w"], ONE + 2 * np.tanh(X), rtol=1e-6)
    np.testing.assert_allclose(s.run("c", {"x": X, "y": X, "w": ONE}), np.tanh(X) + X, rtol=1e-6)
    s.set_variable("w", ONE * 3)
    np.testing.assert_allclose(s.run("c", {"a": X, "y": X}), 6 * X, rtol=1e-6)
    with pytest.raises(InvalidInputError, match="no variable 'v'"):
        s.set_variable("v", ONE)
    with pytest.raises(InvalidInputError, match="unknown variable"):
        Session(graph(), assign={"w_next": "w"})


def test_programs_share_the_variables_of_the_graph() -> None:
    g = Graph()
    x = g.placeholder((), name="x")
    total = g.variable(100.0, name="total")
    with g.control_dependencies([g.assign_add(total, x)]):
        g.op.add(total, 0.0, name="balance")
    g.op.multiply(total, 2.0, name="twice")
    s = Session(g)
    assert float(s.run("twice", {"total": np.float32(7)})) == 14
    assert float(s.run("balance", {"x": np.float32(5)})) == 105
    assert float(s.run("twice")) == 210
    token = CancellationToken()
    token.cancel()
    with pytest.raises(RunCancelledError):
        s.run("balance", {"x": np.float32(5)}, cancel=token)
    assert float(s.run(["twice"], timeout=60)[0]) == 210
    s.set_variable("total", 1)
    workers = [threading.Thread(target=s.run, args=(fetch, {"x": np.float32(1)}))
               for fetch in ("balance", ["balance", "twice"], "balance")]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert float(s.variables["total"]) == 4


def test_partial_runs_keep_what_is_known() -> None:
    s = session()
    run = s.partial_run_setup(["a", "b", "c"], ["x", "y"])
    assert s.partial_run(run, [], {"x": X}) == []
    with pytest.raises(InvalidInputError, match="'y' must be fed before 'b' is fetched"):
        s.partial_run(run, "b")
    np.testing.assert_allclose(s.partial_run(run, "a"), np.tanh(X), rtol=1e-6)
    s.set_variable("w", ONE * 7)  # a partial run has the variables of its set-up
    np.testing.assert_allclose(s.partial_run(run, "c", {"y": X}), np.tanh(X) + X, rtol=1e-6)
    for fetches, feeds, what in (("a", {}, "'a' was already fetched"),
                                 ("b", {"x": X}, "'x' was already fed"),
                                 ("w_next", {}, "was not set up as a fetch"),
                                 ("b", {"w": X}, "was not set up as a feed")):
        with pytest.raises(InvalidInputError, match=what):
            s.partial_run(run, fetches, feeds)
    assert run.pending_fetches == ["b"]
    np.testing.assert_allclose(s.partial_run(run, ["b"])[0], np.tanh(X) + X, rtol=1e-6)
    with pytest.raises(InvalidInputError, match="has fetched all"):
        s.partial_run(run, "b")
    with pytest.raises(InvalidInputError, match="both fed and fetched"):
        s.partial_run_setup(["a"], ["a"])


def test_partial_runs_compute_each_node_once() -> None:
    """Random numbers of a generator are those of the first call in the later ones."""
    g = Graph()
    x, y = g.placeholder((4,), name="x"), g.placeholder((4,), name="y")
    noise = g.op.exp(g.op.add(x, 1.0, name="moved"), name="noise")
    g.op.add(noise, y, name="later")
    s = Session(g)
    run = s.partial_run_setup(["noise", "later"], ["x", "y"])
    first = s.partial_run(run, "noise", {"x": np.zeros(4, np.float32)})
    before = len(s._programs)
    s.partial_run(run, "later", {"y": np.zeros(4, np.float32)})
    program = list(s._programs.values())[before]
    assert {spec.name for spec in program.inputs} == {"noise", "y"}
    np.testing.assert_allclose(first, np.e, rtol=1e-6)


def test_partial_runs_of_deep_graphs() -> None:
    g = Graph()
    value = g.placeholder((1,), name="x")
    for _ in range(2_000):
        value = g.op.negative(value)
    g.op.add(value, g.placeholder((1,), name="y"), name="z")
    s = Session(g)
    run = s.partial_run_setup(["z"], ["x", "y"])
    one = np.ones(1, np.float32)
    s.partial_run(run, [], {"x": one})
    np.testing.assert_array_equal(s.partial_run(run, "z", {"y": one}), 2 * one)


def test_callables() -> None:
    s = session()
    call = s.make_callable(["b", "c"], ["a", s.graph.tensor("y")])
    np.testing.assert_allclose(call(X, X)[1], 2 * X, rtol=1e-6)
    with pytest.raises(InvalidInputError, match="wrong number of arguments"):
        call(X)


def test_extend_adds_nodes_or_none() -> None:
    s = session()
    s.extend(GraphDef((NodeDef("d", "Neg", ("a",)), NodeDef("e", "Neg", ("d", "^b")))))
    np.testing.assert_allclose(s.run("e", {"x": X, "y": X}), np.tanh(X), rtol=1e-6)
    size = len(s.graph)
    with pytest.raises(InvalidModelError):
        s.extend(GraphDef((NodeDef("f", "Neg", ("a",)), NodeDef("h", "Neg", ("nowhere",)))))
    assert len(s.graph) == size


def test_limits_and_closing() -> None:
    s = session()
    token = CancellationToken()
    token.cancel("no")
    with pytest.raises(RunCancelledError):
        s.run("w_next", {"x": X}, cancel=token)
    with pytest.raises(RunTimeoutError):
        s.run("w_next", {"x": X}, timeout=1e-9)
    np.testing.assert_array_equal(s.variables["w"], ONE)
    values, trace = s.run_traced(["b", "c"], {"x": X, "y": X}, timeout=60)
    np.testing.assert_allclose(values[1], np.tanh(X) + X, rtol=1e-6)
    assert trace.lanes == ("cpu:0",)
    with s:
        s.run("a", {"x": X})
    with pytest.raises(InvalidInputError, match="the session is closed"):
        s.run("a", {"x": X})


def test_sessions_on_devices() -> None:
    g = Graph()
    x = g.placeholder((2, 3), name="x")
    with g.device("sim:1"):
        a = g.op.tanh(x, name="a")
    with g.device("sim:0"):
        g.op.exp(a, name="b")
    s = Session(g, devices=[weft.SimDevice(0), weft.SimDevice(1)])
    values, trace = s.run_traced("b", {"x": X})
    np.testing.assert_array_equal(values, Session(g, devices=["sim:0"], soft_placement=True).run(
        "b", {"x": X}))
    assert {"sim:0", "sim:1"} <= {lane.split(" ")[0] for lane in trace.lanes}


class Use(RuleBasedStateMachine):
    """Runs, partial runs, cancelled runs and threads in any order, against a plain model."""

    session: Session

    def __init__(self) -> None:
        super().__init__()
        self.session.set_variable("w", ONE)
        self.w = ONE.copy()
        self.partial: Any = None

    @rule(scale=st.integers(-2, 2))
    def run(self, scale: int) -> None:
        found = self.session.run(["b", "c"], {"x": X, "y": X * scale})
        b = np.tanh(X) + X * scale
        np.testing.assert_allclose(found[0], b, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(found[1], b * self.w, rtol=1e-5, atol=1e-5)

    @rule(is_cancelled=st.booleans())
    def assign(self, is_cancelled: bool) -> None:
        token = CancellationToken()
        if is_cancelled:
            token.cancel()
            with pytest.raises(RunCancelledError):
                self.session.run("w_next", {"x": X}, cancel=token)
        else:
            self.session.run("w_next", {"x": X}, cancel=token)
            self.w = self.w + np.tanh(X)

    @rule(count=st.integers(2, 3))
    def threads(self, count: int) -> None:
        workers = [threading.Thread(target=self.session.run, args=("w_next", {"x": X}))
                   for _ in range(count)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        self.w = self.w + count * np.tanh(X)

    @rule()
    def set_up(self) -> None:
        self.partial = self.session.partial_run_setup(["a", "b", "c"], ["x", "y"])
        self.fed: set[str] = set()
        self.fetched: set[str] = set()
        self.at_set_up = self.w.copy()

    @rule(fetch=st.sampled_from("abc"), feed=st.sampled_from(["", "x", "y"]))
    def go_on(self, fetch: str, feed: str) -> None:
        if self.partial is None:
            return
        feeds = {feed: X} if feed else {}
        needs = {"a": {"x"}, "b": {"x", "y"}, "c": {"x", "y"}}[fetch]
        if fetch in self.fetched or feed in self.fed or not needs <= self.fed | {feed}:
            with pytest.raises(InvalidInputError):
                self.session.partial_run(self.partial, fetch, feeds)
            return
        found = self.session.partial_run(self.partial, fetch, feeds)
        self.fed |= {feed} - {""}
        self.fetched.add(fetch)
        b = np.tanh(X) + X
        expected = {"a": np.tanh(X), "b": b, "c": b * self.at_set_up}[fetch]
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)

    @invariant()
    def variable_is_that_of_the_model(self) -> None:
        np.testing.assert_allclose(self.session.variables["w"], self.w, rtol=1e-4, atol=1e-4)


def test_random_use() -> None:
    Use.session = session()
    run_state_machine_as_test(Use, settings=settings(max_examples=15, stateful_step_count=15,
                                                     deadline=None))
