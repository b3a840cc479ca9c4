"""Any tensor can be fetched, and any tensor can be fed; what is not needed does not run."""

from __future__ import annotations

import threading

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import weft
from weft.support.errors import InvalidInputError, OptionError, PassError, UnsupportedModelError

TEXT = """
def @main(%x: Tensor[(2, 3), float32], %y: Tensor[(2, 3), float32]) {
  let %a = nn.relu(%x);
  let %b = tanh(add(%a, 1f));
  nn.relu(multiply(%b, %y))
}
"""
RANDOM = np.random.default_rng(3)
X, Y = (RANDOM.standard_normal((2, 3)).astype(np.float32) for _ in range(2))
B = np.tanh(np.maximum(X, 0) + 1)


@pytest.fixture(scope="module")
def model() -> weft.Executable:
    return weft.compile(weft.parse(TEXT))


def two_layers() -> onnx.ModelProto:
    """Two products with names of their own, and weights worth sharing."""
    weights = [RANDOM.standard_normal((64, 64)).astype(np.float32) for _ in range(2)]
    nodes = [helper.make_node("MatMul", ["x", "w0"], ["layer1/out"], name="first"),
             helper.make_node("Relu", ["layer1/out"], ["layer1/relu"]),
             helper.make_node("MatMul", ["layer1/relu", "w1"], ["y"], name="second")]
    port = [helper.make_tensor_value_info(n, TensorProto.FLOAT, (4, 64)) for n in "xy"]
    graph = helper.make_graph(nodes, "g", port[:1], port[1:], [
        numpy_helper.from_array(w, f"w{i}") for i, w in enumerate(weights)])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)])


def test_inner_tensors_are_fetched(model: weft.Executable) -> None:
    np.testing.assert_allclose(model.run(["b"], {"x": X})[0], B, rtol=1e-6)
    b, out = model.run(["b", "output"], {"x": X, "y": Y})
    np.testing.assert_allclose(out, np.maximum(b * Y, 0))


def test_inner_tensors_are_fed(model: weft.Executable) -> None:
    np.testing.assert_array_equal(model.run(None, {"b": X, "y": Y})[0], np.maximum(X * Y, 0))
    np.testing.assert_array_equal(model.run(["multiply"], {"tanh": X, "y": Y})[0], X * Y)


ALIASES = """
def @main(%x: Tensor[(2, 3), float32]) {
  let %a = nn.relu(%x);
  let %r = reshape(%a, newshape=[6]);
  let %c = copy(%a);
  let %same = %a;
  (tanh(%r), reshape(%r, newshape=[3, 2]), %a, %c, %same)
}
"""


def test_aliases_of_what_is_fed_are_fetched() -> None:
    """Under another name, by a reshape or by a copy: they have the value that is fed."""
    made = weft.compile(weft.parse(ALIASES))
    flat = X.reshape(6)
    for feed, value in (("a", X), ("same", X), ("nn.relu", X)):
        names = [name for name in ("a", "r", "c", "same", "reshape_1") if name != feed]
        for name, found in zip(names, made.run(names, {feed: value}), strict=True):
            shape = {"r": (6,), "reshape_1": (3, 2)}.get(name, X.shape)
            np.testing.assert_array_equal(found, X.reshape(shape), err_msg=f"{name} of {feed}")
        outputs = made.run(None, {feed: value})
        np.testing.assert_array_equal(outputs[2], X)
        np.testing.assert_array_equal(outputs[4], X)
    np.testing.assert_array_equal(made.run(["reshape_1"], {"r": flat})[0], flat.reshape(3, 2))
    with pytest.raises(InvalidInputError, match="both fed and fetched"):
        made.run(["a"], {"a": X})


def test_an_identity_of_onnx_has_the_value_that_is_fed() -> None:
    nodes = [helper.make_node("Relu", ["x"], ["a"]), helper.make_node("Identity", ["a"], ["b"]),
             helper.make_node("Identity", ["x"], ["z"]), helper.make_node("Tanh", ["b"], ["y"])]
    port = {n: helper.make_tensor_value_info(n, TensorProto.FLOAT, (2, 3)) for n in "xyzb"}
    graph = helper.make_graph(nodes, "g", [port["x"]], [port[n] for n in "yzb"])
    made = weft.compile(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)]))
    for feed, fetch in (("a", "b"), ("b", "a")):
        np.testing.assert_array_equal(made.run([fetch], {feed: Y})[0], Y)
    y, z, b = made.run(None, {"x": X, "a": Y})
    np.testing.assert_allclose(y, np.tanh(Y), rtol=1e-6)
    np.testing.assert_array_equal(z, X)
    np.testing.assert_array_equal(b, Y)


def test_inputs_that_are_not_needed_are_ignored(model: weft.Executable) -> None:
    np.testing.assert_array_equal(model.run(["a"], {"x": X, "y": Y})[0], np.maximum(X, 0))


def test_each_signature_is_compiled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made = weft.compile(weft.parse(TEXT))
    first = made.recompiler.part(made, ["a"], {"x": X})
    assert made.recompiler.part(made, ["a"], {"x": Y}) is first


