"""Sends and receives of partitions, tables of constants, iterators and queues."""

from __future__ import annotations

import numpy as np
import pytest

import weft
from tests.unit.compat.graphdef.helpers import const, placeholder
from weft.compat.graphdef import GraphDef, NodeDef, ShapeAttr, from_graphdef
from weft.ir.dtype import DType
from weft.support.errors import InvalidModelError, UnsupportedModelError

F32, I64 = DType.of("float32"), DType.of("int64")
X = np.float32([1, -2])


def rendezvous(name: str, device: str = "/cpu:0") -> dict[str, object]:
    return {"tensor_name": name.encode(), "send_device": "/cpu:0", "recv_device": device,
            "send_device_incarnation": 1}


def partitions(send: str, receive: str) -> list[NodeDef]:
    """y = relu(-x), where -x is on another device."""
    edge = rendezvous("edge_1_neg", "/gpu:0")
    return [placeholder("x", X), NodeDef("neg", "Neg", ("x",)),
            NodeDef("sent", send, ("neg",), attrs={"T": F32, **edge}),
            NodeDef("got", receive, attrs={"tensor_type": F32, **edge}),
            NodeDef("y", "Relu", ("got",))]


@pytest.mark.parametrize(("send", "receive"), [("_Send", "_Recv"), ("_HostSend", "_HostRecv"),
                                               ("Send", "Recv"), ("HostSend", "HostRecv")])
def test_partitions_are_one_graph_again(send, receive):
    nodes = partitions(send, receive)
    for order in (nodes, nodes[::-1]):
        assert weft.compile(from_graphdef(GraphDef(tuple(order))))(X).tolist() == [0, 2]


def test_control_edges_go_along():
    shape = {"dtype": F32, "shape": ShapeAttr((2,))}
    edge = rendezvous("edge")
    nodes = [placeholder("x", X), NodeDef("v", "VarHandleOp", attrs=shape),
             NodeDef("add", "AssignAddVariableOp", ("v", "x"), attrs={"dtype": F32}),
             NodeDef("sent", "_Send", ("x", "^add"), attrs={"T": F32, **edge}),
             NodeDef("got", "_Recv", attrs={"tensor_type": F32, **edge}),
             NodeDef("y", "ReadVariableOp", ("v", "^got"), attrs={"dtype": F32})]
    mod = weft.compile(from_graphdef(GraphDef(tuple(nodes)), outputs=["y"]),
                       state={"v/next": "v"})
    assert [mod(X).tolist(), mod(X).tolist()] == [[1, -2], [2, -4]]


def test_one_partition_alone():
    nodes = partitions("_Send", "_Recv")
    first = from_graphdef(GraphDef(tuple(nodes[:3])))
    assert first.attrs["output_names"] == ("neg",)
    second = GraphDef(tuple(nodes[3:]))
    assert weft.compile(from_graphdef(second, inputs={"got": (2,)}))(X).tolist() == [1, 0]
    with pytest.raises(UnsupportedModelError, match="'edge_1_neg' is received, and no node"):
        from_graphdef(second)
    twice = [*nodes, NodeDef("again", "_Send", ("x",), attrs=nodes[2].attrs)]
    with pytest.raises(InvalidModelError, match="'edge_1_neg' is sent twice"):
        from_graphdef(GraphDef(tuple(twice)))


OPERATORS = {"": ("HashTable", "LookupTableFind", "LookupTableSize"),
             "V2": ("HashTableV2", "LookupTableFindV2", "LookupTableSizeV2")}


def table(op: str, *, keys: object, values: object, new: str = "V2") -> list[NodeDef]:
    hash_table, find, size = OPERATORS[new]
    return [placeholder("x", np.zeros((2, 2), np.int64)), const("default", np.float32(-1)),
            NodeDef("table", hash_table), NodeDef("handle", "Identity", ("table",)),
            const("keys", keys), const("values", values),
            NodeDef("init", op + new, ("handle", "keys", "values")),
            NodeDef("y", find, ("handle", "x", "default")),
            NodeDef("n", size, ("table",))]


@pytest.mark.parametrize("new", ["", "V2"], ids=["references", "resources"])
@pytest.mark.parametrize("op", ["InitializeTable", "LookupTableImport"])
def test_tables_of_constants(op, new):
    keys = np.int64([30, -10, 20])
    nodes = table(op, keys=keys, values=np.float32([3, 1, 2]), new=new)
    mod = weft.compile(from_graphdef(GraphDef(tuple(nodes))))
    values, count = mod(np.int64([[20, 30], [-10, 21]]))
    assert values.tolist() == [[2, 3], [1, -1]]
    assert int(count) == 3
    empty = table(op, keys=keys[:0], values=np.float32([]), new=new)
    mod = weft.compile(from_graphdef(GraphDef(tuple(empty)), outputs=["y"]))
    assert mod().tolist() == [[-1, -1], [-1, -1]]


@pytest.mark.parametrize(("change", "message"), [
    (lambda n: n.pop(6), "no node initializes the table of a lookup"),
    (lambda n: n.append(NodeDef("init2", "InitializeTableV2", n[6].inputs)),
     "table 'table' is initialized twice"),
    (lambda n: n.__setitem__(4, const("keys", np.int64([1, 1, 2]))), "a key twice"),
    (lambda n: n.__setitem__(4, const("keys", np.int64([1, 2]))), "one key and one value"),
    (lambda n: n.__setitem__(4, placeholder("keys", np.int64([1, 2, 3]))), "are constants"),
], ids=["none", "two", "doubled", "shapes", "computed"])
def test_tables_that_are_refused(change, message):
    nodes = table("InitializeTable", keys=np.int64([1, 2, 3]), values=np.float32([1, 2, 3]))
    change(nodes)
    with pytest.raises((UnsupportedModelError, InvalidModelError), match=message):
        from_graphdef(GraphDef(tuple(nodes)), outputs=["y"])


@pytest.mark.parametrize(("op", "types"), [("IteratorGetNext", "output_types"),
                                           ("IteratorGetNextSync", "output_types"),
                                           ("QueueDequeueV2", "component_types")])
def test_what_iterators_and_queues_give_is_an_input(op, types):
    attrs = {types: (F32, F32), "output_shapes": (ShapeAttr((2,)), ShapeAttr((2,)))}
    nodes = [NodeDef("source", "OneShotIterator"), NodeDef("next", op, ("source",), attrs=attrs),
             NodeDef("y", "Sub", ("next", "next:1"))]
    mod = from_graphdef(GraphDef(tuple(nodes)), outputs=["y"])
    assert mod.attrs["input_names"] == ("next", "next_1")
    assert weft.compile(mod)(X, X / 2).tolist() == [0.5, -1]


@pytest.mark.parametrize("op", ["MutableHashTableV2", "QueueEnqueueV2", "StackPushV2",
                                "BarrierTakeMany"])
def test_other_resources_are_refused_by_name(op):
    with pytest.raises(UnsupportedModelError, match=f"operator {op}"):
        from_graphdef(GraphDef((NodeDef("resource", op),)), outputs=["resource"])
