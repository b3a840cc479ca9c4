"""A source of each kind of model: its digest, signature, import and first values."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import weft
from weft.compiler.options import CompileOptions
from weft.frontend import source as sources
from weft.frontend.source import FrontEnd, GraphSource, ProgramSource, Source, TextSource
from weft.support.errors import InvalidModelError, OptionError

TEXT = "def @main(%x: Tensor[(2, 3), float32]) { nn.relu(exp(%x)) }"
OPTIONS = CompileOptions.make()


def opened(model: Any, examples: Any = None, **options: Any) -> Source:
    return sources.open_source(model, examples, CompileOptions.make(**options))


def onnx_model(size: object = 3) -> Any:
    onnx = pytest.importorskip("onnx")
    ports = [onnx.helper.make_tensor_value_info(n, 1, [2, size]) for n in "xy"]
    graph = onnx.helper.make_graph([onnx.helper.make_node("Exp", ["x"], ["y"])], "net",
                                   ports[:1], ports[1:])
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 18)],
                                  ir_version=9)


def digest(source: Source) -> str:
    found = source.digest()
    assert not isinstance(found, str), found
    return found.text


def test_programs() -> None:
    module = weft.parse(TEXT)

    @weft.function
    def function(x: weft.TensorType((2, 3), "float32")):  # type: ignore[valid-type]
        return weft.op.nn.relu(weft.op.exp(x))

    found = [opened(model) for model in (module, module["main"], function)]
    assert [type(source) for source in found] == [ProgramSource] * 3
    assert digest(found[0]) == digest(found[1])
    assert digest(found[0]) != digest(opened(weft.parse(TEXT.replace("exp", "tanh"))))
    assert str(found[0].import_module(OPTIONS)) == str(module)
    assert found[0].module is module
    assert found[0].signature(OPTIONS) is None


def test_shapes_and_outputs_of_a_program() -> None:
    text = "def @main(%x: Tensor[(n, 3), float32]) { let %e = exp(%x); nn.relu(%e) }"
    source = opened(weft.parse(text))
    shaped = source.import_module(CompileOptions.make(inputs={"x": (5, 3)}))
    assert "(5, 3)" in str(shaped)
    part = source.import_module(CompileOptions.make(outputs=["e"]))
    assert "relu" not in str(part)
    fed = source.import_part(OPTIONS, None, {"e": None})
    assert "exp" not in str(fed)


def test_a_text_file(tmp_path: Path) -> None:
    path = tmp_path / "m.ir"
    path.write_text(TEXT)
    source = opened(path)
    assert isinstance(source, TextSource)
    assert not source.assumes_ranges
    assert str(source.import_module(OPTIONS)) == str(weft.parse(TEXT))
    found = source.digest()
    assert not isinstance(found, str)
    assert found.operators == TEXT.encode()
    assert found.identity == str(path) == found.files[0][0]
    source.check_unchanged()
    path.write_text(TEXT + " ")
    with pytest.raises(InvalidModelError, match="changed since"):
        source.check_unchanged()
    path.write_bytes(b"\xff")
    with pytest.raises(InvalidModelError, match="cannot be read"):
        opened(path).import_module(OPTIONS)


def test_an_onnx_model_in_a_file_and_in_memory(tmp_path: Path) -> None:
    model = onnx_model()
    path = tmp_path / "m.onnx"
    path.write_bytes(model.SerializeToString(deterministic=True))
    found = [opened(one) for one in (str(path), path.read_bytes(), bytearray(path.read_bytes()),
                                     model)]
    assert len({digest(source) for source in found}) == 1
    assert len({str(source.import_module(OPTIONS)) for source in found}) == 1
    assert all(source.assumes_ranges for source in found)
    assert [source.signature(OPTIONS) for source in found] == [None] * 4
    copies = [source.as_onnx() for source in found]
    assert all(copy == model and copy is not model for copy in copies)
    dynamic = opened(onnx_model("n")).signature(OPTIONS)
    assert dynamic is not None
    assert dynamic[0][0][0] == "x"
    assert opened(onnx_model("n")).signature(CompileOptions.make(inputs={"x": (2, 3)})) is None
    assert opened(tmp_path / "missing.onnx").digest() == "the file cannot be read"


@pytest.mark.torch
def test_a_torch_model() -> None:
    torch = pytest.importorskip("torch")
    net = torch.nn.Linear(3, 4).eval()
    source = opened(net, torch.zeros(2, 3))
    assert digest(source) == digest(opened(net, (torch.zeros(2, 3),)))
    assert "program" not in vars(source)  # a digest needs no trace
    assert source.signature(OPTIONS) is None
    assert "main" in source.import_module(OPTIONS)
    dynamic = opened(net, (torch.zeros(2, 3),), inputs={"input": ("n", 3)})
    assert isinstance(dynamic.digest(), str)
    dynamic.import_module(CompileOptions.make(inputs={"input": ("n", 3)}))
    found = dynamic.signature(OPTIONS)
    assert found is not None
    assert [name for name, _ in found[0]] == ["input"]
    exported = torch.export.export(net, (torch.zeros(2, 3),))
    assert "exported" in str(opened(exported).digest())


def test_a_graph_is_cut_when_it_is_opened() -> None:
    graph = weft.graph.Graph()
    x = graph.placeholder((2, 3), name="x")
    graph.assign_add(graph.variable(np.ones((2, 3), np.float32), name="total"), x)
    source = opened(graph, outputs=["^AssignAdd"])
    assert isinstance(source, GraphSource)
    assert source.is_cut
    assert list(source.state.values()) == ["total"]
    assert source.initial_values()["total"].tolist() == np.ones((2, 3)).tolist()
    assert digest(source) == digest(opened(graph, outputs=["^AssignAdd"]))


@pytest.mark.parametrize("model", [3, object(), [], None])
def test_what_is_no_model(model: object) -> None:
    with pytest.raises(InvalidModelError, match="not a model"):
        opened(model)


def test_artifacts_and_examples_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidModelError, match=r"weft\.load"):
        opened(tmp_path / "m.weft")
    with pytest.raises(OptionError, match="example_inputs are for modules"):
        opened(weft.parse(TEXT), (np.ones((2, 3)),))


class Recipe:
    """A model of a front end that is not weft's."""

    name = "recipe"


def open_recipe(model: object, examples: object, options: object) -> Source:
    return ProgramSource(weft.parse(TEXT))


def test_a_front_end_of_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "FRONT_ENDS", dict(sources.FRONT_ENDS))
    sources.register_front_end(FrontEnd(
        "recipes", f"{__name__}:open_recipe", (".recipe",), (f"{__name__}.Recipe",),
        takes_examples=True))
    x = np.ones((2, 3), np.float32)
    for model in (Recipe(), tmp_path / "a.recipe"):
        np.testing.assert_allclose(weft.compile(model)(x), np.exp(x), rtol=1e-6)
    assert isinstance(opened(weft.parse(TEXT)), ProgramSource)


@pytest.mark.parametrize("text", ["def @main() {\n  1\n}", "x" * 300 + ".onnx", "a\0b.onnx"],
                         ids=["program", "long", "zero byte"])
def test_a_text_that_no_file_has_as_its_name(text: str) -> None:
    with pytest.raises(InvalidModelError, match="the text is not the path of a model"):
        opened(text)


def test_converters_of_torch_operators_without_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [m for m in sys.modules if m.startswith("weft.frontend.torch.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(OptionError, match="needs torch"):
        weft.torch_converter("mine::scale")(lambda node, x: x)
