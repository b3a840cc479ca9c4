"""The command line that needs no compiled code: help, codes, ops, opt, doctor."""

import json
import subprocess
import sys

import pytest

import weft
from tests.unit.cli.commands import run

PROGRAM = "def @main(%x: Tensor[(4,), float32]) { nn.relu(nn.relu(%x)) }"


@pytest.mark.parametrize("verb", ["compile", "run", "bench", "profile", "opt", "passes", "inspect",
                                  "ops", "targets", "doctor", "calibrate", "tune", "debug",
                                  "cache", "warm", "serve"])
def test_every_verb_teaches_by_help(verb, capsys):
    code, out, _ = run([verb, "--help"], capsys)
    assert code == 0
    assert out.startswith(f"Usage: weft {verb}")
    assert "\\b" not in out  # click's mark for lines that stay as they are


def test_the_help_lists_verbs_and_exit_codes(capsys):
    code, out, _ = run(["--help"], capsys)
    assert code == 0
    assert "Exit codes" in out
    assert "doctor" in out


@pytest.mark.parametrize("arguments", [["nonsense"], ["compile"], ["run", "m.onnx", "--fill", "x"],
                                       ["compile", "m.onnx", "--input-shape", "data"]])
def test_a_wrong_command_line_is_code_2(arguments, capsys):
    code, _, err = run(arguments, capsys)
    assert code == 2
    assert "Usage" in err


def test_a_missing_model_is_code_1_without_a_traceback(capsys, tmp_path):
    code, _, err = run(["compile", str(tmp_path / "none.onnx")], capsys)
    assert code == 1
    assert err.startswith("E04")
    assert "Traceback" not in err


def test_a_bad_setting_is_code_2(capsys, monkeypatch):
    monkeypatch.setenv("WEFT_DEBUG", "loud")
    code, _, err = run(["opt", "--list"], capsys)
    assert code in (0, 2)
    code, _, err = run(["doctor"], capsys)
    assert code == 2
    assert "WEFT_DEBUG" in err


def test_the_doctor_shows_all_that_is_wrong(capsys, monkeypatch):
    for name, value in (("WEFT_DEBUG", "loud"), ("WEFT_THREADS", "many"), ("WEFT_SEED", "x")):
        monkeypatch.setenv(name, value)
    code, out, err = run(["doctor", "--json"], capsys)
    assert code == 2
    found = json.loads(out)
    assert found["settings"]["WEFT_THREADS"] == "invalid: 'many'"
    assert found["weft"]
    assert all(name in err for name in ("3 settings", "WEFT_DEBUG", "WEFT_THREADS", "WEFT_SEED"))


def test_brackets_in_tables_are_no_markup(capsys, monkeypatch):
    monkeypatch.setattr("weft.cli.gpu_facts.find_library", lambda _: None)
    monkeypatch.setattr("weft.cli.gpu_facts.find_program", lambda _: None)
    _, out, _ = run(["doctor"], capsys)
    assert "pip install weft[cuda]" in out


def test_ops_are_listed_and_described(capsys):
    code, out, _ = run(["ops", "--json"], capsys)
    assert code == 0
    assert "nn.conv2d" in {entry["name"] for entry in json.loads(out)}
    code, out, _ = run(["ops", "nn.softmax"], capsys)
    assert code == 0
    assert out.startswith("# nn.softmax\n")
    assert "## Meaning in NumPy" in out
    code, out, _ = run(["ops", "conv"], capsys)
    assert code == 0
    assert "nn.conv2d" in out
    assert "nn.softmax" not in out


def test_ops_say_how_they_are_differentiated(capsys):
    code, out, _ = run(["ops", "--gradients", "--json"], capsys)
    assert code == 0
    modes = {row["operator"]: (row["reverse mode"], row["forward mode"]) for row in json.loads(out)}
    assert modes["tanh"] == ("rule", "gradient of an elementwise operator")
    assert modes["reshape"] == ("rule", "linear")
    assert modes["stft"][0] == "expansion"
    assert modes["argmax"][0] == "none: an index is an integer"
    code, out, _ = run(["ops", "--gradients", "vision"], capsys)
    assert code == 0
    assert "vision.roi_align" in out
    assert "tanh" not in out


def test_an_unknown_operator_gets_a_suggestion(capsys):
    code, _, err = run(["ops", "nn.cnv2d"], capsys)
    assert code == 1
    assert "nn.conv2d" in err


def test_opt_runs_passes_and_watches_them(capsys, tmp_path):
    source = tmp_path / "net.ir"
    source.write_text(PROGRAM)
    code, out, err = run(["opt", str(source), "-p", "simplify_expr", "--time-passes", "--verify",
                          "--print-between-passes"], capsys)
    assert code == 0
    assert out.count("nn.relu") == 1
    assert "after simplify_expr" in err
    assert "total" in err


def test_opt_runs_a_pass_above_the_default_level(capsys, tmp_path):
    source = tmp_path / "net.ir"
    source.write_text("def @main(%x: Tensor[(4,), float32]) { tanh(%x) }", encoding="utf-8")
    code, out, _ = run(["opt", str(source), "-p", "fast_math"], capsys)
    assert code == 0
    assert " tanh(" not in out


def test_opt_writes_a_file_that_reads_back(capsys, tmp_path):
    source, target = tmp_path / "net.ir", tmp_path / "out.ir"
    source.write_text(PROGRAM)
    assert run(["opt", str(source), "-o", str(target)], capsys)[0] == 0
    assert run(["opt", str(target), "-p", "fuse_ops"], capsys)[0] == 0


