"""The page of ``weft view``: what it is told of a compilation, and how it is written."""

from __future__ import annotations

import html
import json
import re
import shutil
import socket
import subprocess

import numpy as np
import pytest

import weft
from tests.docs.browser import chromium, served
from tests.unit.cli.commands import run
from weft.compiler.report.view.facts import compared, view_facts
from weft.compiler.report.view.graph import graph_facts
from weft.compiler.report.view.page import facts_of_page, view_page
from weft.ir.drawing import drawn_nodes
from weft.support.errors import OptionError

pytestmark = pytest.mark.usefixtures("cache_of_module")
CHROMIUM = shutil.which("chromium")
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


def test_phases_have_text_and_a_graph_whose_nodes_name_their_kernels(facts):
    assert list(facts["phases"]) == ["import", "canonical", "optimized", "lowered"]
    for phase in facts["phases"].values():
        assert "def @main" in phase["text"]
        assert phase["nodes"][-1]["kind"] == "result"
    dense = next(n for n in facts["phases"]["lowered"]["nodes"] if "nn.relu" in n["lines"][0])
    (kernel,) = (k for k in facts["kernels"] if k["symbol"] == dense["kernel"])
    assert kernel["op"] == dense["lines"][0]


def graph_of(lines, name="x"):
    mod = weft.parse(f"def @main(%{name}: Tensor[(4,), float32]) {{ {lines} }}")
    return graph_facts(drawn_nodes(mod["main"]), str)


def test_blocks_of_equal_operators_are_scopes():
    block = ("let %{b} = tanh(%{a}); let %{c} = exp(%{b}); let %{d} = negative(%{c});"
             "let %{e} = add(%{d}, %{a});")
    lines = "".join(block.format(a=f"{n}e", b=f"{n}b", c=f"{n}c", d=f"{n}d", e=f"{n + 1}e")
                    for n in range(3))
    graph = graph_of("let %0e = sqrt(%x); " + lines + " abs(%3e)")
    assert [scope["title"] for scope in graph["scopes"]] == [f"block {n} of 3" for n in (1, 2, 3)]
    scopes = [(node["lines"][0], node["scope"]) for node in graph["nodes"]]
    block = ["tanh", "exp", "negative", "add"]
    assert scopes == [("%x", -1), ("sqrt", -1), *((op, n) for n in range(3) for op in block),
                      ("abs", -1), ("result", -1)]


def test_a_run_of_one_operator_is_no_block():
    assert graph_of("exp(" * 40 + "%x" + ")" * 40)["scopes"] == []


def test_names_with_folders_are_scopes():
    x = weft.ir.var("x", (4,))
    at = "/layer1/{}/act/Tanh (Tanh)"
    one, two = (weft.ir.Span("net.onnx", node=at.format(n)) for n in ("0", "1"))
    tanh = weft.ir.get_op("tanh")
    body = weft.ir.Call(tanh, (weft.ir.Call(tanh, (x,), span=one),), span=two)
    nodes = drawn_nodes(weft.Function((x,), body))
    graph = graph_facts(nodes, str)
    assert [(s["title"], s["parent"]) for s in graph["scopes"]] == [
        ("layer1", -1), ("0", 0), ("act", 1), ("1", 0), ("act", 3)]
    assert [node["scope"] for node in graph["nodes"]] == [-1, 2, 4, -1]


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


def test_an_earlier_page_is_compared_with(facts, tmp_path):
    (tmp_path / "before.html").write_text(view_page(facts), encoding="utf-8")
    before = facts_of_page(tmp_path / "before.html")
    assert before["calls"] == json.loads(json.dumps(facts["calls"]))
    (tmp_path / "other.html").write_text("<p>another page</p>")
    with pytest.raises(OptionError, match="not from weft view"):
        facts_of_page(tmp_path / "other.html")