@pytest.mark.parametrize(("fetches", "feeds", "message"), [
    (["c"], {"x": X}, "no tensor 'c'"),
    (["bb"], {"x": X}, "did you mean 'b'"),
    ([], {"x": X}, "nothing to run"),
    (["b"], {"b": X}, "both fed and fetched"),
    (["output"], {"b": X, "tanh": X, "y": Y}, "fed more than once"),
    (["b", "b"], {"x": X}, "fetched more than once"),
    (["b"], {"y": Y}, "'x' missing"),
    (None, {"xx": X, "y": Y}, "no tensor 'xx'"),
])
def test_errors(model: weft.Executable, fetches: list[str] | None, feeds: dict[str, np.ndarray],
                message: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        model.run(fetches, feeds)
    assert message in str(caught.value)


def test_names_of_an_onnx_model_and_shared_weights() -> None:
    proto = two_layers()
    made = weft.compile(proto.SerializeToString())
    x = RANDOM.standard_normal((4, 64)).astype(np.float32)
    whole = made(x)
    (inner,) = made.run(["layer1/relu"], {"x": x})
    np.testing.assert_array_equal(made.run(["y"], {"layer1/relu": inner})[0], whole)
    part = made.recompiler.part(made, ["y"], {"layer1/relu": inner})
    assert np.shares_memory(part.launcher.constants, made.launcher.constants)
    assert not part.recompiler.code.kept, "its weights are those of the model"


def test_parts_are_compiled_by_name() -> None:
    proto = two_layers()
    part = weft.compile(proto, inputs={"layer1/out": None}, outputs=["y"])
    assert part.manifest.signature() == ("(layer1/out: Tensor[(4, 64), float32]) -> "
                                         "(y: Tensor[(4, 64), float32])")
    grown = weft.compile(proto, inputs={"layer1/out": (9, 64)})
    assert grown.outputs[0].shape == (9, 64)
    with pytest.raises(InvalidInputError, match="no tensor 'z'"):
        weft.compile(proto, outputs=["z"])
    with pytest.raises(OptionError, match="outputs cannot be used"):
        weft.compile(proto, outputs="y")


def test_symbolic_sizes() -> None:
    made = weft.compile(weft.parse(
        "def @main(%x: Tensor[(n, 3), float32]) { let %a = nn.relu(%x); tanh(%a) }"))
    for rows in (1, 4):
        x = RANDOM.standard_normal((rows, 3)).astype(np.float32)
        np.testing.assert_array_equal(made.run(["a"], {"x": x})[0], np.maximum(x, 0))
        np.testing.assert_allclose(made.run(None, {"a": x})[0], np.tanh(x), rtol=1e-6)


def with_a_mystery() -> onnx.ModelProto:
    """A value ``h``, a shape ``s``, and an operator that weft does not know between h and y."""
    nodes = [helper.make_node("Relu", ["x"], ["h"]), helper.make_node("Shape", ["x"], ["s"]),
             helper.make_node("Mystery", ["h"], ["y"], domain="acme")]
    port = [helper.make_tensor_value_info(n, TensorProto.FLOAT, ("n", 3)) for n in "xy"]
    return helper.make_model(
        helper.make_graph(nodes, "g", port[:1], port[1:]), ir_version=10,
        opset_imports=[helper.make_opsetid("", 21), helper.make_opsetid("acme", 1)])


def test_operators_that_the_outputs_do_not_need_may_be_unknown() -> None:
    part = weft.compile(with_a_mystery(), outputs=["h"])
    np.testing.assert_array_equal(part(X), np.maximum(X, 0))
    np.testing.assert_array_equal(part.run(["h"], {"x": X})[0], np.maximum(X, 0))
    for asked in (["y"], ["h", "y"], None):
        with pytest.raises(UnsupportedModelError, match="acme::Mystery"):
            weft.compile(with_a_mystery(), outputs=asked)
    with pytest.raises(UnsupportedModelError, match="acme::Mystery"):
        part.run(["y"], {"x": X})


def test_a_result_that_reads_sizes_keeps_the_input_that_has_them() -> None:
    part = weft.compile(with_a_mystery(), outputs=["s"])
    assert [spec.name for spec in part.inputs] == ["x"]
    assert part(X).tolist() == [2, 3]


def test_programs_of_the_virtual_machine() -> None:
    made = weft.compile(weft.parse("""
def @main(%x: Tensor[(3,), float32]) {
  let %r = ref(%x);
  let %bump = fn () { ref_write(%r, nn.relu(ref_read(%r))) };
  let %done = %bump();
  negative(ref_read(%r))
}"""))
    x = np.array([-1, 2, 3], np.float32)
    assert made.manifest.vm is not None
    np.testing.assert_array_equal(made.run(None, {"x": x})[0], [0, -2, -3])
    with pytest.raises(PassError, match="references"):
        made.run(["done"], {"x": x})


def test_many_threads(model: weft.Executable) -> None:
    made, errors = weft.compile(weft.parse(TEXT)), []

    def work() -> None:
        try:
            np.testing.assert_array_equal(made.run(["a"], {"x": X})[0], np.maximum(X, 0))
        except BaseException as error:  # noqa: BLE001 - reported by the test
            errors.append(error)

    workers = [threading.Thread(target=work) for _ in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not errors


@pytest.mark.torch
def test_names_of_a_torch_model() -> None:
    import torch

    net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2)).eval()
    x = torch.randn(5, 3)
    made = weft.compile(net, example_inputs=(x,))
    inner = made.run(["1"], {made.inputs[0].name: x.numpy()})[0]
    np.testing.assert_allclose(inner, net[:2](x).detach().numpy(), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(made.run(None, {"1": inner})[0], net(x).detach().numpy(),
                               rtol=1e-5, atol=1e-6)
