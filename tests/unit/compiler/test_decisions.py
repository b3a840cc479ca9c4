"""Decisions as text: ``WEFT_EXPLAIN``, ``weft inspect`` and the HTML report."""

from __future__ import annotations

import pytest

import weft
from weft.cli.main import main
from weft.compiler.report.page import html_report
from weft.ir.expr import Call
from weft.strategy.decision import DECISIONS, Candidate, Decision, Rejected, choose, decides
from weft.support.config import config
from weft.target import Target

PROGRAM = """def @main(%x: Tensor[(4, 20), float32], %w: Tensor[(33, 20), float32]) {
  (nn.relu(nn.dense(%x, %w)), tanh(%x), tanh(%x))
}"""
TANH = "tanh(Tensor[(4, 20), float32]): online, estimated 1.0 us"
REJECTED = ["not table: rows are longer than 8", "not rows (3.0 us): 3 times as long"]


@pytest.fixture
def decided():
    """``tanh`` with a decision, as an operator family registers one."""
    assert "cpu:tanh" not in DECISIONS

    @decides("tanh", target="cpu")
    def decide_tanh(call: Call, target: Target) -> Decision[object]:
        assert call.args[0].checked_type is not None
        return choose([Candidate("rows", 3e-6, None), Candidate("online", 1e-6, None)],
                      [Rejected("table", "rows are longer than 8")])

    yield
    DECISIONS.remove("cpu:tanh")


@pytest.mark.parametrize("opt_level", [0, 3])
def test_the_text_has_decisions_of_families_and_of_kernels(decided, opt_level):
    module = weft.compile(weft.parse(PROGRAM), target="cpu", opt_level=opt_level)
    lines = module.as_text("decisions").splitlines()
    assert any(line.endswith(TANH) for line in lines)
    assert [line.strip() for line in lines if line.strip() in REJECTED] == REJECTED
    kernel = lines.index("kernel nn.dense + nn.relu") if opt_level else lines.index(
        "kernel nn.dense")
    assert "nn.dense.cpu.gemm, estimated" in lines[kernel + 1]
    assert "    not nn.dense.cpu.generic: estimated" in lines[kernel + 2]


def test_equal_decisions_are_counted(decided):
    text = weft.compile(weft.parse(PROGRAM), target="cpu", opt_level=0).as_text("decisions")
    assert f"2 x {TANH}" in text


def test_weft_explain_prints_decisions_of_the_named_operator(decided, capsys):
    with config(explain=("tanh",)):
        weft.compile(weft.parse(PROGRAM), target="cpu")
    err = capsys.readouterr().err
    assert f"// decision for {TANH}\n//   {REJECTED[0]}\n//   {REJECTED[1]}\n" in err
    assert "// implementation of tanh(Tensor[(4, 20), float32]): " in err
    assert "nn.dense" not in err


def test_weft_inspect_prints_decisions(decided, capsys, tmp_path):
    (tmp_path / "m.ir").write_text(PROGRAM)
    for arguments in ([], ["--phase", "decisions"]):
        with pytest.raises(SystemExit) as end:
            main(["inspect", str(tmp_path / "m.ir"), *arguments])
        assert end.value.code == 0
        out = capsys.readouterr().out
        assert TANH in out
        assert REJECTED[0] in out
        assert "kernel nn.dense + nn.relu" in out


def test_the_report_has_a_section_of_decisions(decided):
    page = html_report(weft.compile(weft.parse(PROGRAM), target="cpu"), title="m")
    _, section = page.split("<h2>Decisions</h2>")
    assert section.startswith("<details><summary>decisions</summary>")
    assert REJECTED[0] in section.split("<h2>")[0]
