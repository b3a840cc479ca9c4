"""Decisions as text: ``WEFT_EXPLAIN``, ``weft inspect`` and the HTML report."""

from __future__ import annotations

import pydoc

import numpy as np
import pytest

import weft
from tests.unit.strategy.kernels import WIDE_CPU
from weft import op
from weft.cli.main import main
from weft.compiler.report.page import html_report
from weft.compiler.stages import kernels_of
from weft.ir.expr import Call, Function, const, var
from weft.ir.module import IRModule
from weft.runtime.devices.cpu.threads import num_threads
from weft.strategy.decision import DECISIONS, Candidate, Decision, Rejected, choose, decides
from weft.strategy.records import cpu_of
from weft.support.config import config
from weft.target import CpuTarget, Target
from weft.tune import TuningStore, Winner

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
    for arguments in ([], ["--stage", "decisions"]):
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


def convolution() -> IRModule:
    x = var("x", (1, 64, 56, 56), "float32")
    weight = const(np.ones((64, 64, 3, 3), np.float32))
    return IRModule.from_expr(Function((x,), op.nn.conv2d(x, weight, padding=(1, 1))))


@pytest.mark.parametrize(("settings", "algorithm", "implementation"), [
    ({}, "winograd_f4", "nn.winograd_conv2d.cpu.blocked"),
    ({"winograd": False}, "direct_blocked", "nn.conv2d.cpu.direct_blocked"),
    ({"opt_level": 2}, "direct_unblocked", "nn.conv2d.cpu.direct_unblocked"),
])
def test_the_decisions_shown_are_those_of_the_compilation(
        settings, algorithm, implementation, capsys):
    model = weft.compile(convolution(), target=WIDE_CPU, explain=("nn.conv2d",), **settings)
    explained = capsys.readouterr().err
    assert implementation in [step.implementation for step in model.manifest.steps]
    decision = model.as_text("decisions").splitlines()[0]
    assert f"float32]): {algorithm}" in decision
    assert (f"// decision for {decision}\n" in explained) == ("opt_level" not in settings)


@pytest.fixture
def records(tmp_path):
    """A file by which the generic schedule is the fastest for the only kernel of ``dense``."""
    (kernel,) = kernels_of(dense().recompiler.stages.module_at("lowered"))
    path = tmp_path / "records"
    with TuningStore(path) as store:
        store.set_winner(Winner(cpu_of(CpuTarget.host()), kernel.digest, "nn.dense.cpu.generic",
                                kernel.text, 1e-9, 1.0, num_threads()))
    return path


def dense(**settings) -> weft.Executable:
    return weft.compile(weft.parse("""
        def @main(%x: Tensor[(32, 48), float32], %w: Tensor[(64, 48), float32]) {
          nn.dense(%x, %w)
        }"""), **settings)


def test_stages_are_shown_by_the_records_of_the_compilation(records):
    recorded, modelled = dense(records=records), dense()
    assert recorded.manifest.steps[0].implementation == "nn.dense.cpu.generic"
    for stage in ("decisions", "te"):
        assert ": nn.dense.cpu.generic" in recorded.as_text(stage)
        with config(records=records):
            assert ": nn.dense.cpu.gemm" in modelled.as_text(stage)


GROWING = """
def @grow(%n: int32, %x: Tensor[(?,), float32]) -> Tensor[(?,), float32] {
  if (less(%n, 1)) { %x } else { @grow(subtract(%n, 1), concatenate((%x, exp(%x)), axis=0)) }
}
def @main(%n: int32, %x: Tensor[(2,), float32]) { @grow(%n, %x) }"""


@pytest.mark.parametrize(("text", "function", "inputs"), [
    ("def @main(%x: Tensor[(n, 3), float32]) { exp(%x) }",
     "weft.compiler.program.build.build_model", [np.ones((2, 3), np.float32)]),
    (GROWING, "weft.compiler.vm.specialize.build_kernels", [np.int32(2), np.ones(2, np.float32)]),
], ids=["model", "kernel"])
def test_new_shapes_are_compiled_with_the_settings_of_the_compilation(
        text, function, inputs, records, monkeypatch):
    with config(records=records, winograd=False):
        model = weft.compile(weft.parse(text), no_cache=True, symbolic_sizes=False)
    seen, build = set(), pydoc.locate(function)

    def observed(*args, **named):
        seen.add((config.records, config.winograd))
        return build(*args, **named)

    monkeypatch.setattr(function, observed)
    with config(no_cache=True):
        model(*inputs)
    assert seen == {(records, False)}