# What a user does with the keyboard, and what the page then shows and tells.
ACTIONS = """<script>
const log = {}, press = key => document.activeElement.dispatchEvent(
  new KeyboardEvent("keydown", { key, bubbles: true }));
show("Graph", { phase: "lowered" });
const nodes = () => [...document.querySelectorAll(".node")];
log.nodes = nodes().map(node => node.getAttribute("aria-label"));
nodes()[0].focus(); press("ArrowDown");
log.below = document.activeElement.getAttribute("aria-label");
log.texts = [...document.querySelectorAll(".panes select")].map(one => one.value);
log.tir = document.querySelectorAll(".panes pre")[1].textContent;
press("/"); search.value = "softmax"; search.dispatchEvent(new Event("input"));
log.said = said.textContent;
log.found = nodes().filter(node => node.classList.contains("found")).length;
press("Enter");
log.chosen = document.querySelector(".node.chosen").getAttribute("aria-label");
search.value = "";
for (const name of Object.keys(views)) { show(name); log[name] = view.textContent.length; }
state.row = facts.against.rows[0].op; show("Comparison");
log.marked = document.querySelectorAll("mark").length;
document.title = "done " + JSON.stringify(log);
</script>"""


@pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium")
def test_a_browser_shows_the_page_by_keyboard(facts, tmp_path):
    page = view_page({**facts, "title": "a"}, {**facts, "title": "b"})
    (tmp_path / "page.html").write_text(page.replace("</body>", f"{ACTIONS}</body>"))
    done = subprocess.run([CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--dump-dom",
                           f"--user-data-dir={tmp_path / 'profile'}",
                           f"file://{tmp_path / 'page.html'}"],
                          capture_output=True, text=True, timeout=120, check=False)
    (title,) = re.findall("<title>done (.*?)</title>", done.stdout)
    log = json.loads(html.unescape(title))
    assert log["nodes"][0].startswith("%x, Tensor[(3, 8)")
    assert log["below"].startswith("nn.dense + nn.relu")
    assert log["texts"] == ["decision", "tir"]
    assert log["tir"].startswith("# nn.dense + nn.relu")
    assert log["said"].startswith(f"1 of {len(log['nodes'])} nodes")
    assert log["found"] == 1
    assert "softmax" in log["chosen"]
    for name in ("Summary", "Graph", "Kernels", "Memory", "Weights", "Comparison"):
        assert log[name] > 30, name
    assert log["marked"] == 0  # both sides are the same


# All views in a frame as wide as a phone: the width of each, and the names of rows that are seen.
PHONE = """<body><iframe style="width:375px;height:800px;border:0" src="page.html"></iframe><script>
const frame = document.querySelector("iframe");
frame.onload = () => {
  const page = frame.contentWindow, found = {};
  for (const button of page.document.querySelectorAll("nav button")) {
    const name = button.textContent;
    page.show(name);
    const names = [...page.document.querySelectorAll("td:first-child")], wide = [];
    for (const one of page.document.querySelectorAll(".wide")) one.scrollLeft = 1000;
    for (const one of names) {
      const box = one.getBoundingClientRect();
      if (box.left >= 0 && box.right <= 375) wide.push(one.textContent);
    }
    found[name] = { width: page.document.documentElement.scrollWidth, names: wide };
  }
  document.title = "done " + JSON.stringify(found);
};</script>"""


@pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium")
def test_on_a_phone_the_names_of_rows_are_seen(facts, tmp_path):
    """Views are as wide as the window, and names stay when the figures beside them scroll."""
    page = view_page({**facts, "title": "a"}, {**facts, "title": "b"})
    (tmp_path / "page.html").write_text(page)
    with served(tmp_path, PHONE) as address:
        shown = chromium("--virtual-time-budget=8000", "--dump-dom", f"{address}/_look")
    (title,) = re.findall("<title>done (.*?)</title>", shown)
    found = json.loads(html.unescape(title))
    assert [name for name, view in found.items() if view["width"] > 375] == []
    operators = {call["op"] for call in facts["calls"]}
    assert {name.split("  ")[0] for name in found["Kernels"]["names"]} == operators
    assert operators <= set(found["Comparison"]["names"])
    assert len(found["Weights"]["names"]) == len(facts["weights"])


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
