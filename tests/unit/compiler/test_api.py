"""``weft.compile`` from every kind of model to numbers."""

import copy
import pickle
import subprocess
import sys

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import weft
from weft.compiler.cache import model_key
from weft.compiler.options import CompileOptions
from weft.compiler.pipeline import run_pipeline
from weft.compiler.program import model_code
from weft.compiler.program.code import ModelCode
from weft.compiler.program.lowering import lower_program
from weft.compiler.report.page import html_report
from weft.compiler.stages import stages_of
from weft.frontend.onnx.source import OnnxSource
from weft.frontend.source import open_source
from weft.support.errors import ArtifactError, InvalidModelError, OptionError, TargetError
from weft.transform import evaluate

pytestmark = pytest.mark.usefixtures("own_cache", "verified_once")

TEXT = """
def @main(%x: Tensor[(2, 6), float32], %y: Tensor[(6,), float32]) {
  let %a = nn.softmax(add(%x, %y));
  (%a, sum(%a, axis=(1,)), reshape(%x, newshape=(3, 4)))
}"""
X = np.linspace(-1, 1, 12, dtype=np.float32).reshape(2, 6)
Y = np.arange(6, dtype=np.float32)


def onnx_model(scale=2.0):
    weights = helper.make_tensor("w", TensorProto.FLOAT, [3], [scale, scale, scale])
    graph = helper.make_graph(
        [helper.make_node("Mul", ["x", "w"], ["m"]), helper.make_node("Relu", ["m"], ["y"])],
        "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 3])], [weights])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)])


def test_a_module_gives_what_the_reference_gives():
    mod = weft.parse(TEXT)
    expected = evaluate(mod, [X, Y])
    got = weft.compile(mod)(X, Y)
    assert isinstance(got, tuple)
    for one, other in zip(got, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5)


@pytest.mark.parametrize("opt_level", [0, 1, 2, 3])
def test_every_level_computes_the_same(opt_level):
    got = weft.compile(weft.parse(TEXT), opt_level=opt_level)(X, Y)
    np.testing.assert_allclose(got[0].sum(axis=1), [1, 1], rtol=1e-5)


def test_every_kind_of_model(tmp_path):
    model = onnx_model()
    path = tmp_path / "m.onnx"
    onnx.save(model, path)
    text = tmp_path / "m.ir"
    text.write_text("def @main(%x: Tensor[(2, 3), float32]) { nn.relu(add(%x, %x)) }")
    function = weft.parse(text.read_text())["main"]
    x = np.float32([[1, -2, 3], [-4, 5, -6]])
    for given in (path, str(path), path.read_bytes(), model, text, weft.parse(text.read_text()),
                  function):
        np.testing.assert_array_equal(weft.compile(given)(x), np.maximum(2 * x, 0))


def test_what_is_no_model_is_refused():
    with pytest.raises(InvalidModelError, match="not a model"):
        weft.compile(42)


def test_knobs_hold_for_one_compilation(capsys):
    weft.compile(weft.parse(TEXT), debug=3)
    assert "weft.strategy" in capsys.readouterr().err
    with pytest.raises(OptionError, match="unknown option"):
        weft.compile(weft.parse(TEXT), loudness=3)


def test_the_second_compilation_imports_nothing(tmp_path, monkeypatch):
    path = tmp_path / "m.onnx"
    onnx.save(onnx_model(), path)
    x = np.ones((2, 3), np.float32)
    first = weft.compile(path)(x)
    monkeypatch.setattr(OnnxSource, "import_whole", lambda *_: pytest.fail("imported again"))
    module = weft.compile(path)
    np.testing.assert_array_equal(module(x), first)
    monkeypatch.undo()


def test_a_warm_compilation_does_not_import_onnx(tmp_path):
    path = tmp_path / "m.onnx"
    onnx.save(onnx_model(), path)
    weft.compile(path)
    code = f"import weft, sys; weft.compile({str(path)!r}); print('onnx' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


@pytest.mark.usefixtures("own_cache")
def test_modules_that_differ_in_the_names_of_inputs_alone():
    for name in "xyx":
        program = weft.parse(f"def @main(%{name}: Tensor[(2,), float32]) {{ exp(%{name}) }}")
        assert weft.compile(program).inputs[0].name == name


def test_keys_tell_models_and_options_apart():
    def key(model, options):
        found = model_key(open_source(model, None, options), options)
        return None if isinstance(found, str) else found.text

    options = CompileOptions.make()
    one = onnx_model(2.0).SerializeToString()
    assert key(one, options) == key(bytearray(one), options)
    assert key(one, options) != key(onnx_model(3.0).SerializeToString(), options)
    assert key(one, options) != key(one, CompileOptions.make(opt_level=1))
    assert key(one + b"location", options) is None


def lowered(options):
    return lower_program(run_pipeline(weft.parse(TEXT), options))


def test_a_compiled_model_survives_the_cache():
    options = CompileOptions.make()
    code = model_code.build_model(lowered(options), options)
    again = ModelCode.from_payload(memoryview(b"".join(bytes(p) for p in code.to_parts())))
    assert again.manifest == code.manifest
    assert again.objects == code.objects
    np.testing.assert_array_equal(again.constants, code.constants)


def test_modules_are_copied_and_pickled(tmp_path):
    module = weft.compile(weft.parse(TEXT))
    assert copy.copy(module) is module
    assert copy.deepcopy({"m": module})["m"] is module
    again = pickle.loads(pickle.dumps(module))
    for one, other in zip(again(X, Y), module(X, Y), strict=True):
        np.testing.assert_array_equal(one, other)
    with pytest.raises(OptionError, match="cannot show its stages"):
        again.as_text("lowered")
    module.export(tmp_path / "m.weft")
    loaded = weft.load(tmp_path / "m.weft")
    assert copy.deepcopy(loaded) is loaded
    with pytest.raises(ArtifactError, match="cannot be pickled"):
        pickle.dumps(loaded)


def test_equal_models_give_equal_code():
    options = CompileOptions.make()
    with weft.config(no_cache=True):
        codes = [model_code.build_model(lowered(options), options)
                 for _ in range(2)]
    assert b"".join(map(bytes, codes[0].to_parts())) == b"".join(map(bytes, codes[1].to_parts()))


def test_a_damaged_cache_is_rebuilt(tmp_path):
    mod = weft.parse(TEXT)
    expected = weft.compile(mod)(X, Y)
    for entry in (tmp_path / "cache").glob("*/*"):
        data = bytearray(entry.read_bytes())
        data[len(data) // 2] ^= 0xFF
        entry.write_bytes(data)
    for one, other in zip(weft.compile(mod)(X, Y), expected, strict=True):
        np.testing.assert_array_equal(one, other)


STAGES = stages_of(weft.CpuTarget.host())


@pytest.mark.parametrize("stage", STAGES)
def test_every_stage_has_a_text(stage):
    text = weft.compile(weft.parse(TEXT)).as_text(stage)
    marks = {"decisions": "kernel", "te": "root", "scheduled": "for", "tir": "for",
             "llvm": "define", "asm": ".text"}
    assert marks.get(stage, "@main") in text


def test_an_unknown_stage_is_refused():
    with pytest.raises(OptionError, match="unknown stage"):
        weft.compile(weft.parse(TEXT)).as_text("ptx")


def test_ports_are_named_as_in_the_model():
    module = weft.compile(onnx_model())
    assert [str(p) for p in module.inputs] == ["x: Tensor[(2, 3), float32]"]
    assert [p.name for p in module.outputs] == ["y"]


def test_an_interrupt_during_the_build_leaves_no_worker(monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("weft.compiler.build.kernel.build_kernel", interrupted)
    with pytest.raises(KeyboardInterrupt):
        weft.compile(weft.parse(TEXT), build_jobs=1)


def test_the_report_is_one_page_with_every_stage():
    page = html_report(weft.compile(weft.parse(TEXT)), title="a <model>")
    assert page.startswith("<!doctype html>")
    assert "a &lt;model&gt;" in page
    assert "src=" not in page
    for stage in STAGES:
        assert f"<summary>{stage}</summary>" in page


@pytest.mark.parametrize("target", ["llvm -mtriple=aarch64-unknown-linux-gnu -mcpu=generic",
                                    "llvm -mcpu=sapphirerapids -mattr=+amx-tile"])
def test_code_for_another_machine_is_exported_and_not_run(target, tmp_path):
    module = weft.compile(weft.parse(TEXT), target=target)
    assert not module.runs_here
    with pytest.raises(TargetError, match="another machine"):
        module(X, Y)
    with pytest.raises(TargetError):
        module.run(None, {"x": X, "y": Y})
    assert module.inputs[0].name == "x"
    assert ".text" in module.as_text("asm")
    try:
        module.export(tmp_path / "m.weft")
    except weft.errors.LinkerError:
        return  # this machine has no linker for that one
    with pytest.warns(weft.FallbackWarning, match="compiled again for this machine"):
        again = weft.load(tmp_path / "m.weft")
    here = weft.compile(weft.parse(TEXT))
    for found, expected in zip(again(X, Y), here(X, Y), strict=True):
        np.testing.assert_array_equal(found, expected)
    module.export(tmp_path / "native.weft", portable=False)
    with pytest.raises(ArtifactError):
        weft.load(tmp_path / "native.weft")
