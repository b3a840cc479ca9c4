"""GraphDef files: the binary and the text form, damage, and models that weft compiles."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import weft
from tests.unit.compat.graphdef.helpers import const, placeholder
from weft.cli.main import main
from weft.compat.graphdef import (
    ArgDef,
    AttrDef,
    AttrPlaceholder,
    ForeignType,
    FunctionDef,
    FunctionRef,
    GraphDef,
    GraphDefModel,
    Library,
    NodeDef,
    ShapeAttr,
    Versions,
    from_graphdef,
    graph_def_bytes,
    graph_def_text,
    parse_graph_def,
    read_graph_def,
    write_graph_def,
)
from weft.ir.dtype import DType
from weft.support.errors import InvalidModelError, OptionError, UnsupportedModelError
from weft.transform.analysis.reference import evaluate

F32 = DType.of("float32")
RNG = np.random.default_rng(1)
ATTRS = {
    "b": True, "i": -3, "f": 1.5, "s": "text", "bytes": b"\xff\x00", "type": F32,
    "foreign": ForeignType("DT_STRING"), "shape": ShapeAttr((1, None)), "rank": ShapeAttr(None),
    "func": FunctionRef("g", {"T": F32, "n": 3}), "place": AttrPlaceholder("T"), "ints": (1, 2),
    "types": (F32, DType.of("bool")), "shapes": (ShapeAttr((2,)),), "texts": ("a", "b"),
    "funcs": (FunctionRef("g"),), "empty": (),
}
FUNCTION = FunctionDef(
    "g", (ArgDef("a", F32), ArgDef("b", None, "T", "n")), (ArgDef("y", None, "T"),),
    (NodeDef("z", "Neg", ("a",)),), {"y": "z:y:0"}, {"z": "z"},
    (AttrDef("T", "type"), AttrDef("n", "int", 3)), {"_noinline": True}, is_stateful=True)


def same_attrs(a, b) -> None:
    assert a.keys() == b.keys()
    for name, value in a.items():
        if isinstance(value, np.ndarray):
            assert value.dtype == b[name].dtype
            np.testing.assert_array_equal(value, b[name])
        else:
            assert value == b[name], name


@pytest.mark.parametrize("form", [graph_def_bytes, graph_def_text])
def test_every_part_survives(form):
    graph = GraphDef((NodeDef("a", "Any", ("b:1", "^b"), "/gpu:0", ATTRS), NodeDef("b", "B")),
                     Versions(5, 2, (3, 4)), Library({"g": FUNCTION}, {"g": "dg"}))
    again = parse_graph_def(form(graph))
    same_attrs(dict(graph.nodes[0].attrs), again.nodes[0].attrs)
    assert [(n.name, n.op, n.inputs, n.device) for n in again.nodes] == \
        [(n.name, n.op, n.inputs, n.device) for n in graph.nodes]
    assert again.versions == graph.versions
    assert again.library == graph.library


@pytest.mark.parametrize("dtype", [
    "float32", "float64", "float16", "bfloat16", "float8_e5m2", "int4", "int8", "uint8", "int16",
    "uint16", "int32", "uint32", "int64", "uint64", "bool"])
@pytest.mark.parametrize("shape", [(), (1,), (2, 3), (0, 4)])
def test_tensors_survive(dtype, shape):
    value = RNG.integers(0, 5, shape).astype(DType.of(dtype).numpy)
    (node,) = parse_graph_def(graph_def_bytes(GraphDef((const("c", value),)))).nodes
    assert node.attrs["value"].dtype == value.dtype
    assert node.attrs["value"].shape == shape
    assert node.attrs["value"].tobytes() == value.tobytes()


def test_short_lists_of_elements_repeat_the_last_one():
    text = """node { name: "c" op: "Const" attr { key: "value" value { tensor {
        dtype: DT_FLOAT tensor_shape { dim { size: 2 } dim { size: 2 } } float_val: 1
        float_val: 2 } } } }"""
    (node,) = parse_graph_def(text).nodes
    assert node.attrs["value"].tolist() == [[1, 2], [2, 2]]


def network() -> GraphDef:
    """A convolution with its batch norm, a pool, and a dense layer, as frozen graphs have them."""
    x = np.zeros((1, 8, 8, 3), np.float32)
    weights = {
        "conv/w": RNG.normal(size=(3, 3, 3, 4)), "bn/gamma": np.ones(4), "bn/beta": np.zeros(4),
        "bn/mean": RNG.normal(size=4), "bn/var": np.ones(4), "fc/w": RNG.normal(size=(64, 5)),
        "fc/b": np.zeros(5)}
    window = {"ksize": (1, 2, 2, 1), "strides": (1, 2, 2, 1), "padding": "SAME"}
    return GraphDef((
        placeholder("image", x), *(const(n, w.astype(np.float32)) for n, w in weights.items()),
        NodeDef("conv/y", "Conv2D", ("image", "conv/w"),
                attrs={"T": F32, "strides": (1, 1, 1, 1), "padding": "SAME"}),
        NodeDef("bn/y", "FusedBatchNormV3", ("conv/y", "bn/gamma", "bn/beta", "bn/mean", "bn/var"),
                attrs={"is_training": False, "epsilon": 1e-3}),
        NodeDef("relu", "Relu", ("bn/y",)), NodeDef("pool", "MaxPool", ("relu",), attrs=window),
        NodeDef("shape", "Shape", ("pool",), attrs={"out_type": DType.of("int32")}),
        const("zero", np.int32([0])), const("one", np.int32([1])), const("rest", np.int32(-1)),
        NodeDef("batch", "StridedSlice", ("shape", "zero", "one", "one"),
                attrs={"shrink_axis_mask": 1}),
        NodeDef("flat/shape", "Pack", ("batch", "rest"), attrs={"N": 2}),
        NodeDef("flat", "Reshape", ("pool", "flat/shape")),
        NodeDef("fc/y", "MatMul", ("flat", "fc/w")), NodeDef("fc/z", "BiasAdd", ("fc/y", "fc/b")),
        NodeDef("prob", "Softmax", ("fc/z",)),
    ), Versions(1000))


def test_files_compile_and_run_in_part(tmp_path):
    x = RNG.normal(size=(1, 8, 8, 3)).astype(np.float32)
    graph, results = network(), []
    for name in ("net.pb", "net.pbtxt"):
        path = tmp_path / name
        write_graph_def(graph, path)
        mod = weft.compile(path)
        assert [s.name for s in (*mod.inputs, *mod.outputs)] == ["image", "prob"]
        results.append((mod(x), mod.run(["relu:0"], {"image": x})[0]))
    np.testing.assert_array_equal(results[0][0], results[1][0])
    np.testing.assert_allclose(results[0][0].sum(), 1, rtol=1e-5)
    part = weft.compile(tmp_path / "net.pb", inputs={"relu": None}, outputs=["prob"])
    np.testing.assert_allclose(part(results[0][1]), results[0][0], rtol=1e-5)
    with pytest.raises(OptionError, match="unknown suffix"):
        write_graph_def(network(), tmp_path / "net.txt")


def test_shapes_that_are_computed_from_symbolic_sizes():
    """The batch is open: shape, slice and pack make the shape of the reshape."""
    graph = network()
    image = NodeDef("image", "Placeholder", attrs={
        "dtype": F32, "shape": ShapeAttr((None, 8, 8, 3))})
    open_batch = dataclasses.replace(graph, nodes=(image, *graph.nodes[1:]))
    mod = weft.compile(GraphDefModel(open_batch))
    x = RNG.normal(size=(3, 8, 8, 3)).astype(np.float32)
    assert mod.inputs[0].shape[0] == "image_0"
    alone = weft.compile(GraphDefModel(graph))
    np.testing.assert_allclose(mod(x), np.concatenate([alone(x[i:i + 1]) for i in range(3)]),
                               rtol=1e-4, atol=1e-6)


def test_arithmetic_of_symbolic_sizes():
    x = NodeDef("x", "Placeholder", attrs={"dtype": F32, "shape": ShapeAttr((None, 4, None))})
    sized = (x, NodeDef("s", "Shape", ("x",)), const("two", np.int32([0, 2])),
             const("zero", np.int32(0)), const("four", np.int32(4)), const("axis", np.int32([0])),
             NodeDef("ends", "GatherV2", ("s", "two", "zero")),
             NodeDef("count", "Prod", ("ends", "axis")), NodeDef("all", "Mul", ("count", "four")),
             NodeDef("shape", "Pack", ("all",)), NodeDef("y", "Reshape", ("x", "shape")),
             NodeDef("one", "Const", attrs=const("", np.float32(1)).attrs),
             NodeDef("ones", "Fill", ("ends", "one")))
    mod = from_graphdef(GraphDef(sized), outputs=["y", "ones"])
    value = RNG.normal(size=(2, 4, 3)).astype(np.float32)
    y, ones = evaluate(mod, [value])
    np.testing.assert_array_equal(y, value.reshape(-1))
    assert ones.shape == (2, 3)
    with pytest.raises(UnsupportedModelError, match="must be known at compile time"):
        from_graphdef(GraphDef((*sized, NodeDef("t", "Tile", ("x", "s")))), outputs=["t"])


def test_commands_take_files(tmp_path, capsys):
    path = tmp_path / "net.pb"
    write_graph_def(network(), path)
    with pytest.raises(SystemExit):
        main(["inspect", str(path), "--tensors"])
    assert "conv/y: Tensor[(1, 8, 8, 4), float32]" in capsys.readouterr().out


def test_damage(tmp_path):
    path = tmp_path / "net.pb"
    path.write_bytes(graph_def_bytes(network())[:-7])
    with pytest.raises(InvalidModelError, match="not a GraphDef"):
        weft.compile(path)
    with pytest.raises(InvalidModelError, match="not a GraphDef"):
        parse_graph_def("node { nome: 'x' }")
    with pytest.raises(InvalidModelError, match="cannot be read"):
        read_graph_def(tmp_path / "missing.pb")
    for field, match in (("float_val: 1 float_val: 2", "more elements"),
                         ('tensor_content: "ab"', "does not fit its shape")):
        text = f"""node {{ name: "c" op: "Const" attr {{ key: "value" value {{ tensor {{
            dtype: DT_FLOAT tensor_shape {{ dim {{ size: 1 }} }} {field} }} }} }} }}"""
        with pytest.raises(InvalidModelError, match=match):
            parse_graph_def(text)


def test_unsupported_operators_are_listed_at_once():
    x = np.zeros(3, np.float32)
    inner = FunctionDef("f", (ArgDef("a", F32),), (ArgDef("y", F32),),
                        (NodeDef("q", "Quix", ("a",)),), {"y": "q:y:0"})
    graph = GraphDef((placeholder("x", x), NodeDef("a", "Foo", ("x",)), NodeDef("b", "Foo", ("a",)),
                      NodeDef("c", "Bar", ("b",)), NodeDef("d", "f", ("c",)),
                      NodeDef("unused", "Baz", ("x",))), library=Library({"f": inner}))
    with pytest.raises(UnsupportedModelError, match="3 operators") as error:
        from_graphdef(graph, outputs=["d"])
    assert error.value.notes == ("operator Foo: 2 nodes (a, b)", "operator Bar: 1 node (c)",
                                 "operator Quix: 1 node (q)")
