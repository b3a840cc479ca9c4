"""Tensors of requests and responses: JSON, raw bytes, and everything that is neither."""

from __future__ import annotations

import contextlib
import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weft.runtime.dtypes import numpy_dtype
from weft.runtime.manifest import TensorSpec
from weft.serving.tensors import DATATYPES, encode_response, parse_infer_request
from weft.support.errors import InvalidInputError


def tensor(**fields) -> dict:
    return {"name": "x", "shape": [2, 2], "datatype": "FP32", "data": [1, 2, 3, 4], **fields}


def body(*inputs: dict, **fields) -> bytes:
    return json.dumps({"inputs": list(inputs), **fields}).encode()


@pytest.mark.parametrize("dtype", DATATYPES)
@pytest.mark.parametrize("binary", [False, True], ids=["json", "binary"])
def test_arrays_survive_a_request_and_a_response(dtype, binary):
    array = np.arange(6).reshape(2, 3).astype(numpy_dtype(dtype))
    spec = TensorSpec("x", dtype, (2, 3))
    asked = parse_infer_request(body(tensor(data=[[1, 2], [3, 4]]),
                                     parameters={"binary_data_output": binary}), None)
    content, split = encode_response({}, [spec], [array], asked)
    assert (split is not None) == binary
    sent = json.loads(content[:split])
    sent["inputs"] = sent.pop("outputs")
    raw = b"" if split is None else content[split:]
    header = json.dumps(sent).encode()
    found = parse_infer_request(header + raw, len(header) if binary else None).feeds["x"]
    assert found.dtype == array.dtype
    np.testing.assert_array_equal(found, array)
    assert found.flags.aligned


def test_nested_and_flat_values_are_the_same():
    flat = parse_infer_request(body(tensor()), None).feeds["x"]
    nested = parse_infer_request(body(tensor(data=[[1, 2], [3, 4]])), None).feeds["x"]
    np.testing.assert_array_equal(flat, nested)


@pytest.mark.parametrize(("sent", "message"), [
    (b"", "not JSON"), (b"{", "not JSON"), (b"\xff", "not JSON"), (b"[1]", "not a JSON object"),
    (b"[" * 100_000, "not JSON"), (b"1" * 5000, "not JSON"),
    (b"{}", "'inputs' is not a list"),
    (body(), "'inputs' is not a list"), (body(3), "an input is not a JSON object"),
    (body(tensor(), tensor()), "given twice"), (body(tensor(name=3)), "without a name"),
    (body(tensor(shape=[2, -1])), "invalid shape"), (body(tensor(shape=2)), "invalid shape"),
    (body(tensor(shape=[2, True])), "invalid shape"),
    (body(tensor(shape=[0, 10**12], data=[])), "invalid shape"),
    (body(tensor(datatype="FP31")), "unknown datatype"),
    (body(tensor(datatype="BYTES")), "unknown datatype"),
    (body(tensor(datatype=["FP32"])), "unknown datatype"),
    (body(tensor(data=[1, 2, 3])), "wrong number of values"), (body(tensor(data=4)), "no data"),
    (body(tensor(data=[[1, 2], [3]])), "cannot be read"),
    (body(tensor(data=[[1, 2, 3], [4, 5, 6]])), "wrong shape"),
    (body(tensor(data=[1, 2, 3, "4"])), "wrong dtype"),
    (body(tensor(data=[1, 2, 3, None])), "wrong dtype"),
    (body(tensor(data=[1, 2, 3, {}])), "wrong dtype"),
    (body(tensor(data=[1, 2, 3, 1e300])), "out of range"),
    (body(tensor(datatype="INT8", data=[1, 2, 3, 300])), "out of range"),
    (body(tensor(datatype="INT8", data=[1, 2, 3, 4.5])), "wrong dtype"),
    (body(tensor(datatype="BOOL")), "wrong dtype"),
    (body(tensor(parameters=3)), "parameters is not a JSON object"),
    (body(tensor(parameters={"shared_memory_region": "r"})), "shared memory"),
    (body(tensor(parameters={"binary_data_size": 16})), "ends within a tensor"),
    (body(tensor(parameters={"binary_data_size": 15})), "wrong number of bytes"),
    (body(tensor(), id=3), "not a string"), (body(tensor(), outputs=[3]), "not a JSON object"),
], ids=str)
def test_malformed_requests(sent, message):
    with pytest.raises(InvalidInputError, match=message):
        parse_infer_request(sent, None)


@pytest.mark.parametrize(("length", "tail", "message"), [
    (0, b"", "length of the JSON header"), (10_000, b"", "length of the JSON header"),
    (None, b"1234", "not JSON"), (-1, b"1234", "more bytes than its inputs")])
def test_malformed_headers(length, tail, message):
    sent = body(tensor())
    with pytest.raises(InvalidInputError, match=message):
        parse_infer_request(sent + tail, len(sent) if length == -1 else length)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(
        st.sampled_from(["name", "shape", "data", "parameters", "binary_data_size", "x"]), inner,
        max_size=4), max_leaves=8)


@settings(max_examples=200)
@given(st.data())
def test_no_request_ends_in_another_error(data):
    entry = tensor()
    for name in data.draw(st.sets(st.sampled_from([*entry, "parameters"]), max_size=2)):
        entry[name] = data.draw(VALUES)
    whole = {"inputs": [entry]}
    if data.draw(st.booleans()):
        whole[data.draw(st.sampled_from(["inputs", "outputs", "id", "parameters"]))] = \
            data.draw(VALUES)
    sent = bytearray(json.dumps(whole).encode())
    if data.draw(st.booleans()):
        sent[data.draw(st.integers(0, len(sent) - 1))] = data.draw(st.integers(0, 255))
    length = data.draw(st.none() | st.integers(0, len(sent) + 2))
    with contextlib.suppress(InvalidInputError):
        parse_infer_request(bytes(sent), length)
