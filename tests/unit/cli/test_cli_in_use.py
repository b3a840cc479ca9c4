"""What users reach for on the command line: suggestions, the cache, pages, early refusals."""

from __future__ import annotations

import io
import json
import os
import re
import shlex
import time
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import weft
from tests.unit.cli.commands import run
from weft.cli.main import for_command_line
from weft.compiler.report import page as report
from weft.support.progress import BarReporter

PROGRAM = "def @main(%x: Tensor[(3, 4), float32]) { nn.softmax(tanh(%x)) }"


@pytest.fixture
def folder(tmp_path, monkeypatch, own_cache) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("net.ir").write_text(PROGRAM)
    Path("open.ir").write_text(PROGRAM.replace("(3,", "(n,"))
    return tmp_path


@pytest.fixture
def refuse_to_compile(monkeypatch):
    def fail(*_, **__):
        pytest.fail("compiled before the mistake was found")

    monkeypatch.setattr("weft.compile", fail)
    monkeypatch.setattr("weft.tune.tune", fail)


@pytest.mark.parametrize(("typed", "meant"), [
    ("comple", "compile"), ("inspct", "inspect"), ("oops", "ops"), ("docter", "doctor")])
def test_commands_that_do_not_exist(typed, meant, capsys):
    code, _, err = run([typed], capsys)
    assert code == 2
    assert f"Did you mean {meant!r}?" in err


def test_passes_that_do_not_exist(folder, capsys):
    code, _, err = run(["opt", "net.ir", "-p", "fold_constnt"], capsys)
    assert code == 1
    assert "did you mean 'fold_constant'?" in err


def test_names_of_other_formats_say_how_they_are_spelled(capsys):
    code, out, _ = run(["ops", "Gelu"], capsys)
    assert code == 0
    assert re.search(r"ONNX Gelu converts to: .*erf.*multiply", out)
    assert "The error function of x." in out
    code, out, _ = run(["ops", "gelu", "--json"], capsys)
    assert "erf" in [row["name"] for row in json.loads(out)]


def test_names_that_no_format_has(capsys):
    code, _, err = run(["ops", "sofmax"], capsys)
    assert code == 1
    assert "did you mean nn.softmax" in err
    code, _, err = run(["ops", "LstmCell-like"], capsys)
    assert code == 1
    assert "unknown operator" in err


@pytest.mark.parametrize("command", ["compile", "run", "bench", "profile", "inspect", "tune"])
def test_a_model_that_is_missing_is_the_first_thing_said(command, folder, capsys):
    code, _, err = run([command, "nat.ir"], capsys)
    assert code == 1
    assert "model file not found" in err
    assert "did you mean 'net.ir'?" in err


@pytest.mark.usefixtures("refuse_to_compile")
@pytest.mark.parametrize("command", [
    "compile net.ir -o nowhere/net.weft", "compile net.ir -o .",
    "compile net.ir --format c -o net.ir", "run net.ir -o nowhere/y.npz",
    "profile net.ir --trace nowhere/t.json",
    "inspect net.ir --html nowhere/page.html", "tune net.ir --records nowhere/r.jsonl",
    "opt net.ir -p nonsense -o nowhere/out.ir"])
def test_outputs_that_cannot_be_written_are_refused_first(command, folder, capsys):
    before = sorted(Path().rglob("*"))
    code, _, err = run(shlex.split(command), capsys)
    assert code == 1
    assert "Could not open file" in err
    assert sorted(Path().rglob("*")) == before


@pytest.mark.sample(0.4)
@pytest.mark.parametrize("command", ["run", "bench --repeat 1", "profile --repeat 1"])
@pytest.mark.parametrize("option", ["--target cpu", "--input-shape x:3x4", "-O 3"])
def test_an_artifact_is_compiled_already(command, option, folder, capsys):
    weft.compile("net.ir").export("net.weft")
    verb, *rest = command.split()
    code, _, err = run([verb, "net.weft", *rest, *option.split()], capsys)
    assert code == 2
    assert "cannot be used with a compiled artifact" in err
    code, _, _ = run([verb, "net.weft", *rest], capsys)
    assert code == 0


@pytest.mark.filterwarnings("ignore::weft.FallbackWarning")
def test_dynamic_shapes_in_the_words_of_the_command_line(folder, capsys):
    for command, words in (("compile open.ir --input-shape x:?x4", "--input-shape x:?x4"),
                           ("inspect open.ir --html page.html --input-shape x:?x4",
                            "--input-shape x:SHAPE"),
                           ("run open.ir", "--input-shape x:SHAPE")):
        code, _, err = run(command.split(), capsys)
        assert code == 1
        assert words in err
        assert "weft.compile" not in err
    for shape, sizes in (("x:5x4", (5,)), ("x:nx4", (5, 1, 9))):
        code, _, _ = run(["compile", "open.ir", "--input-shape", shape], capsys)
        assert code == 0
        for n in sizes:
            assert weft.load("open.weft")(np.ones((n, 4), np.float32)).shape == (n, 4)


def test_advice_of_every_part_of_weft_is_translated():
    """Python calls in the advice of errors have a form that ``for_command_line`` knows."""
    root, found = Path(weft.__file__).parent, 0
    for path in sorted(root.rglob("*.py")):
        for text in re.findall(r'inputs=\{"[^"]+": \([^)]*\)\}\)?', path.read_text()):
            found += 1
            translated = for_command_line(f"fix the sizes: {text}")
            assert re.fullmatch(r'fix the sizes: --input-shape "?\w+:\S+( …)?', translated), path
    assert found > 10
    assert for_command_line(
        'give all sizes, as in weft.compile(model, inputs={"x": (1, 3, 224, 224)}), '
        'or export model.specialize({"x": (1, 3, 224, 224)})'
    ) == "give all sizes, --input-shape x:1x3x224x224"
    assert for_command_line("run it with weft.load('a/b.weft')") == "run it with weft run a/b.weft"


