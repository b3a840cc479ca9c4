"""README.md and the pages of usage: programs run, commands work, and what they name exists."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import tomllib
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import weft
from benchmarks import figures as figures_module
from tests.docs.coverage_page import ROOT
from tests.docs.page_programs import run_page
from weft.cli.main import main
from weft.compiler.stages import all_stages
from weft.support.config import knobs
from weft.support.safetensors_file import write_tensors

README = ROOT / "README.md"
PAGES = (README, *(ROOT / "docs" / f"{name}.md" for name in ("usage", "command_line", "install")))
TEXT = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
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
def _a_folder_with_a_model(tmp_path, monkeypatch, own_cache):
    """A folder with files of the README's names: a model of one convolution for the real one."""
    monkeypatch.chdir(tmp_path)
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


def block(words: str, kind: str = "python") -> str:
    """The only block that contains ``words``; those with results run as doctests."""
    (found,) = (text for text in blocks(kind) if words in text and ">>>" not in text)
    return found


def run(words: str, **names: object) -> dict:
    """The names after the block that contains ``words`` has run with these."""
    exec(compile(block(words), "README.md", "exec"), names)
    return names


def tanh_program() -> dict:
    return run("weft.parse", x=VECTOR, weft=weft)


def test_the_way_from_a_model_to_an_artifact(tmp_path, capsys):
    names = run("import weft", x=IMAGE)
    (first,) = names["ys"]
    np.testing.assert_allclose(names["y"], convolved(), rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(names["y"], first)
    assert (tmp_path / "resnet50.weft").is_file()
    shown = capsys.readouterr().out
    assert "name='gpu_0/data_0', dtype='float32', shape=(1, 3, 4, 4)" in shown
    assert "GFLOP/s" in shown
    assert "nn.conv2d" in shown


def test_streams_and_futures(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1}, raising=False)
    monkeypatch.setattr(os, "sched_setaffinity", lambda *_: None, raising=False)
    mod = weft.compile("resnet50.onnx")
    names = run("mod.submit", mod=mod, x=IMAGE)
    for y in (names["y"], *names["ys"], *[one.result() for one in names["futures"][:-1]]):
        np.testing.assert_array_equal(y, mod(IMAGE))
    assert (names["one"].count, names["one"].threads, names["two"].count) == (1, 2, 2)


@pytest.mark.torch
def test_a_module_of_torch_and_the_back_end_of_torch():
    import torch

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = torch.nn.Conv2d(3, 2, 3)

        def forward(self, x):
            return torch.relu(self.conv(x))

    module = Net().eval()
    x = torch.randn(2, 3, 224, 224)
    names = run("torch.compile", weft=weft, torch=torch, module=module, x=x)
    one = x[:1]
    np.testing.assert_allclose(names["mod"](one), module(one).detach(), rtol=1e-4, atol=1e-5)
    with torch.no_grad():
        torch.testing.assert_close(names["fast"](x), module(x), rtol=1e-4, atol=1e-5)


@pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")
def test_sizes_in_c(tmp_path):
    """The lines of the page, with arrays around them: they run at a size of the program."""
    f = weft.parse("def @main(%x: Tensor[(batch{1..16}, 4), float32]) { nn.relu(%x) }")
    weft.compile(f).export(tmp_path / "net", format="c")
    (tmp_path / "use.c").write_text("""
        #include <stdio.h>
        #include <stdlib.h>
        #include "net.h"
        int main(int argc, char **argv) {
            long batch = atol(argv[argc - 1]);
            static float x[16 * 4], y[16 * 4];
            x[0] = -1, x[5] = 2;
            const void *inputs[] = {x};
            void *outputs[] = {y};
            """ + block("net_run", "c") + """
            printf("%g %g\\n", y[0], y[5]);
            free(workspace);
            return code == NET_WRONG_SIZE ? 3 : code;
        }""")
    folder = tmp_path / "net"
    subprocess.run(["cc", "-std=c11", "-Wall", "-Werror", "-I", folder, tmp_path / "use.c",
                    folder / "net.o", "-lm", "-o", tmp_path / "use"], check=True)
    done = subprocess.run([tmp_path / "use", "2"], capture_output=True, text=True, check=True)
    assert done.stdout == "0 2\n"
    wrong = subprocess.run([tmp_path / "use", "17"], capture_output=True, check=False)
    assert wrong.returncode == 3


def test_a_program_as_text_and_its_gradient():
    names = tanh_program()
    *_, call = block("weft.parse").strip().split("\n")
    np.testing.assert_allclose(eval(call, names), np.tanh(VECTOR), rtol=1e-6)
    slopes = run("weft.grad", weft=weft, f=names["f"], x=VECTOR)["slopes"]
    np.testing.assert_allclose(slopes, 1 - np.tanh(VECTOR) ** 2, rtol=1e-4, atol=1e-6)


def test_a_training_step():
    model = weft.nn.Linear(4, 3)
    optimizer = weft.optim.SGD(model.parameters(), lr=0.5)
    step = run("weft.train_step", weft=weft, model=model, optimizer=optimizer)["step"]
    x, y = weft.randn(8, 4), weft.tensor([0, 1, 2, 0, 1, 2, 0, 1])
    losses = [step(x, y).item() for _ in range(5)]
    assert losses == sorted(losses, reverse=True)
    assert losses[-1] < losses[0]


