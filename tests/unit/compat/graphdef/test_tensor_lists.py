"""Loops that read and write lists of tensors."""

from __future__ import annotations

import numpy as np
import pytest

from tests.unit.compat.graphdef.helpers import const
from weft.compat.graphdef import (
    ArgDef,
    ForeignType,
    FunctionDef,
    FunctionRef,
    GraphDef,
    Library,
    NodeDef,
    ShapeAttr,
    from_graphdef,
)
from weft.ir.dtype import DType
from weft.support.errors import InvalidModelError, UnsupportedModelError
from weft.transform.analysis.reference import evaluate

F32, I32, LIST = DType.of("float32"), DType.of("int32"), ForeignType("DT_VARIANT")
ARGS = (ArgDef("i", I32), ArgDef("from", LIST), ArgDef("to", LIST))
COND = FunctionDef("cond", ARGS, (ArgDef("goes_on", DType.of("bool")),),
                   (const("limit", np.int32(2)), NodeDef("less", "Less", ("i", "limit:output:0"))),
                   {"goes_on": "less:z:0"})
BODY = FunctionDef(
    "body", ARGS, (ArgDef("next", I32), ArgDef("same", LIST), ArgDef("written", LIST)),
    (const("one", np.int32(1)), const("shape", np.int32([-1, 2])),
     NodeDef("add", "AddV2", ("i", "one:output:0")),
     NodeDef("item", "TensorListGetItem", ("from", "i", "shape:output:0"),
             attrs={"element_dtype": F32}),
     NodeDef("twice", "AddV2", ("item:item:0", "item:item:0")),
     NodeDef("set", "TensorListSetItem", ("to", "i", "twice:z:0"), attrs={"element_dtype": F32})),
    {"next": "add:z:0", "same": "from", "written": "set:output_handle:0"})


def graph(element: list[int]) -> GraphDef:
    """Writes twice the first two of three elements of x to a list of three."""
    loop = {"cond": FunctionRef("cond"), "body": FunctionRef("body"), "T": (I32, LIST, LIST)}
    types = {"element_dtype": F32, "shape_type": I32}
    return GraphDef((
        NodeDef("x", "Placeholder", attrs={"dtype": F32, "shape": ShapeAttr((3, None, 2))}),
        const("zero", np.int32(0)), const("count", np.int32(3)),
        const("shape", np.array(element, np.int32) if element else np.int32(-1)),
        NodeDef("given", "TensorListFromTensor", ("x", "shape"), attrs=types),
        NodeDef("made", "TensorListReserve", ("shape", "count"), attrs=types),
        NodeDef("while", "While", ("zero", "given", "made"), attrs=loop),
        NodeDef("length", "TensorListLength", ("while:2",)),
        NodeDef("y", "TensorListStack", ("while:2", "shape"), attrs={"element_dtype": F32})),
        library=Library({"cond": COND, "body": BODY}))


@pytest.mark.parametrize("element", [[-1, 2], [1, 2]], ids=["unknown size", "known size"])
def test_a_loop_writes_a_list_whose_elements_it_gives_their_shape(element: list[int]) -> None:
    inputs = {"x": (3, "n", 2)} if element[0] < 0 else {"x": (3, 1, 2)}
    module = from_graphdef(graph(element), outputs=["y", "length"], inputs=inputs)
    x = np.arange(12 if element[0] < 0 else 6, dtype=np.float32).reshape(3, -1, 2)
    found, length = evaluate(module, [x])
    np.testing.assert_array_equal(found, x * np.float32([2, 2, 0]).reshape(3, 1, 1))
    assert length == 3


def test_lists_of_unknown_rank_or_of_other_ranks_are_refused() -> None:
    with pytest.raises(UnsupportedModelError, match="unknown rank"):
        from_graphdef(graph([]), outputs=["y"])
    with pytest.raises(InvalidModelError, match="rank of the list's elements"):
        from_graphdef(graph([2]), outputs=["y"])
