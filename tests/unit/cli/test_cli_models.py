"""The commands that compile and run, on a small model."""

import json

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import weft
from tests.unit.cli.commands import run
from weft.compiler.options import CompileOptions
from weft.runtime.devices.cpu.threads import num_threads
from weft.strategy.records import cpu_of
from weft.target import CpuTarget
from weft.tune import TuningStore, Winner
from weft.tune.here import work_of


def save_model(path, operator="Relu"):
    graph = helper.make_graph(
        [helper.make_node(operator, ["x"], ["y"], name="only")], "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 3])])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)]), path)
    return path


@pytest.fixture
def model(tmp_path, own_cache):
    return save_model(tmp_path / "m.onnx")


SHAPE = ["--input-shape", "x:2x3"]


def test_run_takes_and_gives_npz(model, tmp_path, capsys):
    x = np.float32([[1, -2, 3], [-4, 5, -6]])
    np.savez(tmp_path / "x.npz", x=x)
    code, out, _ = run(["run", model, *SHAPE, "--inputs", tmp_path / "x.npz", "-o",
                        tmp_path / "y.npz"], capsys)
    assert code == 0
    assert "y: float32[2, 3]" in out
    np.testing.assert_array_equal(np.load(tmp_path / "y.npz")["y"], np.maximum(x, 0))


@pytest.mark.parametrize("fill", ["random", "zeros", "ones"])
def test_run_fills_what_no_file_gives(model, fill, capsys):
    code, out, _ = run(["run", model, *SHAPE, "--fill", fill, "--threads", 1], capsys)
    assert code == 0
    assert {"zeros": "max 0", "ones": "min 1"}.get(fill, "max") in out


def test_run_refuses_arrays_that_are_no_inputs(model, tmp_path, capsys):
    np.savez(tmp_path / "x.npz", z=np.zeros(3))
    code, _, err = run(["run", model, *SHAPE, "--inputs", tmp_path / "x.npz"], capsys)
    assert code == 1
    assert "z" in err


def test_run_refuses_a_file_that_is_no_npz(model, tmp_path, capsys):
    (tmp_path / "x.npz").write_text("hello")
    code, _, err = run(["run", model, *SHAPE, "--inputs", tmp_path / "x.npz"], capsys)
    assert code == 1
    assert "npz" in err


def test_sizes_that_are_open_want_an_array(model, capsys, tmp_path):
    code, _, err = run(["run", model], capsys)
    assert code == 1
    assert "--input-shape" in err
    np.savez(tmp_path / "x.npz", x=np.ones((4, 3), np.float32))
    code, out, _ = run(["run", model, "--inputs", tmp_path / "x.npz"], capsys)
    assert code == 0
    assert "4" in out


def test_an_unknown_operator_is_code_3(tmp_path, capsys):
    path = save_model(tmp_path / "odd.onnx", operator="Frobnicate")
    code, _, err = run(["compile", path, *SHAPE], capsys)
    assert code in (1, 3)
    assert "Frobnicate" in err


def test_bench_speaks_json(model, capsys):
    code, out, _ = run(["bench", model, *SHAPE, "--repeat", 3, "--json"], capsys)
    assert code == 0
    figures = json.loads(out)
    assert figures["best_ms"] <= figures["median_ms"] <= figures["worst_ms"]


def test_profile_shows_kernels_and_writes_a_trace(model, tmp_path, capsys):
    code, out, _ = run(["profile", model, *SHAPE, "--trace", tmp_path / "t.json"], capsys)
    assert code == 0
    assert "nn.relu" in out
    assert json.loads((tmp_path / "t.json").read_text())


def test_inspect_lists_kernels_and_prints_stages(model, capsys):
    code, out, _ = run(["inspect", model, *SHAPE], capsys)
    assert code == 0
    assert "nn.relu" in out
    code, out, _ = run(["inspect", model, *SHAPE, "--stage", "llvm"], capsys)
    assert code == 0
    assert "define" in out


def test_records_choose_the_implementation(tmp_path, capsys):
    """The winners of `weft tune` are taken by every command that compiles."""
    path, records = tmp_path / "m.ir", tmp_path / "r.sqlite"
    path.write_text("def @main(%x: Tensor[(64, 64), float32], %w: Tensor[(64, 64), float32]) "
                    "{ nn.dense(%x, %w) }")
    work = work_of(weft.parse(path.read_text()), CompileOptions.make())
    with TuningStore(records) as store:
        store.set_winner(Winner(cpu_of(CpuTarget.host()), work.tasks[0].kernel,
                                "nn.dense.cpu.generic", "", 1.0, 2.0, num_threads()))
    code, out, _ = run(["inspect", path, "--records", records], capsys)
    assert code == 0
    assert "nn.dense.cpu.generic, " in out
    assert "fastest by the tuning records" in out
    assert run(["compile", path, "--records", records], capsys)[0] == 0
    code, _, err = run(["compile", path, "--records", tmp_path / "missing"], capsys)
    assert code == 2
    assert "does not exist" in err


def test_inspect_draws_the_graph(model, capsys):
    code, out, _ = run(["inspect", model, *SHAPE, "--dot", "--stage", "lowered"], capsys)
    assert code == 0
    assert out.startswith("digraph weft {")
    assert " -> " in out


def test_inspect_writes_a_page(model, tmp_path, capsys):
    code, _, _ = run(["inspect", model, *SHAPE, "--html", tmp_path / "m.html"], capsys)
    assert code == 0
    assert "<summary>asm</summary>" in (tmp_path / "m.html").read_text()


def test_progress_is_plain_lines_in_a_pipe(model, capsys):
    code, _, err = run(["run", model, *SHAPE], capsys)
    assert code == 0
    assert "importing the model" in err
    assert "\x1b" not in err


def test_compile_writes_an_artifact_that_run_takes(model, tmp_path, capsys):
    artifact = tmp_path / "m.weft"
    code, out, _ = run(["compile", model, *SHAPE, "-o", artifact], capsys)
    assert code == 0
    assert str(artifact) in out
    code, out, _ = run(["run", artifact, "--fill", "ones"], capsys)
    assert code == 0
    assert "mean 1" in out
    y = weft.load(artifact)(-np.ones((2, 3), np.float32))
    np.testing.assert_array_equal(y, np.zeros((2, 3)))


@pytest.mark.usefixtures("own_cache")
def test_inspect_shows_the_kernels_of_the_virtual_machine(tmp_path, capsys):
    path = tmp_path / "loop.ir"
    path.write_text("""
        def @down(%n: int32) -> int32 {
          if (less(%n, 1)) { %n } else { @down(subtract(%n, 1)) }
        }
        def @main(%n: int32) -> int32 { @down(%n) }""")
    code, out, _ = run(["inspect", path], capsys)
    assert code == 0
    assert "subtract" in out
    code, out, _ = run(["inspect", path, "--stage", "vm"], capsys)
    assert code == 0
    assert "tail_call @down" in out
    code, out, _ = run(["run", path, "--fill", "ones"], capsys)
    assert code == 0
    assert "int32[]" in out


@pytest.mark.usefixtures("own_cache")
def test_run_prints_data(tmp_path, capsys):
    path = tmp_path / "list.ir"
    path.write_text('import "prelude"\ndef @main(%n: int32) { Cons(%n, Nil()) }')
    code, out, _ = run(["run", path, "--fill", "ones"], capsys)
    assert code == 0
    assert "Cons(array(1" in out


@pytest.mark.parametrize(("arguments", "old", "new"), [
    (["inspect"], ("--phase", "lowered"), ("--stage", "lowered")),
    (["compile", "-o", "net"], ("--kind", "c"), ("--format", "c")),
])
def test_old_options_work_and_warn(model, tmp_path, monkeypatch, capsys, arguments, old, new):
    monkeypatch.chdir(tmp_path)
    command, *rest = arguments
    found = run([command, model, *SHAPE, *rest, *old], capsys)
    wanted = run([command, model, *SHAPE, *rest, *new], capsys)
    assert found[:2] == wanted[:2]
    assert found[0] == 0
    assert f"warning: {old[0]} is now {new[0]}; the old name goes with" in found[2]
    assert "warning" not in wanted[2]
    assert old[0] not in run([command, "--help"], capsys)[1]