@pytest.mark.parametrize(("text", "passes"), [("def @main(", ""), (PROGRAM, "no_such_pass")])
def test_opt_words_what_is_wrong(text, passes, capsys, tmp_path):
    source = tmp_path / "net.ir"
    source.write_text(text)
    code, _, err = run(["opt", str(source), "-p", passes], capsys)
    assert code == 1
    assert err.startswith("E0")


def test_the_pipeline_is_listed(capsys):
    code, out, _ = run(["opt", "--list"], capsys)
    assert code == 0
    assert [line.partition(":")[0] for line in out.splitlines()] == [
        "import", "canonical", "optimized", "lowered"]


def test_doctor_and_targets_speak_json(capsys):
    code, out, _ = run(["doctor", "--json"], capsys)
    assert code == 0
    assert "WEFT_CACHE_DIR" in json.loads(out)["settings"]
    code, out, _ = run(["targets", "--json"], capsys)
    assert code == 0
    assert "haswell" in json.loads(out)["cpus"]
    machines = json.loads(out)["machines"]
    assert "simd128" in machines["WebAssembly"]["features"]
    assert machines["Windows"]["objects"] == "coff"
    code, out, _ = run(["targets"], capsys)
    assert "armv7-unknown-linux-gnueabihf: Linux on ARMv7, elf objects" in out


def test_the_module_runs_as_a_script():
    done = subprocess.run([sys.executable, "-m", "weft", "--version"], capture_output=True,
                          text=True, check=False)
    assert done.returncode == 0
    assert done.stdout.startswith("weft, version")


@pytest.mark.parametrize("words", [["--version", "--verbose"], ["--verbose", "--version"]])
def test_the_version_says_more_when_asked(words, capsys, monkeypatch):
    monkeypatch.setenv("WEFT_THREADS", "1")
    code, out, _ = run(words, capsys)
    assert code == 0
    facts = dict(line.split(": ", 1) for line in out.splitlines()[1:])
    assert facts["weft"] == weft.__version__
    assert facts["WEFT_THREADS"] == "1"
    assert {"python", "system", "processor", "llvmlite"} <= facts.keys()


def test_passes_are_listed_in_order(capsys):
    code, out, _ = run(["passes"], capsys)
    assert code == 0
    lines = [line.strip() for line in out.splitlines()]
    assert lines.index("optimized") < lines.index("fold_scale_axis") < lines.index("lowered")
    assert lines.index("vectorize_loop") < lines.index("flatten_buffer")
    assert "reshape_of_reshape" in lines


def test_a_pass_is_described(capsys):
    code, out, _ = run(["passes", "fuse_ops"], capsys)
    assert code == 0
    assert "phases: lowered" in out
    assert "max_depth=" in out
    code, _, err = run(["passes", "fuse_op"], capsys)
    assert code == 1
    assert "did you mean 'fuse_ops'" in err


def test_passes_as_json(capsys):
    _, out, _ = run(["passes", "--json"], capsys)
    listed = json.loads(out)
    assert listed["phases"]["lowered"][0] == "fuse_ops"
    assert {"name": "fuse_attention", "phases": ["optimized"]}.items() <= next(
        p for p in listed["passes"] if p["name"] == "fuse_attention").items()
    assert listed["tir_passes"][0] == "simplify"


@pytest.mark.usefixtures("own_cache")
def test_calibrate_shows_where_each_value_is_from(capsys, tmp_path):
    code, out, _ = run(["calibrate", "--show", "--json"], capsys)
    assert code == 0
    shown = json.loads(out)
    assert {"name", "value", "used", "unit", "kind", "source"} == set(shown["values"][0])
    assert all(row["source"] for row in shown["values"])
    code, out, _ = run(["calibrate"], capsys)
    assert code == 0
    assert "measured" in out
    assert list(tmp_path.rglob("*.json"))
    code, out, _ = run(["calibrate", "--json"], capsys)
    assert {row["source"] for row in json.loads(out)["values"]} <= {
        "measured", "system", "derived", "table"}


def test_targets_shows_shipped_machines_and_their_decisions(capsys):
    code, out, _ = run(["targets", "--machines", "--json"], capsys)
    assert code == 0
    assert {"zen5", "neoverse-v1", "cortex-a72"} <= {row["name"] for row in json.loads(out)}
    code, out, _ = run(["targets", "--machine", "emeraldrapids"], capsys)
    assert code == 0
    assert "winograd_f4" in out
    code, _, err = run(["targets", "--machine", "zen9"], capsys)
    assert code == 1
    assert "unknown machine 'zen9'" in err


@pytest.mark.usefixtures("own_cache")
def test_compile_says_how_it_started_and_can_refuse_other_plans(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("WEFT_VERIFY", "1")
    path = tmp_path / "net.ir"
    path.write_text("def @main(%x: Tensor[(4,), float32]) { tanh(%x) }")
    started = [run(["compile", path, "--timing", "--strict"], capsys)[2] for _ in range(2)]
    path.write_text("def @main(%x: Tensor[(5,), float32]) { tanh(%x) }")
    changed = run(["compile", path, "--timing"], capsys)[2]
    assert "start: cold: the cache has no entry for" in started[0]
    assert "start: warm" in started[1]
    assert all("LLVM" in one for one in (started[0], changed))
    assert "linking and loading" in started[1]
    assert "start: cold: the file net.ir changed" in changed
    assert "what weft does instead: nothing" in changed
