"""Slots of operators, inference both ways, JSON, and NNVM's passes over graphs."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import weft
from tests.unit.transform.helpers import kernels, op_calls
from weft import op as weft_op
from weft.graph.symbol import (
    GRAPH_PASSES,
    AttrScope,
    Graph,
    Group,
    Symbol,
    Variable,
    from_module,
    get_attr,
    graph_pass,
    has_attr,
    load_json,
    op,
    reset_attr,
    save_json,
    set_attr,
    to_module,
)
from weft.ir import OpPattern, assert_structural_equal
from weft.support.errors import (
    OptionError,
    ParseError,
    PassError,
    RegistryError,
    TypeInferenceError,
)
from weft.transform import evaluate

FILES = Path(__file__).parent / "files"
RNG = np.random.default_rng(11)


def convnet(batch: int = 0) -> Symbol:
    x = op.conv2d(Variable("data", shape=(batch, 3, 8, 8)), channels=4, kernel_size=(3, 3),
                  padding=(1, 1), use_bias=False, name="c")
    x = op.max_pool2d(op.relu(op.batch_norm(x, name="bn")), pool_size=(2, 2), strides=(2, 2))
    return op.softmax(op.dense(op.flatten(x), units=10, name="fc"), name="sm")


@pytest.fixture
def slot():
    yield "FTestSlot"
    for name in ("relu", "tanh"):
        reset_attr(name, "FTestSlot")


def test_slots_have_priorities(slot):
    set_attr("relu", slot, 1)
    assert get_attr("relu", slot) == 1
    set_attr("relu", slot, 2, plevel=9)  # lower, so the first stays
    assert get_attr("relu", slot) == 1
    set_attr("relu", slot, 3, plevel=11)
    assert get_attr("relu", slot) == 3
    with pytest.raises(RegistryError, match="set twice"):
        set_attr("relu", slot, 4, plevel=11)
    assert get_attr("tanh", slot, default=0) == 0
    assert not has_attr("tanh", slot)
    with pytest.raises(OptionError, match="out of range"):
        set_attr("relu", slot, 5, plevel=128)
    with pytest.raises(RegistryError, match="unknown operator"):
        set_attr("rellu", slot, 5)


def test_slots_follow_from_operator_records():
    assert get_attr("relu", "TOpPattern") is OpPattern.ELEMWISE
    x = Variable("x")
    made = get_attr("tanh", "FGradient")(op.tanh(x, name="t"), [Variable("dy")])
    assert (made.node.op.name, made.list_input_names()) == ("_backward_tanh", ["x", "dy"])
    assert get_attr("_backward_tanh", "TIsBackward")
    assert get_attr("nn.conv2d", "FCorrectLayout") is weft_op.nn.conv2d.hook("layout")
    assert get_attr("weft.reshape", "FInplaceIdentity")
    assert not has_attr("relu", "FInplaceIdentity")
    assert get_attr("relu", "FTVMCompute") is weft_op.nn.relu.compute
    assert has_attr("nn.attention_backward", "TIsBackward")


def test_variables_made_on_composition_get_attributes(slot):
    set_attr("dense", "FSetInputVarAttrOnCompose",
             lambda _attrs, node, index: node.attrs.setdefault("position", str(index)))
    try:
        made = op.dense(Variable("x"), units=2, name="fc")
        assert made.list_attr(recursive=True)["fc_bias$position"] == "2"
    finally:
        reset_attr("dense", "FSetInputVarAttrOnCompose")


def test_visible_outputs_and_names_of_outputs():
    set_attr("split", "FNumVisibleOutputs", lambda _attrs: 1)
    set_attr("split", "FListOutputNames", lambda _attrs: ["left", "right"])
    try:
        parts = op.split(Variable("x"), indices_or_sections=2, name="s")
        assert parts.list_output_names() == ["s_left"]
        assert parts.get_internals().list_output_names() == ["x", "s_left"]
    finally:
        reset_attr("split", "FNumVisibleOutputs")
        reset_attr("split", "FListOutputNames")


def test_shapes_flow_forward_with_unknown_sizes():
    graph = Graph(convnet()).apply("InferShape")
    by_name = dict(zip(Symbol(graph.outputs).get_internals().list_output_names(),
                       graph.attrs["shape"], strict=True))
    assert by_name["c_weight"] == (4, 3, 3, 3)
    assert by_name["bn_moving_var"] == (4,)
    assert by_name["fc_weight"] == (10, 64)
    assert by_name["sm_output"] == (0, 10)
    assert graph.attrs["shape_num_unknown_nodes"] == 8
    known = Graph(convnet()).apply("InferShape", shape_inputs={"data": (2, 0, 0, 0)})
    assert known.attrs["shape_num_unknown_nodes"] == 0
    assert known.attrs["shape"][-1] == (2, 10)


def test_shapes_flow_backward():
    x, y = Variable("x"), Variable("y", shape=(0, 3))
    joined = op.elemwise_add(op.relu(x), y)
    net = op.dense(joined, Variable("w", shape=(5, 0)), Variable("b"), units=5, name="fc")
    shapes = Graph(net).apply("InferShape", shape_inputs={"x": (4, 0)}).attrs["shape"]
    names = net.get_internals().list_output_names()
    found = dict(zip(names, shapes, strict=True))
    assert found["x"] == found["y"] == (4, 3)
    assert found["w"] == (5, 3)
    assert found["b"] == (5,)
    # From a result alone: the data of a layer.
    head = op.elemwise_mul(op.dense(Variable("d"), Variable("k", shape=(5, 3)), units=5,
                                    use_bias=False), Variable("out", shape=(7, 5)))
    found = dict(zip(head.get_internals().list_output_names(),
                     Graph(head).apply("InferShape").attrs["shape"], strict=True))
    assert found["d"] == (7, 3)


def test_contradicting_shapes_are_errors():
    net = op.elemwise_add(Variable("x", shape=(2, 3)), Variable("y", shape=(2, 4)), name="sum")
    with pytest.raises(TypeInferenceError, match="'sum'"):
        Graph(net).apply("InferShape")
    with pytest.raises(TypeInferenceError, match="contradicting shapes of 'data'"):
        Graph(convnet(1)).apply("InferShape", shape_inputs={"data": (2, 3, 8, 8)})


def test_dtypes_flow_both_ways():
    x, y = Variable("x", shape=(3,)), Variable("y", shape=(3,))
    net = op.cast(op.exp(op.elemwise_add(x, y)), dtype="int32")
    graph = Graph(net).apply("InferType", dtype_inputs={"y": "float16"})
    assert graph.attrs["dtype"] == ["float16"] * 4 + ["int32"]
    unknown = Graph(net).apply("InferType")
    assert unknown.attrs["dtype_num_unknown_nodes"] == 5
    with pytest.raises(TypeInferenceError, match="dtypes"):
        Graph(net).apply("InferType", dtype_inputs={"x": "float32", "y": "float16"})


def test_json_keeps_everything():
    w = Variable("w", shape=(4,), lr_mult=2)
    step = op._assign(w, w * 0.5, name="step")
    step.add_control_deps(op.log(w, name="logged"))
    net = Group([step, op.split(Variable("x"), indices_or_sections=(1, 2))[1]])
    text = save_json(net.entries, {"dltype": "list_int", "flags": [1, 2], "on": True,
                                   "shapes": [(1, 2), None, ()], "module": object()})
    heads, attrs = load_json(text)
    assert Symbol(heads).debug_str() == net.debug_str()
    assert attrs == {"dltype": "list_int", "flags": [1, 2], "on": True,
                     "shapes": [(1, 2), None, ()]}
    assert save_json(heads, attrs) == save_json(*load_json(save_json(heads, attrs)))
    document = json.loads(text)
    assert list(document) == ["nodes", "arg_nodes", "node_row_ptr", "heads", "attrs"]
    assert document["attrs"]["json_version"] == ["int", 2]
    assert document["node_row_ptr"][-1] == len(Graph(net).index().nodes) + 2


def test_files_of_both_versions_are_read():
    """The files in ``files`` are not written again: they are what earlier versions wrote."""
    graphs = [Graph.from_json((FILES / f"mlp_v{n}.json").read_text(encoding="utf-8"))
              for n in (1, 2)]
    for graph in graphs:
        assert graph.symbol.list_input_names() == ["data", "fc1_weight", "fc1_bias", "fc2_weight"]
        assert graph.symbol.list_attr(recursive=True)["fc1$ctx_group"] == "stage1"
        assert graph.symbol.list_attr(recursive=True)["fc1_weight$lr_mult"] == "0.5"
    first, second = (g.symbol.to_module(inputs={"data": (2, 4)}) for g in graphs)
    assert_structural_equal(first, second)
    assert graphs[0].json() == graphs[1].json()  # version 1 is saved as version 2
    assert (FILES / "mlp_v2.json").read_text(encoding="utf-8").strip() == graphs[0].json()


@pytest.mark.parametrize(("change", "what"), [
    (lambda d: d["attrs"].update(json_version=["int", 3]), "unsupported version"),
    (lambda d: d["nodes"][3].update(op="dens"), "unknown operator 'dens'"),
    (lambda d: d["nodes"][3]["attrs"].update(units="many"), "invalid graph"),
    (lambda d: d["nodes"][3]["inputs"].append([9, 0, 0]), "corrupt graph"),
    (lambda d: d["arg_nodes"].append(3), "not a variable"),
    (lambda d: d.pop("heads"), "not a graph of symbols"),
])
def test_damage_is_reported(change, what):
    document = json.loads((FILES / "mlp_v2.json").read_text(encoding="utf-8"))
    change(document)
    with pytest.raises(ParseError) as info:
        load_json(json.dumps(document), source="m.json")
    assert what in info.value.render()
    with pytest.raises(ParseError, match="invalid JSON"):
        load_json("{")


def test_passes_check_what_they_need():
    with pytest.raises(PassError, match="needs the graph attribute 'shape'") as info:
        Graph(convnet()).apply("PlanMemory")
    assert "run InferShape before" in info.value.render()
    with pytest.raises(PassError, match="'device_group_attr_key'") as info:
        Graph(convnet()).apply("PlaceDevice")
    assert "device_group_attr_key=..." in info.value.render()
    with pytest.raises(PassError, match="needs the operator attribute 'FMutateInputs'"):
        Graph(op.relu(Variable("x"))).apply("OrderMutation")
    with pytest.raises(RegistryError, match="InferShap"):
        Graph(convnet()).apply("InferShap")


def test_passes_that_change_the_graph_drop_what_described_it():
    graph = Graph(convnet(1)).apply("InferShape", "InferType", "PlanMemory", target="cpu",
                                    dtype_inputs={"data": "float32"})
    after = graph.apply("SimplifyInference", params=None)
    assert "target" in after.attrs
    assert not {"shape", "dtype", "storage_id"} & set(after.attrs)
    with pytest.raises(PassError, match="needs the graph attribute 'shape'"):
        after.apply("FoldScaleAxis")


def test_passes_of_users_provide_what_they_declare():
    try:
        @graph_pass("TestCount", provides=("count",))
        def count(graph: Graph) -> Graph:
            return graph.with_attrs(count=len(graph.index().nodes))

        @graph_pass("TestNothing", provides=("nothing",))
        def nothing(graph: Graph) -> Graph:
            return graph

        assert Graph(op.relu(Variable("x"))).apply("TestCount").attrs["count"] == 2
        with pytest.raises(PassError, match="did not provide what it declares"):
            Graph(op.relu(Variable("x"))).apply("TestNothing")
    finally:
        GRAPH_PASSES.remove("TestCount")
        GRAPH_PASSES.remove("TestNothing")


def test_mutations_are_ordered():
    w = Variable("w", shape=(2,))
    before = op.exp(w, name="before")
    step = op._assign(w, before, name="step")
    after = op.exp(w, name="after")
    ordered = Graph(Group([after, step])).apply("OrderMutation").symbol
    deps = {n.name: [d.name for d in n.control_deps] for n in Graph(ordered).index().nodes}
    assert deps == {"w": [], "before": [], "step": [], "after": ["step"]}
    other = op.log(w, name="other")  # reads version 1; the next mutation waits for it
    again = op._assign(w, w * 2.0, name="again")
    ordered = Graph(Group([step, again, other])).apply("OrderMutation").symbol
    deps = {n.name: [d.name for d in n.control_deps] for n in Graph(ordered).index().nodes}
    assert "other" in deps["again"]


def test_devices_are_placed_with_one_copy_per_tensor_and_device():
    x = Variable("x", shape=(2,))
    with AttrScope(group="a"):
        first = op.exp(x, name="first")
    with AttrScope(group="b"):
        one, two = (op.log(first, name=n) for n in ("one", "two"))
    net = op.elemwise_add(one, two, name="sum")
    graph = Graph(net).apply("PlaceDevice", device_group_attr_key="group",
                             device_assign_map={"a": "cpu:0", "b": "sim:1"},
                             device_copy_op="copy")
    placed = {n.name: d for n, d in zip(graph.index().nodes, graph.attrs["context"], strict=True)}
    assert placed == {"x": "cpu:0", "first": "cpu:0", "first_0_copy": "sim:1", "one": "sim:1",
                      "two": "sim:1", "sum": "sim:1"}
    with pytest.raises(OptionError, match="device_assign_map has no group 'b'"):
        Graph(net).apply("PlaceDevice", device_group_attr_key="group",
                         device_assign_map={"a": "cpu:0"}, device_copy_op="copy")


@st.composite
def elementwise_graphs(draw):
    values = [Variable("x", shape=(4,)), Variable("y", shape=(8,))]
    for _ in range(draw(st.integers(1, 12))):
        source = values[draw(st.integers(0, len(values) - 1))]
        kind = draw(st.sampled_from(["exp", "relu", "__mul_scalar__", "elemwise_add"]))
        if kind == "elemwise_add":
            values.append(op.elemwise_add(source, op.relu(source)))
        elif kind == "__mul_scalar__":
            values.append(source * 2.0)
        else:
            values.append(getattr(op, kind)(source))
    return Group(values[2 + draw(st.integers(0, len(values) - 3)):])


@given(net=elementwise_graphs())
@settings(max_examples=40, deadline=None, derandomize=True, database=None)
def test_no_storage_is_overwritten_before_its_last_use(net):
    graph = Graph(net).apply("InferShape", "InferType", "PlanMemory",
                             dtype_inputs={"x": "float32", "y": "float32"})
    index, storage = graph.index(), graph.attrs["storage_id"]
    holds: dict[int, int] = {}
    for number, node in enumerate(index.nodes):
        for entry in node.inputs:
            read = index.entry_id(entry)
            assert storage[read] < 0 or holds[storage[read]] == read
        first = index.node_row_ptr[number]
        if not node.is_variable:
            holds[storage[first]] = first
    for read in index.output_ids:
        assert holds[storage[read]] == read
    each = [4 * int(np.prod(s)) for s, i in zip(graph.attrs["shape"], storage, strict=True)
            if i >= 0]
    assert max(each) <= graph.attrs["storage_allocated_bytes"] <= sum(each)


def test_the_printed_graph_joins_attributes():
    net = op.exp(Variable("x", shape=(2, 3)), name="e")
    graph = Graph(net).apply("InferShape", "PrintGraphIR", join_entry_attrs=["shape"])
    assert graph.attrs["graphir"] == (
        "%0 shape=(2, 3) = variable // x: __shape__='(2, 3)'\n"
        "%1 shape=(2, 3) = exp(%0) // e\nreturn %1\n")


@pytest.mark.slow
def test_a_network_goes_through_the_compiler_s_passes():
    graph = Graph(convnet(1)).apply("InferShape", "InferType", dtype_inputs={"data": "float32"})
    index = graph.index()
    params = {index.nodes[i].name: RNG.uniform(
        0.5, 1, graph.attrs["shape"][index.node_row_ptr[i]]).astype(np.float32)
        for i in index.input_nodes if index.nodes[i].name != "data"}
    x = RNG.normal(size=(1, 3, 8, 8)).astype(np.float32)
    expected = evaluate(to_module(graph.outputs, params=params), [x])
    simple = graph.with_attrs(params=params).apply("SimplifyInference")
    assert "nn.batch_norm" not in simple.symbol.debug_str()
    folded = simple.apply("InferShape", "InferType", "FoldScaleAxis")
    assert "multiply" not in folded.symbol.debug_str()
    assert folded.symbol.list_input_names()[0] == "data"
    compiled = folded.apply("InferShape", "InferType", "GraphFusePartition", "GraphFuseCompile",
                            target="cpu")
    assert 1 < len(kernels(compiled.attrs["fused"])) < len(op_calls(compiled.attrs["fused"]))
    np.testing.assert_allclose(compiled.attrs["module"](x), expected, rtol=1e-4, atol=1e-6)
    for pass_, attrs in (("AlterOpLayout", {"target": "cpu"}),
                         ("CorrectLayout", {"layouts": ["nn.conv2d:NHWC:HWIO"]})):
        other = folded.apply("InferShape", "InferType", pass_, **attrs)
        mod = to_module(other.outputs, params=other.attrs["params"])
        assert op_calls(mod) != op_calls(to_module(folded.outputs, params=folded.attrs["params"]))
        np.testing.assert_allclose(evaluate(mod, [x]), expected, rtol=1e-4, atol=1e-6)


def test_scales_move_into_the_parameters_of_a_symbol():
    """The same passes without compiling."""
    x = Variable("x", shape=(2, 3))
    net = op.relu(op.batch_norm(op.dense(x, units=4, use_bias=False, name="fc"), name="bn"))
    graph = Graph(net).apply("InferShape", "InferType", dtype_inputs={"x": "float32"})
    index = graph.index()
    params = {index.nodes[i].name: RNG.uniform(
        0.5, 1, graph.attrs["shape"][index.node_row_ptr[i]]).astype(np.float32)
        for i in index.input_nodes if index.nodes[i].name != "x"}
    value = RNG.normal(size=(2, 3)).astype(np.float32)
    expected = evaluate(to_module(graph.outputs, params=params), [value])
    folded = graph.with_attrs(params=params).apply("SimplifyInference", "InferShape", "InferType",
                                                   "FoldScaleAxis")
    assert "multiply" not in folded.symbol.debug_str()
    after = folded.apply("InferShape", "InferType", "GraphFusePartition")
    got = evaluate(to_module(folded.outputs, params=folded.attrs["params"]), [value])
    np.testing.assert_allclose(got, expected, rtol=1e-5)
    np.testing.assert_allclose(evaluate(after.attrs["fused"], [value]), expected, rtol=1e-5)


def test_what_parameters_determine_is_computed_before():
    w = Variable("w", shape=(2, 3))
    net = op.elemwise_mul(Variable("x", shape=(2, 3)), op.exp(w, name="e"), name="y")
    graph = Graph(net).apply("PrecomputePrune", param_name_list=["w"])
    assert graph.symbol.list_input_names() == ["x", "e_output0"]
    assert graph.attrs["output_names"] == ["e_output0"]
    value, x = RNG.normal(size=(2, 2, 3)).astype(np.float32)
    before = evaluate(to_module(graph.attrs["precompute_graph"].outputs), [value])
    shapes = {"e_output0": before.shape}
    got = evaluate(to_module(graph.outputs, shapes=shapes), [x, before])
    np.testing.assert_array_equal(got, evaluate(to_module(net.entries), [x, value]))


def test_gradients_are_symbols():
    x, w = Variable("x", shape=(2, 3)), Variable("w", shape=(4, 3))
    net = op.sum(op.tanh(op.dense(x, w, units=4, use_bias=False)))
    graph = Graph(net).apply("Gradient", grad_ys=[0], grad_xs=[w, "x"])
    got = weft.compile(to_module(graph.outputs))
    values = {n: RNG.normal(size=s).astype(np.float32) for n, s in
              (("x", (2, 3)), ("w", (4, 3)))}
    slopes = 1 - np.tanh(values["x"] @ values["w"].T) ** 2
    dw, dx = got(**values)
    np.testing.assert_allclose(dw, slopes.T @ values["x"], rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(dx, slopes @ values["w"], rtol=1e-4, atol=1e-6)


def test_from_module_reads_what_passes_leave():
    symbol, params = from_module(to_module(convnet(1).entries))
    assert params == {}
    assert symbol.list_output_names() == ["sm_output"]
