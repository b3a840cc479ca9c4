"""The page of ``weft view``: what it is told of a compilation, and how it is written."""

from __future__ import annotations

import json
import re
import socket

import numpy as np
import pytest

import weft
from tests.unit.cli.commands import run
from weft.compiler.report.view.facts import compared, view_facts
from weft.compiler.report.view.page import view_page

pytestmark = pytest.mark.usefixtures("cache_of_module")
WEIGHT = np.linspace(-1, 1, 32, dtype=np.float32).reshape(4, 8)


@pytest.fixture(scope="module")
def facts(cache_of_module):
    """Two products, of which the first feeds a softmax."""
    x = weft.ir.var("x", (3, 8))
    hidden = weft.op.nn.relu(weft.op.nn.dense(x, weft.ir.const(WEIGHT)))
    body = weft.op.nn.softmax(weft.op.nn.dense(hidden, weft.ir.const(WEIGHT.T.copy())))
    module = weft.compile(weft.IRModule.from_expr(weft.Function((x,), body)))
    return view_facts(module, "two <products>")


def told(page: str) -> dict:
    """The facts that a page holds."""
    (text,) = re.findall(r'<script type="application/json" id="facts">(.*?)</script>', page)
    return json.loads(text)


def test_kernels_have_times_types_decisions_and_texts(facts):
    symbols = {kernel["symbol"]: kernel for kernel in facts["kernels"]}
    assert {call["symbol"] for call in facts["calls"]} == symbols.keys()
    dense = next(k for k in facts["kernels"] if k["op"].startswith("nn.dense"))
    assert dense["gives"].startswith("Tensor[(3, ")
    assert "nn.dense" in dense["decision"]
    assert list(dense["texts"]) == ["te", "scheduled", "tir", "llvm", "asm"]
    assert "define" in dense["texts"]["llvm"]
    assert all(call["seconds"] > 0 for call in facts["calls"])


def test_phases_have_text_and_drawing(facts):
    assert list(facts["phases"]) == ["import", "canonical", "optimized", "lowered"]
    for phase in facts["phases"].values():
        assert "def @main" in phase["text"]
        assert phase["svg"].startswith("<svg")
    assert "<title>nn.dense + nn.relu" in facts["phases"]["lowered"]["svg"]


def test_memory_has_no_two_live_buffers_in_one_place(facts):
    buffers = facts["memory"]["buffers"]
    assert buffers
    for one in buffers:
        assert one["offset"] + one["size"] <= facts["memory"]["arena"]
        for other in buffers:
            apart_in_time = one["last"] < other["first"] or other["last"] < one["first"]
            apart = (one["offset"] + one["size"] <= other["offset"]
                     or other["offset"] + other["size"] <= one["offset"])
            assert one is other or apart_in_time or apart


def test_weights_have_their_distribution(facts):
    first, second = facts["weights"]
    assert sorted((tuple(first["shape"]), tuple(second["shape"]))) == [(4, 8), (8, 4)]
    assert sum(first["histogram"]) == 32
    assert (first["low"], first["high"], first["not_finite"]) == (-1, 1, 0)


def test_the_page_holds_the_facts_and_nothing_that_ends_them_early(facts):
    hostile = {**facts, "fallbacks": ["</script><script>alert(1)</script><!--"],
               "limit_seconds": float("nan")}
    page = view_page(hostile, facts)
    found = told(page)
    assert found["fallbacks"] == hostile["fallbacks"]
    assert found["limit_seconds"] is None
    assert found["against"]["title"] == "two <products>"
    assert page.count("<script>alert") == 0
    assert "<title>two &lt;products&gt;</title>" in page


def test_compilations_are_compared_by_their_operators(facts):
    rows = compared(facts, {**facts, "calls": facts["calls"][:1]})
    assert {row["op"] for row in rows} == {call["op"] for call in facts["calls"]}
    assert sum(row["other"] > 0 for row in rows) == 1
    differences = [abs(row["one"] - row["other"]) for row in rows]
    assert differences == sorted(differences, reverse=True)


def test_the_command_writes_one_file(tmp_path, capsys):
    (tmp_path / "net.ir").write_text(
        "def @main(%n: int32, %x: Tensor[(3,), float32]) -> Tensor[(3,), float32] {"
        " if (%n > 0) { @main(%n - 1, %x + 1f) * 2f } else { %x } }")
    code, out, err = run(["view", str(tmp_path / "net.ir"), "-o", str(tmp_path / "net.html")],
                         capsys)
    assert code == 0, err
    assert out == f"wrote {tmp_path / 'net.html'}\n"
    found = told((tmp_path / "net.html").read_text())
    assert found["memory"]["buffers"] == []  # the virtual machine has no plan
    assert {kernel["op"] for kernel in found["kernels"]} >= {"add", "subtract"}


def test_a_port_in_use_is_an_error_that_says_so(tmp_path, capsys):
    (tmp_path / "net.ir").write_text("def @main(%x: Tensor[(3,), float32]) { tanh(%x) }")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        code, _, err = run(["view", str(tmp_path / "net.ir"), "--port", port], capsys)
    assert code == 2
    assert f"port {port} cannot be opened" in err
