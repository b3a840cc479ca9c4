"""Models and training graphs, written as ONNX and run by ONNX Runtime."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

import weft
from tests.models.randomize import light_model_path, randomize_weights
from tests.unit.cli.commands import run as run_command
from weft import op
from weft.export.onnx.model import onnx_model
from weft.ir.module import input_names, output_names
from weft.support.errors import ArtifactError, OptionError, UnsupportedModelError
from weft.transform.analysis.reference import evaluate

MLP = """
def @main(%x: Tensor[(n, 4), float32], %w: Tensor[(3, 4), float32], %b: Tensor[(3,), float32]) {
  %0 = nn.dense(%x, %w);
  nn.softmax(nn.bias_add(%0, %b, axis=1))
}
"""


def run(path: Path | bytes, feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    return session.run(None, feeds)


@pytest.mark.sample(0.25)
@pytest.mark.parametrize("name", ["squeezenet", "shufflenet", "resnet50", "densenet121"])
def test_a_model_is_the_same_after_a_round_trip(name, tmp_path):
    model = randomize_weights(onnx.load(light_model_path(name)), seed=3)
    path = tmp_path / "again.onnx"
    weft.export_onnx(model, path)
    again = onnx.load(path)
    onnx.checker.check_model(again, full_check=True)
    inner = {t.name for t in model.graph.initializer}
    assert [i.name for i in again.graph.input] == [i.name for i in model.graph.input
                                                   if i.name not in inner]
    assert [o.name for o in again.graph.output] == [o.name for o in model.graph.output]
    feeds = {again.graph.input[0].name:
             np.random.default_rng(0).random((1, 3, 224, 224), np.float32)}
    expected = run(model.SerializeToString(), feeds)
    np.testing.assert_allclose(run(path, feeds)[0], expected[0], rtol=2e-3, atol=1e-4)


def test_a_training_graph_is_written():
    loss = weft.parse("""
        def @main(%x: Tensor[(2, 3, 6, 6), float32], %k: Tensor[(4, 3, 3, 3), float32],
                  %w: Tensor[(5, 16), float32], %y: Tensor[(2, 5), float32]) {
          %0 = nn.conv2d(%x, %k, padding=[1, 1]);
          %1 = nn.max_pool2d(nn.relu(%0), pool_size=[3, 3], strides=[3, 3]);
          %2 = nn.dense(nn.batch_flatten(%1), %w);
          nn.cross_entropy_with_logits(%2, %y)
        }""")
    step = weft.grad(loss, with_respect_to=["k", "w"])
    rng = np.random.default_rng(1)
    values = [rng.standard_normal(p.checked_type.concrete_shape).astype(np.float32)
              for p in step["main"].params]
    found = run(onnx_model(step).SerializeToString(), dict(zip(input_names(step), values,
                                                               strict=True)))
    for got, want in zip(found, evaluate(step, values), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
    assert len(found) == len(output_names(step)) == 2


def test_dynamic_sizes_are_dimension_parameters(tmp_path):
    path = tmp_path / "mlp.onnx"
    weft.export_onnx(weft.parse(MLP), path)
    model = onnx.load(path)
    assert model.graph.input[0].type.tensor_type.shape.dim[0].dim_param == "n"
    rng = np.random.default_rng(2)
    for n in (1, 5):
        feeds = {"x": rng.random((n, 4), np.float32), "w": rng.random((3, 4), np.float32),
                 "b": rng.random(3, np.float32)}
        expected = evaluate(weft.parse(MLP), feeds)
        np.testing.assert_allclose(run(path, feeds)[0], expected, rtol=1e-5)


def test_a_training_graph_of_any_batch_is_written():
    """The number of elements, by which a mean is divided, is computed from the shape."""
    loss = weft.parse("def @main(%x: Tensor[(n, 4), float32], %w: Tensor[(1, 4), float32]) "
                      "{ mean(power(nn.dense(%x, %w), 2f)) }")
    step = weft.grad(loss, with_respect_to="w")
    model = onnx_model(step).SerializeToString()
    rng = np.random.default_rng(3)
    for n in (1, 6):
        feeds = {"x": rng.random((n, 4), np.float32), "w": rng.random((1, 4), np.float32)}
        np.testing.assert_allclose(run(model, feeds)[0], evaluate(step, feeds), rtol=1e-4)


def test_sizes_are_computed_from_shapes():
    mod = weft.parse("""
        def @main(%x: Tensor[(n{1..}, 4), float32]) {
          %0 = reshape(%x, newshape=(2*n{1..}, 2));
          %1 = strided_slice(%0, begin=(1,), end=(2*n{1..} - 1,), axes=(0,));
          (%1, full(1f, shape=(floordiv(n{1..}, 2), n{1..}), dtype="float32"))
        }""")
    model = onnx_model(mod)
    assert model.graph.input[0].type.tensor_type.shape.dim[0].dim_param == "n"
    assert model.graph.output[1].type.tensor_type.shape.dim[0].dim_param == "floordiv(n, 2)"
    x = np.arange(20, dtype=np.float32).reshape(5, 4)
    found = run(model.SerializeToString(), {"x": x})
    for got, want in zip(found, evaluate(mod, [x]), strict=True):
        np.testing.assert_array_equal(got, want)


def test_a_branch_reads_what_is_around_it():
    mod = weft.parse("""
        def @main(%c: Tensor[(), bool], %x: Tensor[(3,), float32]) {
          %0 = exp(%x);
          if (%c) { (add(%0, %x), %x) } else { (negative(%0), exp(%0)) }
        }""")
    model = onnx_model(mod)
    onnx.checker.check_model(model, full_check=True)
    x = np.array([0.5, -1, 2], np.float32)
    for flag in (True, False):
        found = run(model.SerializeToString(), {"c": np.array(flag), "x": x})
        for got, want in zip(found, evaluate(mod, [np.array(flag), x]), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-6)


def test_equal_programs_give_equal_bytes_and_large_constants_a_file(tmp_path):
    weight = np.random.default_rng(0).random((32, 32), np.float32)
    x = weft.ir.var("x", (2, 32))
    function = weft.Function((x,), op.nn.dense(x, weight))
    paths = [tmp_path / name / "net.onnx" for name in ("a", "b")]
    for path in paths:
        path.parent.mkdir()
        weft.export_onnx(function, path, external_data=True)
    for name in ("net.onnx", "net.onnx.data"):
        first, second = ((tmp_path / folder / name).read_bytes() for folder in ("a", "b"))
        assert first == second
    assert (tmp_path / "a" / "net.onnx.data").read_bytes() == weight.tobytes()
    value = np.ones((2, 32), np.float32)
    expected = value @ weight.T
    np.testing.assert_allclose(run(paths[0], {"x": value})[0], expected, rtol=1e-5)
    np.testing.assert_allclose(weft.compile(paths[0])(value), expected, rtol=1e-5)


def test_all_that_has_no_form_is_listed_at_once(tmp_path):
    mod = weft.parse("""
        def @main(%x: Tensor[(1, 3, 3), float32]) {
          %0 = linalg.cholesky(%x); %1 = linalg.eigh(%0.0);
          (%1.0, linalg.cholesky(%1.1).0)
        }""")
    path = tmp_path / "net.onnx"
    with pytest.raises(UnsupportedModelError) as found:
        weft.export_onnx(mod, path)
    assert "no form of 2 parts" in found.value.what
    assert "linalg.cholesky" in found.value.notes[0]
    assert "(2 times)" in found.value.notes[0]
    assert "linalg.eigh" in found.value.notes[1]
    assert not path.exists()


def test_options_are_checked(tmp_path):
    mod = weft.parse(MLP)
    with pytest.raises(OptionError, match="no such opset"):
        weft.export_onnx(mod, tmp_path / "a.onnx", opset=9)
    with pytest.raises(ArtifactError, match="cannot be written"):
        weft.export_onnx(mod, tmp_path)
    executable = weft.compile(mod, inputs={"x": (2, 4)})
    with pytest.raises(OptionError, match="for models"):
        weft.export_onnx(executable, tmp_path / "a.onnx", inputs={"x": (2, 4)})
    weft.export_onnx(executable, tmp_path / "a.onnx")
    written = onnx.load(tmp_path / "a.onnx").graph.input[0].type.tensor_type
    assert written.shape.dim[0].dim_value == 2


def test_the_command_writes_a_model(tmp_path, capsys):
    source = tmp_path / "mlp.ir"
    source.write_text(MLP, encoding="utf-8")
    target = tmp_path / "mlp.onnx"
    code, out, _ = run_command(["export", str(source), "-o", str(target)], capsys)
    assert code == 0
    assert "wrote" in out
    onnx.checker.check_model(onnx.load(target))
