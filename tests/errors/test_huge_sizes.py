"""Small models that ask for huge tensors: no memory is taken, and errors name the tensor."""

from __future__ import annotations

import resource
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import weft
from tests.errors.bad_models import make_model
from weft.frontend.onnx import from_onnx
from weft.support.errors import AllocationError, InvalidInputError, WeftError
from weft.transform.passes.fold_constant import FoldConstant

HUGE = 1 << 40


def _int(name: str, *values: int) -> Any:
    return numpy_helper.from_array(np.array(values, np.int64), name)


def _scalar(name: str, value: Any, dtype: Any = np.int64) -> Any:
    return numpy_helper.from_array(np.array(value, dtype), name)


_NODES = {
    "OneHot": (["i", "depth", "v"], {}, [_scalar("i", 3), _scalar("depth", HUGE), _int("v", 0, 1)]),
    "ConstantOfShape": (["s"], {}, [_int("s", 1 << 30, 1)]),
    "Expand": (["x", "s"], {}, [_int("s", HUGE, 8)]),
    "Tile": (["x", "s"], {}, [_int("s", HUGE)]),
    "Range": (["a", "b", "c"], {}, [_scalar("a", 0), _scalar("b", HUGE), _scalar("c", 1)]),
    "Pad": (["x", "s"], {"mode": "wrap"}, [_int("s", HUGE, HUGE)]),
    "Resize": (["x", "", "", "s"], {}, [_int("s", HUGE)]),
    "RandomNormal": ([], {"shape": [HUGE, 8]}, []),
    "MelWeightMatrix": (["a", "b", "c", "d", "e"], {},
                        [_scalar("a", HUGE), _scalar("b", 16), _scalar("c", 8000),
                         _scalar("d", 0, np.float32), _scalar("e", 4000, np.float32)]),
    "HannWindow": (["s"], {}, [_scalar("s", HUGE)]),
}


@pytest.mark.parametrize("op", sorted(_NODES))
def test_a_node_of_a_huge_result_takes_no_memory(op: str) -> None:
    names, attrs, tensors = _NODES[op]
    node = helper.make_node(op, names, ["y"], **attrs)
    model = make_model([node], inputs=[("x", (8,))] if "x" in names else [], initializers=tensors)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(WeftError) as caught:
        from_onnx(model)
    assert caught.value.code != "E9000"
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000  # kB


def test_one_hot_compares_with_numbers_that_are_not_stored() -> None:
    depth = 100_000_000
    node = helper.make_node("OneHot", ["i", "depth", "v"], ["y"])
    mod = from_onnx(make_model([node], inputs=[("i", (1,))], dtype=TensorProto.INT64, initializers=[
        _scalar("depth", depth), _scalar("v", [0, 1], np.float32)]))
    text = weft.compile(mod).as_text("lowered")
    assert f"stop={depth}" in text


def test_one_hot_of_narrow_indices_and_a_deep_result() -> None:
    """Class 261 is not class 5 of uint8."""
    node = helper.make_node("OneHot", ["i", "depth", "v"], ["y"])
    model = make_model([node], inputs=[("i", (2,))], dtype=TensorProto.UINT8,
                       initializers=[_scalar("depth", 300), _scalar("v", [0, 1], np.float32)])
    y = weft.compile(from_onnx(model))(np.array([5, 250], np.uint8))
    assert np.argwhere(y == 1).tolist() == [[0, 5], [1, 250]]


@pytest.mark.parametrize("text", [
    "def @main() { ones(shape=(1099511627776, 8)) }",
    "def @main(%x: Tensor[(8,), float32]) { broadcast_to(%x, shape=(4611686018427387904, 8)) }",
    "def @main(%x: Tensor[(8,), float32]) { reverse(tile(%x, reps=(1099511627776,)), axis=0) }",
])
def test_a_result_that_no_memory_holds(text: str) -> None:
    compiled = weft.compile(weft.parse(text))
    arguments = [np.ones(8, np.float32)] * len(compiled.inputs)
    with pytest.raises(AllocationError) as caught:
        compiled(*arguments)
    assert isinstance(caught.value, MemoryError)
    assert "Tensor[(" in str(caught.value)
    assert "bytes" in str(caught.value.got)


def test_sizes_at_run_time_that_no_memory_holds() -> None:
    compiled = weft.compile(weft.parse("""
        def @main(%x: Tensor[(n,), float32]) { broadcast_to(%x, shape=(400000000 * n, n)) }"""))
    with pytest.raises(AllocationError, match=r"output: Tensor\[\(40000000000, 100\), float32\]"):
        compiled(np.ones(100, np.float32))
    with pytest.raises(InvalidInputError, match="more memory than there are addresses"):
        compiled(np.ones(100_000, np.float32))


def test_a_huge_constant_is_not_folded() -> None:
    mod = weft.parse("def @main() { sum(ones(shape=(100000, 10000)), axis=(0,)) }")
    found = FoldConstant()(mod)
    assert "ones(shape=[100000, 10000])" in str(found)
    small = FoldConstant()(weft.parse("def @main() { sum(ones(shape=(100, 10)), axis=(0,)) }"))
    assert "ones" not in str(small)


def test_a_long_range_is_no_constant() -> None:
    node = helper.make_node("Range", ["a", "b", "c"], ["y"])
    mod = from_onnx(make_model([node], inputs=[], initializers=[
        _scalar("a", 0, np.float32), _scalar("b", 1e8, np.float32), _scalar("c", 1, np.float32)]))
    assert "arange(" in str(mod)


def test_a_range_without_end_is_refused() -> None:
    node = helper.make_node("Range", ["a", "b", "c"], ["y"])
    model = make_model([node], inputs=[], initializers=[
        _scalar("a", 0, np.float32), _scalar("b", np.inf, np.float32), _scalar("c", 1, np.float32)])
    with pytest.raises(WeftError, match="not finite"):
        from_onnx(model)


def test_a_tensor_beyond_the_memory_of_the_machine_is_refused_where_it_is_made():
    """Its sum needs no memory, and would take hours."""
    for make in (weft.ones, weft.zeros, lambda *size: weft.full(size, 2.0)):
        with pytest.raises(AllocationError, match="cannot allocate memory for") as caught:
            make(10**6, 10**6).sum()
        assert "4000000000000 bytes" in caught.value.got
    assert weft.ones(10, 10).expand(10**3, 10, 10).shape == (1000, 10, 10)
