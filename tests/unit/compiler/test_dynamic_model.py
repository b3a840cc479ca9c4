"""Models with dynamic shapes that are compiled for each set of input shapes."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import weft
from weft.runtime import artifact
from weft.support.errors import ArtifactError, InvalidInputError, InvalidModelError

pytestmark = pytest.mark.usefixtures("own_cache")

TEXT = """
def @main(%x: Tensor[(n, 3), float32], %y: Tensor[(n, 1), float32]) {
  (nn.softmax(add(%x, %y)), sum(%x, axis=[0]))
}"""


@pytest.fixture(scope="module")
def model() -> weft.Executable:
    compiled = weft.compile(weft.parse(TEXT), dynamic_programs=2, symbolic_sizes=False)
    assert compiled.is_dynamic
    return compiled


def arrays(n: int) -> list[np.ndarray]:
    rng = np.random.default_rng(n)
    return [rng.standard_normal((n, 3)).astype(np.float32), np.ones((n, 1), np.float32)]


def check(results: object, x: np.ndarray, y: np.ndarray) -> None:
    e = np.exp(x + y)
    np.testing.assert_allclose(results[0], e / e.sum(1, keepdims=True), rtol=1e-5)
    np.testing.assert_allclose(results[1], x.sum(0), rtol=1e-5, atol=1e-6)


def test_the_signature_names_the_sizes(model):
    assert [s.shape for s in model.inputs] == [("n", 3), ("n", 1)]
    assert [s.shape for s in model.outputs] == [("n", 3), (3,)]
    assert "n" in repr(model)


def test_programs_are_kept_up_to_the_bound(model):
    for n in (1, 2, 1, 3):
        x, y = arrays(n)
        check(model(x, y=y), x, y)
    assert model.sizes == (((1, 3), (1, 1)), ((3, 3), (3, 1)))


def test_the_same_sizes_are_compiled_once(model, monkeypatch):
    x, y = arrays(3)
    model(x, y)

    def refuse(*_):
        raise AssertionError("compiled again")

    monkeypatch.setattr(type(model.recompiler.compiler), "at", refuse)
    check(model.run(None, {"y": y.tolist(), "x": x}), x, y)
    assert len(model.profile(x, y, repeat=1).kernels) > 0


def test_a_program_of_fixed_sizes_is_exported(model, tmp_path):
    x, y = arrays(2)
    fixed = model.specialize({"x": (2, 3), "y": (2, 1)})
    fixed.export(tmp_path / "m.weft")
    check(weft.load(tmp_path / "m.weft")(x, y), x, y)


def test_a_model_is_exported_with_the_sizes_it_has_met(tmp_path):
    model = weft.compile(weft.parse(TEXT), symbolic_sizes=False)
    with pytest.raises(ArtifactError, match="artifacts contain no compiler"):
        model.export(tmp_path / "m.weft")
    for size in (2, 3):
        check(model(*arrays(size)), *arrays(size))
    model.export(tmp_path / "m.weft")
    loaded = artifact.load(tmp_path / "m.weft")  # without a compiler
    for size in (3, 2):
        check(loaded(*arrays(size)), *arrays(size))
    with pytest.raises(ArtifactError, match="needs weft's compiler"):
        loaded(*arrays(5))
    check(weft.load(tmp_path / "m.weft")(*arrays(5)), *arrays(5))


@pytest.mark.parametrize(("shapes", "message"), [
    (((2, 3), (3, 1)), "'y' has the wrong shape"),
    (((2, 4), (2, 1)), "'x' has the wrong shape"),
    (((2,), (2, 1)), "'x' has the wrong shape"),
])
def test_sizes_that_contradict_are_refused_before_compiling(model, shapes, message):
    before = model.sizes
    with pytest.raises(InvalidInputError, match=message):
        model(*(np.zeros(s, np.float32) for s in shapes))
    with pytest.raises(InvalidInputError, match="wrong dtype"):
        model(np.zeros((7, 3), np.int32), np.zeros((7, 1), np.float32))
    assert model.sizes == before


def test_shapes_asked_for_must_be_whole(model):
    with pytest.raises(InvalidInputError, match="'y' has a dynamic shape"):
        model.specialize({"x": (2, 3)})
    with pytest.raises(InvalidInputError, match="unknown input 'z'"):
        model.specialize({"z": (2, 3)})


@pytest.mark.parametrize(("shape", "words"), [
    ((2,), "'x' has rank 2, the shape given has rank 1"),
    ((2, 3, 4), "'x' has rank 2, the shape given has rank 3"),
    ((2, 4), r"'x' has a fixed size of 3 \(axis 1\), not 4"),
    ((-1, 3), r"'x' cannot have size -1 \(axis 0\)"),
    ((2.5, 3), "'x' cannot have size 2.5"),
    (("n", 3), "'x' has a dynamic shape"),
    ((3, 3), r"'y' cannot have size 2 \(axis 0\): n is 3"),
    (5, "'x' needs a tuple of sizes as its shape"),
])
def test_shapes_that_do_not_fit_are_refused_before_anything_is_compiled(model, shape, words):
    with pytest.raises(InvalidInputError, match=words):
        model.specialize({"x": shape, "y": (2, 1)})
    with pytest.raises(InvalidInputError, match="takes shapes by input name"):
        model.specialize([shape])


def test_threads_that_meet_the_same_new_sizes():
    model = weft.compile(weft.parse(TEXT), symbolic_sizes=False)
    x, y = arrays(4)
    with ThreadPoolExecutor(4) as pool:
        for results in pool.map(lambda _: model(x, y), range(8)):
            check(results, x, y)
    assert len(model.sizes) == 1


def flattening() -> onnx.ModelProto:
    """A reshape to two sizes that are both known only when the model runs."""
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Gather", ["s", "order"], ["turned"]),
        helper.make_node("Reshape", ["x", "turned"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ("a", "b"))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ("b", "a"))],
        [helper.make_tensor("order", TensorProto.INT64, (2,), (1, 0))])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 9
    return model


def test_a_graph_that_needs_all_sizes_to_be_imported():
    model = weft.compile(flattening())
    assert [s.shape for s in (*model.inputs, *model.outputs)] == [("a", "b"), ("b", "a")]
    for shape in ((2, 3), (4, 1)):
        x = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
        np.testing.assert_array_equal(model(x), x.reshape(shape[::-1]))


def test_a_file_that_changes_is_noticed(tmp_path):
    path = tmp_path / "m.onnx"
    onnx.save(flattening(), path)
    model = weft.compile(path, symbolic_sizes=False)
    model(np.zeros((2, 3), np.float32))
    path.write_bytes(path.read_bytes() + b"\0")
    with pytest.raises(InvalidModelError, match="has changed"):
        model(np.zeros((3, 3), np.float32))


def test_inputs_open_a_size():
    x = weft.ir.var("x", (1, 4))
    model = weft.compile(weft.Function((x,), weft.op.tanh(x)), inputs={"x": ("batch", 4)})
    value = np.ones((3, 4), np.float32)
    np.testing.assert_allclose(model(value), np.tanh(value), rtol=1e-6)