def test_a_page_with_a_stage_unfolded(folder, capsys):
    code, out, _ = run(["inspect", "net.ir", "--html", "page.html", "--stage", "tir"], capsys)
    assert (code, out) == (0, "wrote page.html\n")
    page = (folder / "page.html").read_text()
    assert page.count("<details open>") == 1
    assert "<details open><summary>tir</summary>" in page
    code, out, _ = run(["inspect", "net.ir", "--html", "page.html", "--dot"], capsys)
    assert code == 0
    assert out.startswith("digraph")
    assert "<details open>" not in (folder / "page.html").read_text()


def test_the_page_counts_calls_and_stays_small(folder, monkeypatch):
    """Three calls of one kernel; of long stages the beginning, in whole lines."""
    text = "".join(f"  %{i} = nn.dense(%{i - 1}, %w);\n" for i in range(1, 3))
    mod = weft.compile(weft.parse(
        "def @main(%x: Tensor[(4, 4), float32], %w: Tensor[(4, 4), float32]) {\n"
        f"  %0 = nn.dense(%x, %w);\n{text}  %2 }}"), opt_level=1)
    page = report.html_report(mod, title="net")
    assert '<th class="n">calls</th>' in page
    assert re.search(r"dense.*?</td><td>[^<]*</td><td class=\"n\">3</td>", page)
    assert len(page) < 1_000_000
    monkeypatch.setattr(report, "MAX_STAGE_CHARS", 700)
    short = report.html_report(mod, title="net", opened="asm")
    asm = short.partition("<summary>asm</summary><pre>")[2].partition("</pre>")[0]
    whole = page.partition("<summary>asm</summary><pre>")[2].partition("</pre>")[0]
    assert len(asm) < 2_000
    assert whole.startswith(asm + "\n")
    left = int(re.search(r"(\d+) more lines: <code>weft inspect MODEL --stage asm", short)[1])
    assert asm.count("\n") + 1 + left == whole.rstrip("\n").count("\n") + 1
    assert len(short) < 30_000


def test_the_cache_is_shown_and_cleared(folder, capsys, monkeypatch):
    run(["run", "net.ir"], capsys)
    files = [p for p in (folder / "cache").rglob("*") if p.is_file() and not p.name.startswith(".")]
    size = sum(p.stat().st_size for p in files)
    code, out, _ = run(["cache", "--json"], capsys)
    facts = json.loads(out)
    assert code == 0
    assert facts["folder"] == str(folder / "cache")
    assert facts["size"] == f"{len(files)} entries, {size / 1024:.1f} KiB of 4.0 GiB (0 %)"
    assert facts["written in the last day"] == f"{size / 1024:.1f} KiB"
    _, out, _ = run(["doctor"], capsys)
    assert f"{len(files)} entries" in out.replace("\n", " ")
    assert "last week" in " ".join(out.split())
    newest = max(files, key=lambda p: p.stat().st_mtime_ns)
    for path in files:
        when = time.time() - (0 if path == newest else 1000)
        os.utime(path, (when, when))
    code, out, _ = run(["cache", "clear", "--keep", str(newest.stat().st_size)], capsys)
    assert code == 0
    assert f"removed {len(files) - 1} entr" in out
    assert newest.exists()
    code, out, _ = run(["cache", "clear"], capsys)
    assert "removed 1 entry" in out
    code, _, err = run(["cache", "clear", "--keep", "much"], capsys)
    assert code == 2
    assert "--keep" in err
    monkeypatch.setenv("WEFT_NO_CACHE", "1")
    assert "off (WEFT_NO_CACHE)" in run(["cache"], capsys)[1]


def test_doctor_names_variables_that_are_no_settings(capsys, monkeypatch):
    monkeypatch.setenv("WEFT_CACHE_SIZ", "1G")
    _, out, _ = run(["doctor"], capsys)
    assert "WEFT_CACHE_SIZ is not a setting; did you mean WEFT_CACHE_SIZE?" in out


def test_bars_have_totals(monkeypatch, folder):
    """The pipeline counts its passes; a task without a total shows no number of its own."""
    screen = io.StringIO()
    reporter = BarReporter(screen)
    with reporter.task("unknown"):
        pass
    assert "None" not in screen.getvalue()
    from weft.support.progress import report_to

    totals = {}

    class Recorder:
        def task(self, title, total=None):
            totals[title] = [total, 0]
            return self

        title = "optimising the graph"

        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass

        def advance(self, detail=""):
            totals[list(totals)[-1]][1] += bool(detail)

    with report_to(Recorder()), weft.config(no_cache=True, build_jobs=1):
        weft.compile("net.ir")
    total, advanced = totals["optimising the graph"]
    assert total == advanced > 10
    assert totals["building kernels"][0] == totals["building kernels"][1] > 0


def test_the_help_teaches(capsys):
    _, out, _ = run(["--help"], capsys)
    for word in ("weft cache", "weft ops gelu", "dynamic shapes", "--input-shape data:1x3x224x224"):
        assert word in out
    _, out, _ = run(["cache", "--help"], capsys)
    assert "WEFT_CACHE_SIZE" in out


def test_every_command_works_in_a_pipe(folder, capsys):
    graph = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["y"])], "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 3])])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)]), "m.onnx")
    for command in ("run m.onnx", "bench m.onnx --repeat 1", "profile m.onnx --repeat 1",
                    "inspect m.onnx", "compile m.onnx", "ops conv", "cache", "targets"):
        code, out, err = run(command.split(), capsys)
        assert code == 0
        assert "\x1b" not in out + err
