"""A model cut in two is the model, whatever the order of its fields; damaged bytes are left."""

from __future__ import annotations

import numpy as np
import onnx
from google.protobuf.message import DecodeError
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from weft.frontend.onnx.wire import LARGE_BYTES, external_files, split_model


def model(sizes: list[int], external: tuple[str, ...] = ()) -> onnx.ModelProto:
    tensors = [numpy_helper.from_array(np.arange(size, dtype=np.float32), f"w{n}é")
               for n, size in enumerate(sizes)]
    for name in external:
        tensor = TensorProto(name=f"of {name}", data_type=TensorProto.FLOAT, dims=(2000,),
                             data_location=TensorProto.EXTERNAL)
        tensor.external_data.add(key="location", value=name)
        tensor.external_data.add(key="offset", value="0")
        tensors.append(tensor)
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", [], [
        helper.make_tensor_value_info("y", TensorProto.FLOAT, None)], tensors)
    return helper.make_model(graph)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(0, 3000), max_size=5))
def test_the_parts_are_the_model(sizes: list[int]) -> None:
    whole = model(sizes)
    data = whole.SerializeToString()
    split = split_model(memoryview(data))
    assert split is not None
    assert set(split.weights) == {f"w{n}é" for n, size in enumerate(sizes)
                                  if 4 * size >= LARGE_BYTES}
    rest = onnx.ModelProto.FromString(split.message)
    for tensor in rest.graph.initializer:
        if tensor.name in split.weights:
            assert not tensor.HasField("raw_data")
            tensor.raw_data = bytes(split.weights[tensor.name])
    assert rest == whole


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_damaged_bytes_are_cut_as_onnx_parses_them_or_left(data: st.DataObject) -> None:
    whole = bytearray(model([1200, 3]).SerializeToString())
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, 80) | st.integers(0, len(whole) - 1))
        whole[at] = data.draw(st.integers(0, 255))
    end = data.draw(st.integers(0, len(whole)) | st.just(len(whole)))
    split = split_model(memoryview(whole)[:end])
    try:
        parsed = onnx.ModelProto.FromString(bytes(whole[:end]))
    except DecodeError:
        parsed = None
    if split is None:
        return
    try:
        rest = onnx.ModelProto.FromString(split.message)
    except DecodeError:
        rest = None
    assert (rest is None) == (parsed is None)
    if rest is None or parsed is None:
        return
    for tensor in rest.graph.initializer:
        if tensor.name in split.weights and not tensor.HasField("raw_data"):
            tensor.raw_data = bytes(split.weights[tensor.name])
    assert rest == parsed


def test_files_of_external_data_are_found() -> None:
    def files(proto: onnx.ModelProto) -> tuple[str, ...] | None:
        return external_files(proto.SerializeToString())

    assert files(model([5])) == ()
    assert files(model([5], ("b.bin", "a/ü.bin", "b.bin"))) == ("a/ü.bin", "b.bin")
    named = model([5])
    named.graph.name = "location"  # not an entry
    assert files(named) is None
