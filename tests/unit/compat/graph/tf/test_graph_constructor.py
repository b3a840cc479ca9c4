"""Counterparts of TensorFlow's ``graph_constructor_test``, case by case (names as there).

Its test operators are functions of a library here. Without a counterpart:

* ``ImportGraphDef_DefaultAttrs``: definitions of operators are weft's; a converter has its defaults
  in code, and nodes keep the attributes of the file.
* ``ImportGraphDef_DeprecatedOps``: no operator is deprecated by version.
* ``ImportGraphDef_ShapeWhitelist``: there is no ``Barrier``, and no list of exceptions.
* ``ImportGraphDef_InputMapDuplicateNodeNames``: a graph never has two nodes of one name.
* ``ImportGraphDef_InputMapWithMissingEntries``, ``ControlDepsErrors`` about unknown names: both
  take nodes and tensors, which belong to a graph or not.
* ``ReturnTensorsErrors`` about null and filled result lists: results are returned.
* ``GraphDefVersionUsedForShapeInference``, ``ImportGraphDefProvidedShapeRefinerVersions``: type
  inference is the same for all versions.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import weft
from weft.compat.graph import (
    ArgDef,
    FunctionDef,
    Graph,
    Library,
    NodeDef,
    Versions,
    fixup_source_and_sink_edges,
    import_graph,
)
from weft.compat.graph.versions import CURRENT
from weft.compat.graphdef import parse_graph_def
from weft.ir.dtype import DType
from weft.support.errors import InvalidModelError, UnsupportedModelError, WeftError

F32, I32 = DType.of("float32"), DType.of("int32")


def const(name: str) -> NodeDef:
    return NodeDef(name, "Const", attrs={"dtype": F32, "value": np.asarray(1, np.float32)})


def operator(name, inputs, nodes, *results, dtype=F32) -> FunctionDef:
    args = tuple(ArgDef(i, dtype) for i in inputs)
    outs = tuple(ArgDef(f"o{i}", F32) for i in range(len(results)))
    return FunctionDef(name, args, outs, tuple(nodes), dict(zip(
        (o.name for o in outs), results, strict=True)))


LIBRARY = Library({f.name: f for f in (
    operator("ABC", (), ()),
    operator("TestParams", (), [const("c")], "c:output:0"),
    operator("TestInput", (), [const("c"), const("d")], "c:output:0", "d:output:0"),
    operator("TestMul", "ab", [NodeDef("m", "Mul", ("a", "b"))], "m:z:0"),
    operator("TestInt", "a", (), dtype=I32),
    operator("TestOneInputTwoOutputs", "x", [NodeDef("n", "Neg", ("x",))], "n:y:0", "x"),
)})


def parsed(text: str):
    return dataclasses.replace(parse_graph_def(text), library=LIBRARY)


def expect_ok(text: str, into: Graph | None = None, **options):
    graph = Graph() if into is None else into
    results = import_graph(parsed(text), graph, **options)
    return results if into is not None else graph


def description(graph: Graph):
    return ([(n.id, n.definition()) for n in graph.op_nodes], [str(e) for e in graph.edges],
            graph.versions, set(graph.library.functions))


def expect_error(text: str, match: str, into: Graph | None = None, error=InvalidModelError,
                 **options) -> None:
    graph = Graph() if into is None else into
    before = description(graph)
    with pytest.raises(error, match=match):
        import_graph(parsed(text), graph, **options)
    assert description(graph) == before


def edges(graph: Graph) -> set[str]:
    return {str(e) for e in graph.edges if e.src.is_op and e.dst.is_op}


def names(graph: Graph) -> list[str]:
    return [n.name for n in graph.op_nodes]


@pytest.mark.parametrize("name", ["a:b", "_abc", r"a\\b", "/a", "-a"])
def test_invalid_node_name(name):
    expect_error(f"node {{ name: '{name}' op: 'ABC' }}", "invalid node name|invalid name")


@pytest.mark.parametrize("name", ["a-bc_", "a-B.0/.c_", "0123", ".0123"])
def test_valid_node_name(name):
    assert names(expect_ok(f"node {{ name: '{name}' op: 'ABC' }}")) == [name]


def test_invalid_source_node_name():
    expect_error("node { name: 'W1' op: 'TestParams' } node { name: 'input' op: 'TestInput' }"
                 "node { name: 't1' op: 'TestMul' input: 'W999' input: 'input' }",
                 "1 input of nodes that do not exist\n.*\n.*t1 .TestMul. reads 'W999'")


def test_invalid_source_node_index():
    expect_error("node { name: 'W1' op: 'TestParams' } node { name: 'input' op: 'TestInput' }"
                 "node { name: 't1' op: 'TestMul' input: [ 'W1:1', 'input:1' ] }",
                 "node 't1' reads 'W1:1', which does not exist")


def test_graph_with_cycle():
    expect_error("node { name: 'input' op: 'TestInput' }"
                 "node { name: 't1' op: 'TestMul' input: [ 'input:0', 't2' ] }"
                 "node { name: 't2' op: 'TestMul' input: [ 'input:1', 't1' ] }", "has a cycle")


def scalar(name: str, value: int, *inputs: str) -> str:
    read = "".join(f"input: '{i}' " for i in inputs)
    return f"""node {{ name: '{name}' op: 'Const' {read}
        attr {{ key: 'dtype' value {{ type: DT_INT32 }} }}
        attr {{ key: 'value' value {{ tensor {{ dtype: DT_INT32 int_val: {value}
                                               tensor_shape {{ }} }} }} }} }}"""


# i = 0; while i < 10: i = i + 1
LOOP = scalar("Const", 0) + """
    node { name: 'while/Enter' op: 'Enter' input: 'Const'
           attr { key: 'frame_name' value { s: 'while/while/' } }
           attr { key: 'is_constant' value { b: false } }
           attr { key: 'parallel_iterations' value { i: 10 } } }
    node { name: 'while/Merge' op: 'Merge' input: 'while/Enter' input: 'while/NextIteration'
           attr { key: 'N' value { i: 2 } } }
    """ + scalar("while/Less/y", 10, "^while/Merge") + """
    node { name: 'while/Less' op: 'Less' input: 'while/Merge' input: 'while/Less/y' }
    node { name: 'while/LoopCond' op: 'LoopCond' input: 'while/Less' }
    node { name: 'while/Switch' op: 'Switch' input: 'while/Merge' input: 'while/LoopCond'
           attr { key: '_class' value { list { s: 'loc:@while/Merge' } } } }
    node { name: 'while/Identity' op: 'Identity' input: 'while/Switch:1' }
    """ + scalar("while/Add/y", 1, "^while/Identity") + """
    node { name: 'while/Add' op: 'Add' input: 'while/Identity' input: 'while/Add/y' }
    node { name: 'while/NextIteration' op: 'NextIteration' input: 'while/Add' }
    node { name: 'while/Exit' op: 'Exit' input: 'while/Switch' }
    versions { producer: 11 }"""


def test_graph_with_ok_cycle():
    graph = expect_ok(LOOP)
    assert weft.compile(graph, outputs=["while/Exit"])() == 10


def test_import_graph_def_with_cycle():
    graph = Graph()
    expect_ok(LOOP, graph, prefix="import", return_tensors=["while/Exit"])
    assert weft.compile(graph, outputs=["import/while/Exit"])() == 10


def test_import_graph_that_uses_constant_value_from_inside_loop():
    """The operand that must be constant is a loop variable: imported, but not lowered."""
    text = LOOP.replace("op: 'Add' input: 'while/Identity' input: 'while/Add/y'",
                        "op: 'Fill' input: 'while/Identity' input: 'while/Add/y'")
    graph = expect_ok(text)
    with pytest.raises(WeftError):
        graph.to_module(["while/Exit"])


def test_type_mismatch():
    expect_error("node { name: 'input' op: 'TestInput' }"
                 "node { name: 'int' op: 'TestInt' input: [ 'input' ] }", "has the wrong type")


def test_empty_graph():
    graph = expect_ok("")
    assert (len(graph), graph.versions) == (0, Versions(0, 0))


def test_version_graph():
    graph = expect_ok(f"versions {{ producer: {CURRENT} min_consumer: 0 }}")
    assert graph.versions == Versions(CURRENT, 0)


def test_low_high_and_bad_version():
    expect_error("versions { producer: -1 }", "unknown producer")
    expect_error(f"versions {{ min_consumer: {CURRENT + 1} }}", "needs a newer reader")
    expect_error(f"versions {{ producer: {CURRENT + 1} bad_consumers: {CURRENT} }}",
                 f"refuses readers of version {CURRENT}")


def test_simple_model():
    graph = expect_ok("node { name: 'W1' op: 'TestParams' } node { name: 'input' op: 'TestInput' }"
                      "node { name: 't1' op: 'TestMul' input: [ 'W1', 'input:1' ] }")
    assert names(graph) == ["W1", "input", "t1"]
    assert edges(graph) == {"W1:0 -> t1:0", "input:1 -> t1:1"}


CONTROL = ("node { name: 'W1' op: 'TestParams' } "
           "node { name: 'input' op: 'TestInput' input: [ '^W1' ] }"
           "node { name: 't1' op: 'TestMul' input: [ 'W1', 'input:1' ] }")


def test_simple_model_with_control_edges():
    graph = expect_ok(CONTROL + "node { name: 't2' op: 'TestMul' input: ['W1','input:1','^t1'] }")
    assert edges(graph) == {"W1:0 -> t1:0", "input:1 -> t1:1", "W1:0 -> t2:0", "input:1 -> t2:1",
                            "^W1 -> input", "^t1 -> t2"}


def test_error_control_edge_before_real_input():
    expect_error(CONTROL + "node { name: 't2' op: 'TestMul' input: ['W1','^t1','input:1'] }",
                 "node 't2' has the data input 'input:1' behind a control input")


FIVE = """node { name: 'A' op: 'TestParams' } node { name: 'X' op: 'TestParams' }
    node { name: 'B' op: 'TestOneInputTwoOutputs' input: 'A'
           attr { key: '_class' value { list { s: 'loc:@A' } } } }
    node { name: 'C' op: 'TestOneInputTwoOutputs' input: 'B:1' input: '^X' }
    node { name: 'D' op: 'TestMul' input: 'B:0' input: 'C:0' }"""


def test_import_graph_def():
    graph = expect_ok("")
    assert (graph.num_nodes, graph.num_edges) == (2, 1)
    expect_ok(FIVE, graph)
    fixup_source_and_sink_edges(graph)
    assert (graph.num_nodes, graph.num_edges) == (7, 9)
    assert graph.find_node("B").colocated_with == ("A",)
    once = {"A:0 -> B:0", "B:1 -> C:0", "B:0 -> D:0", "C:0 -> D:1", "^X -> C"}
    assert edges(graph) == once
    expect_error(FIVE, "has a node 'A' already", graph)
    expect_ok(FIVE, graph, prefix="import")
    fixup_source_and_sink_edges(graph)
    assert (graph.num_nodes, graph.num_edges) == (12, 17)
    assert graph.find_node("import/B").colocated_with == ("import/A",)
    assert "import/A:0 -> import/B:0" in edges(graph)
    ends = {str(e) for e in graph.edges if not (e.src.is_op and e.dst.is_op)}
    assert ends == {"^_SOURCE -> _SINK", *(f"^_SOURCE -> {p}{n}" for p in ("", "import/")
                                           for n in "AX"), "^D -> _SINK", "^import/D -> _SINK"}


def test_uniquify():
    graph = Graph()
    text = "node { name: 'A' op: 'TestParams' } node { name: 'A_1' op: 'TestParams' }"
    expect_ok(text, graph)
    expect_ok(text, graph, uniquify_names=True)
    assert names(graph) == ["A", "A_1", "A_2", "A_1_1"]
    expect_ok(text, graph, prefix="p", uniquify_prefix=True)
    expect_ok(text, graph, prefix="p", uniquify_prefix=True)
    expect_ok(text, graph, prefix="A", uniquify_prefix=True)
    assert names(graph)[4:] == ["p/A", "p/A_1", "p_1/A", "p_1/A_1", "A_3/A", "A_3/A_1"]


def test_import_graph_def_versioning():
    for text, match in (("producer: -1", "unknown producer"),
                        (f"min_consumer: {CURRENT + 1}", "newer reader"),
                        (f"bad_consumers: {CURRENT}", "refuses readers")):
        expect_error(f"versions {{ {text} }}", match)
    graph = Graph()
    import_graph(Graph(), graph)
    assert graph.versions == Versions(CURRENT)
    expect_ok(f"versions {{ min_consumer: 2 bad_consumers: {CURRENT - 1} }}", graph)
    assert graph.versions == Versions(0, 2, (CURRENT - 1,))


def test_graph_def_version_merging_during_import():
    graph = Graph()
    expect_ok("versions { producer: 15 min_consumer: 5 bad_consumers: [2, 3] }", graph)
    assert graph.versions == Versions(15, 5, (2, 3))
    expect_ok("versions { producer: 10 min_consumer: 8 bad_consumers: [1, 3] }", graph)
    assert graph.versions == Versions(10, 8, (1, 2, 3))
    expect_ok("versions { producer: 20 min_consumer: 7 }", graph)
    assert graph.versions == Versions(10, 8, (1, 2, 3))


def test_copy_graph():
    graph = Graph()
    graph.versions = Versions(CURRENT - 1, CURRENT - 2, (CURRENT + 17,))
    assert graph.copy().versions == graph.versions


def two_inputs() -> Graph:
    return expect_ok("node { name: 'input' op: 'TestInput' }")


MAPPED = """node { name: 'new_input' op: 'TestInput' }
    node { name: 't1' op: 'TestMul' input: [ 'new_input:0', 'new_input:1' ] }
    node { name: 't2' op: 'TestMul' input: [ 't1:0', 't1:0' ] }"""


def test_import_graph_def_input_map():
    graph = two_inputs()
    swapped = {"new_input:0": graph.tensor("input:1"), "new_input:1": graph.tensor("input:0")}
    results = expect_ok(MAPPED, graph, input_map={**swapped, "t9": graph.tensor("input")})
    assert names(graph) == ["input", "new_input", "t1", "t2"]
    assert edges(graph) == {"input:1 -> t1:0", "input:0 -> t1:1", "t1:0 -> t2:0", "t1:0 -> t2:1"}
    assert graph.find_node("t1").definition().inputs == ("input:1", "input")
    assert results.unused_input_map_keys == ("t9",)
    fresh = two_inputs()
    expect_ok(MAPPED, fresh, skip_mapped_nodes=True, input_map={
        name: fresh.tensor(t.name) for name, t in swapped.items()})
    assert names(fresh) == ["input", "t1", "t2"]


def test_import_graph_def_input_map_with_prefix():
    graph = expect_ok("node { name: 'input' op: 'TestInput' } "
                      "node { name: 'unmapped' op: 'TestInput' }")
    one = graph.tensor("input")
    expect_ok("""node { name: 'input' op: 'TestInput' } node { name: 'unmapped' op: 'TestInput' }
        node { name: 't1' op: 'TestMul' input: [ 'input:0', 'input:1' ] }
        node { name: 't3' op: 'TestMul' input: [ 'unmapped:0', 'unmapped:1' ] }""",
              graph, prefix="import", input_map={"input:0": one, "input:1": one})
    assert graph.find_node("import/t1").definition().inputs == ("input", "input")
    assert graph.find_node("import/t3").definition().inputs == \
        ("import/unmapped", "import/unmapped:1")
    assert "import/input" in names(graph)


def test_import_graph_def_input_map_with_control_edges():
    graph = expect_ok("node { name: 'W1' op: 'TestParams' }")
    w1 = graph.find_node("W1")
    expect_ok("""node { name: 'W2' op: 'TestParams' } node { name: 'W3' op: 'TestParams' }
        node { name: 'input' op: 'TestInput' input: [ '^W2' ] }
        node { name: 't1' op: 'TestOneInputTwoOutputs' input: [ 'W2' ] }
        node { name: 't2' op: 'TestOneInputTwoOutputs' input: [ 'input', '^W2', '^W3' ] }""",
              graph, input_map={"^W2": w1, "^W3": w1})
    assert edges(graph) == {"^W1 -> input", "W2:0 -> t1:0", "^W1 -> t2", "input:0 -> t2:0"}
    assert len(graph.find_node("t2").in_edges) == 2
    expect_ok("node { name: 'W1' op: 'TestParams' } "
              "node { name: 'input' op: 'TestInput' input: [ '^W1' ] }", graph, prefix="import",
              input_map={"^W1": w1})
    assert graph.find_node("import/input").definition().inputs == ("^W1",)


def test_import_graph_def_input_map_with_bad_control_edge():
    text = ("node { name: 'W2' op: 'TestParams' } "
            "node { name: 'input' op: 'TestInput' input: [ '^W2' ] }")
    graph = expect_ok("node { name: 'W1' op: 'TestParams' }")
    expect_error(text, r"input_map maps '\^W2' to a Tensor", graph,
                 input_map={"^W2": graph.tensor("W1")})
    expect_error(text, "input_map maps 'W2:0' to a Node", graph,
                 input_map={"W2:0": graph.find_node("W1")})
    expect_error(text, "not part of this graph", graph,
                 input_map={"W2:0": Graph().constant(1.0)})


def test_import_graph_def_input_map_with_invalid_node_index():
    graph = two_inputs()
    bad = dataclasses.replace(graph.tensor("input"), index=3)
    expect_error(MAPPED, "there is no tensor 'input:3'", graph, input_map={"new_input:0": bad})


def test_import_graph_def_return_tensors():
    graph = Graph()
    results = expect_ok("node { name: 'input' op: 'TestInput' }"
                        "node { name: 't1' op: 'TestMul' input: ['input:0', 'input:1'] }", graph,
                        return_tensors=["input:1", "t1", "input:0"], return_nodes=["t1"])
    assert [t.name for t in results.return_tensors] == ["input:1", "t1:0", "input:0"]
    assert [n.name for n in results.return_nodes] == ["t1"]
    results = expect_ok("node { name: 'new_input' op: 'TestInput' }", graph, prefix="import",
                        input_map={"new_input:1": graph.tensor("input")},
                        return_tensors=["new_input:0", "new_input:1"])
    assert [t.name for t in results.return_tensors] == ["import/new_input:0", "input:0"]


def test_import_graph_def_return_tensors_errors():
    text = "node { name: 'new_input' op: 'TestInput' }"
    expect_error(text, "no tensor 'W1' to return", return_tensors=["W1"])
    expect_error(text, "no tensor 'new_input:2' to return", return_tensors=["new_input:2"])
    expect_error(text, "no node 'W1' to return", return_nodes=["W1"])


def test_import_graph_def_control_deps():
    graph = expect_ok("node { name: 'W1' op: 'TestParams' } node { name: 'W2' op: 'TestParams' }")
    w1, w2 = (graph.find_node(n) for n in ("W1", "W2"))
    expect_ok("""node { name: 'W1' op: 'TestParams' } node { name: 'input' op: 'TestInput' }
        node { name: 'input2' op: 'TestInput' input: [ '^W1' ] }
        node { name: 't1' op: 'TestMul' input: [ 'input:0', 'input:1' ] }""", graph,
              prefix="import", control_dependencies=[w1, w2], input_map={"^W1": w1})
    for name in ("W1", "input", "input2"):
        assert graph.find_node(f"import/{name}").definition().inputs == ("^W1", "^W2")
    assert graph.find_node("import/t1").definition().inputs == ("import/input", "import/input:1")


def test_import_graph_def_control_deps_with_cycle():
    """A back edge must come from NextIteration here; the control edge goes to one node of it."""
    graph = expect_ok("node { name: 'W1' op: 'TestParams' } node { name: 'input' op: 'TestInput' }")
    text = """node { name: 'new_input' op: 'TestInput' }
        node { name: 'merge' op: 'Merge' input: [ 'new_input:0', 'next' ] }
        node { name: 't1' op: 'TestMul' input: [ 'merge:0', 'merge:0' ] }"""
    back = "node { name: 'next' op: 'NextIteration' input: 't1' }"
    options = {"control_dependencies": [graph.find_node("W1")],
               "input_map": {"new_input:0": graph.tensor("input")}}
    expect_error(text.replace("next", "t1"), "has a cycle", graph, **options)
    expect_ok(text + back, graph, **options)
    assert graph.find_node("t1").definition().inputs == ("merge", "merge")


NEGATED = """node { name: 'I' op: 'Neg' input: 'Root'
    attr { key: 'T' value { type: DT_INT64 } } }"""
COLOCATED = """node { name: 'B' op: 'TestParams'
    attr { key: '_class' value { list { s: 'loc:@Q' } } } }"""
DECLARED = """node { name: 'B' op: 'L2Loss' input: 'Root'
    attr { key: '_output_shapes' value { list { shape { dim { size: 43 } } } } } }"""


def test_import_graph_def_errors_do_not_change_the_graph():
    graph = expect_ok("node { name: 'scope/A' op: 'TestParams' }")
    root = "node { name: 'Root' op: 'TestParams' }"
    for text, match, options in (
        ("node { name: 'scope/A' op: 'TestParams' }", "has a node 'scope/A' already", {}),
        ("node { name: '!B' op: 'TestParams' }", "invalid node name '!B'", {}),
        (root, "invalid node name '!bad'", {"prefix": "!bad"}),
        ("node { name: 'B' op: 'TestOneInputTwoOutputs' input: 'C' }", "do not exist", {}),
        (root + NEGATED, "does not have the type", {}),
        (root + "node { name: 'B' op: 'TestOneInputTwoOutputs' input: 'Root:1' }",
         "which does not exist", {}),
        (root + "node { name: 'B' op: 'TestMul' input: 'Root' }", "takes 2 arguments", {}),
        ("node { name: 'B' op: 'TestMul' }", "takes 2 arguments", {}),
        (COLOCATED, "colocated with an unknown node 'Q'", {}),
        (root + DECLARED, "_output_shapes attribute", {}),
    ):
        expect_error(text, match, graph, **options)
    expect_error("node { name: 'B' op: 'SomeUnknownOp' }", "unknown operator 'SomeUnknownOp'",
                 graph, UnsupportedModelError)
    expect_ok(COLOCATED, graph, validate_colocation_constraints=False)


FUNCTIONS = """
    node { name: 'p' op: 'Placeholder' attr { key: 'dtype' value { type: DT_FLOAT } }
           attr { key: 'shape' value { shape { } } } }
    node { name: 'q' op: 'Placeholder' attr { key: 'dtype' value { type: DT_FLOAT } }
           attr { key: 'shape' value { shape { } } } }
    node { name: 'y' op: 'OUTER' input: 'p' input: 'q' }
    library {
      function { signature { name: 'Foo' input_arg { name: 'x' type: DT_FLOAT }
                   input_arg { name: 'y' type: DT_FLOAT }
                   output_arg { name: 'add' type: DT_FLOAT } }
        node_def { name: 'add' op: 'Add' input: 'x' input: 'y'
                   attr { key: 'T' value { type: DT_FLOAT } } }
        ret { key: 'add' value: 'add:z:0' } }
      function { signature { name: 'Outer' input_arg { name: 'x' type: DT_FLOAT }
                   input_arg { name: 'y' type: DT_FLOAT } output_arg { name: 'r' type: DT_FLOAT } }
        node_def { name: 'call' op: 'Foo' input: 'x' input: 'y' }
        ret { key: 'r' value: 'call:add:0' } }
      function { signature { name: 'FooGrad' input_arg { name: 'x' type: DT_FLOAT }
                   input_arg { name: 'y' type: DT_FLOAT } input_arg { name: 'dz' type: DT_FLOAT }
                   output_arg { name: 'dx' type: DT_FLOAT }
                   output_arg { name: 'dy' type: DT_FLOAT } }
        ret { key: 'dx' value: 'dz' } ret { key: 'dy' value: 'dz' } }
      gradient { function_name: 'Foo' gradient_func: 'FooGrad' } }
    versions { producer: 21 min_consumer: 12 }"""


@pytest.mark.parametrize("outer", ["Foo", "Outer"])
def test_import_graph_def_function_defs(outer):
    """Also ``NestedFunctionDefs``: imported functions run, and can be imported again."""
    graph, again = Graph(), Graph()
    import_graph(parse_graph_def(FUNCTIONS.replace("OUTER", outer)), graph)
    assert set(graph.library.functions) == {"Foo", "Outer", "FooGrad"}
    assert graph.library.gradients == {"Foo": "FooGrad"}
    import_graph(graph, again)
    assert weft.compile(again)(np.float32(1), np.float32(2)) == 3
