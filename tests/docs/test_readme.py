"""README.md: its programs run, its commands work, and what it names exists."""

from __future__ import annotations

import re
import shlex
import tomllib

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from tests.docs.coverage_page import ROOT
from weft.cli.main import main
from weft.compiler.stages import all_stages
from weft.support.config import knobs

TEXT = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
IMAGE = np.linspace(-1, 1, 48, dtype=np.float32).reshape(1, 3, 4, 4)
VECTOR = np.linspace(-2, 2, 10, dtype=np.float32)


def blocks(kind: str) -> list[str]:
    return [text for found, text in BLOCKS if found == kind]


def commands(program: str) -> list[list[str]]:
    """The calls of a program in the blocks of shell lines, comments left out."""
    lines = "".join(blocks("sh")).splitlines()
    split = [shlex.split(line, comments=True) for line in lines]
    return [words[1:] for words in split if words and words[0] == program]


@pytest.fixture(autouse=True)
def _a_folder_with_a_model(tmp_path, monkeypatch):
    """A folder with files of the README's names: a model of one convolution for the real one."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WEFT_CACHE_DIR", str(tmp_path / "cache"))
    weight = np.full((2, 3, 3, 3), 0.25, np.float32)
    nodes = [helper.make_node("Conv", ["gpu_0/data_0", "w"], ["c"]),
             helper.make_node("Relu", ["c"], ["y"])]
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("gpu_0/data_0", TensorProto.FLOAT, IMAGE.shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, (1, 2, 2, 2))],
        [onnx.numpy_helper.from_array(weight, "w")])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)]),
              tmp_path / "resnet50.onnx")
    np.savez(tmp_path / "x.npz", **{"gpu_0/data_0": IMAGE})
    (tmp_path / "net.ir").write_text("def @main(%x: Tensor[(2,), float32]) { nn.relu(%x) }\n")


def convolved() -> np.ndarray:
    """What the model computes, window by window."""
    sums = [[IMAGE[:, :, i:i + 3, j:j + 3].sum() / 4 for j in range(2)] for i in range(2)]
    return np.maximum(np.broadcast_to(np.float32(sums), (1, 2, 2, 2)), 0)


def test_the_way_from_a_model_to_an_artifact(tmp_path, capsys):
    program, _ = blocks("python")
    names: dict = {"x": IMAGE}
    exec(compile(program, "README.md", "exec"), names)
    (first,) = names["ys"]
    np.testing.assert_allclose(names["y"], convolved(), rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(names["y"], first)
    assert (tmp_path / "resnet50.weft").is_file()
    shown = capsys.readouterr().out
    assert "name='gpu_0/data_0', dtype='float32', shape=(1, 3, 4, 4)" in shown
    assert "GFLOP/s" in shown
    assert "nn.conv2d" in shown


def test_a_program_as_text():
    start, program = blocks("python")
    names: dict = {"x": VECTOR}
    exec(start.split("\n")[0], names)
    *before, call = program.strip().split("\n")
    exec("\n".join(before), names)
    np.testing.assert_allclose(eval(call, names), np.tanh(VECTOR), rtol=1e-6)


def test_the_command_lines(tmp_path, capsys):
    verbs = []
    for arguments in commands("weft"):
        verbs.append(arguments[0])
        with pytest.raises(SystemExit) as end:
            main(arguments)
        out, err = capsys.readouterr()
        assert end.value.code == 0, (arguments, err)
        assert out or (tmp_path / arguments[-1]).is_file() or "--html" in arguments
    assert sorted(set(verbs)) == sorted(
        ["bench", "cache", "calibrate", "compile", "debug", "doctor", "inspect", "ops", "opt",
         "passes", "profile", "run", "targets", "tune"])
    assert (tmp_path / "resnet50.html").read_text().startswith("<!doctype html>")


def test_stages_exist():
    (named,) = re.findall(r"as_text\(.*?\)\) +# (.+)", blocks("python")[0])
    assert set(named.split()) <= set(all_stages())


def test_targets_of_make_exist():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    named = {words[0] for words in commands("make")}
    assert named == {"demo", "test"}
    assert named <= set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))


def test_settings_exist():
    named = set(re.findall(r"WEFT_[A-Z_]+", TEXT))
    assert len(named) >= 7
    assert named <= {knob.env for knob in knobs().values()}


def test_extras_exist():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    named = set(re.findall(r"weft\[(\w+)\]", TEXT))
    assert len(named) >= 4
    assert named <= set(project["optional-dependencies"])


def test_files_exist():
    named = re.findall(r"`((?:docs/)?[\w.]+\.md|LICENSE)`", TEXT)
    assert len(named) >= 4
    for path in [*named, "tools/dev.py", "examples/demo.py"]:
        assert (ROOT / path).is_file(), path
        assert path in TEXT


def test_what_runs_native_code_is_said_and_where_weft_runs():
    """The README and the architecture page warn; the package's metadata names the system."""
    for page in ("README.md", "docs/architecture.md"):
        text = " ".join((ROOT / page).read_text(encoding="utf-8").split())
        assert re.search(r"`\.weft`[^.]*native code", text), page
        assert re.search(r"hecksums (find|detect) damage, not malice", text), page
        assert "cache" in text, page
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    systems = [c for c in project["classifiers"] if c.startswith("Operating System")]
    assert systems == ["Operating System :: POSIX :: Linux"]
    assert "runs on Linux" in " ".join(TEXT.split())


def test_the_rounding_of_winograd_is_stated_alike():
    """The bound that ``tests/unit/strategy/test_winograd.py`` checks is the one that users read."""
    pages = ("README.md", "docs/architecture.md", "weft/support/config.py",
             "weft/strategy/cpu/convolution/legalize.py")
    for page in pages:
        text = (ROOT / page).read_text(encoding="utf-8")
        around = [text[max(0, m.start() - 300) : m.start() + 300]
                  for m in re.finditer("winograd|minimal filtering", text, re.IGNORECASE)]
        figures = {figure for part in around for figure in re.findall(r"\b1e-[345]\b", part)}
        assert figures == {"1e-4"}, page