def test_parts_of_models_and_devices():
    steps = [("Relu", "x", "layer1/out"), ("Tanh", "layer1/out", "t"), ("Relu", "t", "layer3/relu"),
             ("Neg", "layer3/relu", "y")]
    ports = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [10]) for n in "xy"]
    graph = helper.make_graph([helper.make_node(op, [a], [b]) for op, a, b in steps], "g",
                              ports[:1], ports[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)])
    asked: list = []

    class Watched:
        def __init__(self, module):
            self.module = module

        def run(self, *arguments):
            asked.append(self.module.run(*arguments))

    names = run("layer3/relu", weft=weft, model=model, x=VECTOR, mod=Watched(weft.compile(model)))
    expected = np.maximum(np.tanh(VECTOR), 0)
    np.testing.assert_allclose(asked[0][0], expected, rtol=1e-6)
    np.testing.assert_allclose(names["two"](VECTOR), -np.maximum(np.tanh(np.maximum(VECTOR, 0)), 0),
                               rtol=1e-6)


def test_a_program_for_a_gpu(monkeypatch, capsys):
    monkeypatch.setenv("WEFT_CUDA", "emulate")
    names = run("gpu.as_text", weft=weft, f=tanh_program()["f"], x=VECTOR)
    assert ".target sm_80" in capsys.readouterr().out
    np.testing.assert_allclose(names["y"], np.tanh(VECTOR), rtol=1e-6)


def test_the_programs_of_the_readme_give_what_it_shows():
    assert run_page(README) > 12


def test_the_figures_of_the_readme_are_those_that_were_measured():
    figures = json.loads(figures_module.STORED.read_text(encoding="utf-8"))
    assert figures_module.readme_with(figures) == README.read_text(encoding="utf-8")
    assert figures_module.table(figures) in README.read_text(encoding="utf-8")
    assert figures["milliseconds"].keys() == figures_module.MODELS.keys()


def test_the_readme_fits_a_screen_or_two():
    assert len(README.read_text(encoding="utf-8").splitlines()) < 130


def test_every_block_of_the_pages_runs_in_a_test():
    """A block of another kind, or one that no test names, would rot."""
    here = Path(__file__).read_text(encoding="utf-8")
    named = re.findall(r'\b(?:run|block)\("([^"]+)"', here)
    for kind, text in BLOCKS:
        assert kind in ("sh", "python", "c"), kind
        assert kind == "sh" or ">>>" in text or any(words in text for words in named), text


def test_the_command_lines(tmp_path, capsys):
    verbs = []
    for arguments in commands("weft"):
        verbs.append(arguments[0])
        with pytest.raises(SystemExit) as end:
            main(arguments)
        out, err = capsys.readouterr()
        assert end.value.code == 0, (arguments, err)
        assert out or (tmp_path / arguments[-1]).is_file() or "--html" in arguments
    assert sorted(set(verbs)) == [
        "bench", "cache", "calibrate", "compile", "debug", "doctor", "explain", "export", "inspect",
        "loader", "ops", "opt", "passes", "profile", "quantize", "records", "run", "targets",
        "tune", "view", "warm"]
    assert (tmp_path / "resnet50.html").read_text().startswith("<!doctype html>")


def test_stages_exist():
    (named,) = re.findall(r"as_text\(.*?\)\) +# (.+)", block("import weft"))
    assert set(named.split()) <= set(all_stages())


def test_targets_of_make_exist():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    named = {words[0] for words in commands("make")}
    assert named == {"demo", "test"}
    assert named <= set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))


def test_settings_exist():
    named = set(re.findall(r"\bWEFT_[A-Z_]+", TEXT))
    assert len(named) >= 7
    assert named <= {knob.env for knob in knobs().values()}


def test_extras_exist():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    named = set(re.findall(r"weft\[(\w+)\]", TEXT))
    assert len(named) >= 4
    assert named <= set(project["optional-dependencies"])


def test_files_exist():
    named = re.findall(r"[`(]((?:docs/)?[\w./]+\.md|LICENSE)[`)]", README.read_text("utf-8"))
    assert len(named) >= 15
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
    pages = ("docs/command_line.md", "docs/architecture.md", "weft/support/config.py",
             "weft/strategy/cpu/convolution/legalize.py")
    for page in pages:
        text = (ROOT / page).read_text(encoding="utf-8")
        around = [text[max(0, m.start() - 300) : m.start() + 300]
                  for m in re.finditer("winograd|minimal filtering", text, re.IGNORECASE)]
        figures = {figure for part in around for figure in re.findall(r"\b1e-[345]\b", part)}
        assert figures == {"1e-4"}, page


def test_weights_by_name(tmp_path: Path) -> None:
    weight = np.linspace(-1, 1, 32, dtype=np.float32).reshape(4, 8)
    graph = helper.make_graph(
        [helper.make_node("Gemm", ["x", "fc.weight"], ["y"], transB=1)], "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (1, 8))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, (1, 4))],
        [onnx.numpy_helper.from_array(weight, "fc.weight")])
    mod = weft.compile(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)],
                                         ir_version=8))
    (tmp_path / "adapter").mkdir()
    write_tensors(tmp_path / "adapter" / "adapter_model.safetensors",
                  {"fc.lora_A.weight": np.ones((1, 8), np.float32),
                   "fc.lora_B.weight": np.ones((4, 1), np.float32)})
    one = np.ones((1, 8), np.float32)
    run("mod.set_weights(before)", mod=mod)
    np.testing.assert_allclose(mod(one), one @ weight.T, rtol=1e-5)
    mod.set_weights("weights.safetensors")
    np.testing.assert_allclose(mod(one), 2 * one @ weight.T, rtol=1e-5)
