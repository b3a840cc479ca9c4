"""Weights whose bytes do not fit, and weights in files that must not be read."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper

from tests.errors.bad_models import assert_refused, error_of, good_model, make_model
from weft.frontend.onnx import from_onnx
from weft.frontend.onnx.tensors import tensor_to_numpy
from weft.support.errors import InvalidModelError, UnsupportedModelError


def test_bytes_that_do_not_match_the_shape() -> None:
    model = good_model()
    model.graph.initializer[0].raw_data = b"\0" * 10
    error = error_of(lambda: from_onnx(model), InvalidModelError)
    assert "w" in str(error)


def tensor(**fields: object) -> TensorProto:
    return TensorProto(name="w", dims=[2, 3], data_type=TensorProto.FLOAT, **fields)


@pytest.mark.parametrize(
    ("proto", "unit", "expected", "got"),
    [
        (tensor(raw_data=b"\0" * 10), "bytes", 24, 10),
        (tensor(raw_data=b"\0" * 25), "bytes", 24, 25),
        (tensor(raw_data=b""), "bytes", 24, 0),
        (tensor(float_data=[1.0] * 5), "values", 6, 5),
        (tensor(), "values", 6, 0),
        (tensor(int64_data=[1] * 6), "values", 6, 0),
    ],
)
def test_length_of_the_data(proto: TensorProto, unit: str, expected: int, got: int) -> None:
    error = error_of(lambda: tensor_to_numpy(proto, None, "m.onnx"), InvalidModelError)
    assert error.what == "the data of initializer 'w' does not match its shape"
    assert error.where == "m.onnx"
    assert error.expected == f"{expected} {unit} for shape (2, 3)"
    assert error.got == f"{got} {unit}"


@pytest.mark.parametrize("dims", [[-1, 3], [2**62, 2**62], [2**40], [1] * 40])
def test_dimensions_that_cannot_be(dims: list[int]) -> None:
    proto = TensorProto(name="w", dims=dims, data_type=TensorProto.FLOAT)
    error = error_of(lambda: tensor_to_numpy(proto, None, "m.onnx"), InvalidModelError)
    assert "negative" in error.what or "too large" in error.what


def test_values_outside_their_type() -> None:
    proto = TensorProto(name="w", dims=[2], data_type=TensorProto.INT8, int32_data=[1, 200])
    error = error_of(lambda: tensor_to_numpy(proto, None, "m.onnx"), InvalidModelError)
    assert error.expected == "-128 to 127 for int8"


def test_segments() -> None:
    proto = tensor(raw_data=b"\0" * 24)
    proto.segment.begin = 0
    error_of(lambda: tensor_to_numpy(proto, None, "m.onnx"), UnsupportedModelError)


@pytest.mark.parametrize(
    "dtype",
    [
        "float32",
        "float64",
        "float16",
        "bfloat16",
        "int8",
        "uint8",
        "int16",
        "uint16",
        "int32",
        "uint32",
        "int64",
        "uint64",
        "bool",
    ],
)
@pytest.mark.parametrize("raw", [False, True])
def test_values_survive_every_encoding(dtype: str, raw: bool) -> None:
    code = getattr(TensorProto, {"float32": "FLOAT", "float64": "DOUBLE"}.get(dtype, dtype.upper()))
    values = np.array([0, 1, 1, 0, 3, 100]).astype(helper.tensor_dtype_to_np_dtype(code))
    data = values.tobytes() if raw else values.tolist()
    proto = helper.make_tensor("w", code, [2, 3], data, raw=raw)
    result = tensor_to_numpy(proto, None, "m.onnx")
    assert result.dtype == values.dtype
    np.testing.assert_array_equal(result, values.reshape(2, 3))


def test_nan_and_infinity_are_kept() -> None:
    values = np.float32([np.nan, np.inf, -np.inf, 0, 1, 2])
    proto = tensor(raw_data=values.tobytes())
    np.testing.assert_array_equal(tensor_to_numpy(proto, None, "m"), values.reshape(2, 3))


def external_model(location: str, **entries: str) -> ModelProto:
    model = good_model()
    weight = model.graph.initializer[0]
    weight.ClearField("raw_data")
    weight.data_location = TensorProto.EXTERNAL
    for key, value in {"location": location, **entries}.items():
        weight.external_data.add(key=key, value=value)
    return model


def saved(folder: Path, model: ModelProto) -> Path:
    path = folder / "model.onnx"
    path.write_bytes(model.SerializeToString())
    return path


def test_external_data_is_read(tmp_path: Path) -> None:
    (tmp_path / "w.bin").write_bytes(b"skip" + np.float32([5, 6, 7]).tobytes())
    module = from_onnx(saved(tmp_path, external_model("w.bin", offset="4", length="12")))
    np.testing.assert_array_equal(module["main"].body.args[1].data, [5, 6, 7])


@pytest.mark.parametrize(
    "location", ["../w.bin", "/etc/passwd", "sub/../../w.bin", "", ".", "C:\\w.bin", "w\0.bin"]
)
def test_external_path_that_leaves_the_folder(tmp_path: Path, location: str) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    (tmp_path / "w.bin").write_bytes(b"\0" * 12)
    path = saved(folder, external_model(location))
    assert_refused(
        path,
        InvalidModelError,
        f"""
        E0400 the external data of initializer 'w' points outside the folder of the model
          --> {path}
          expected: a relative path to a file in the model's folder
          got: {location!r}
          help: move the data file beside the model and save the model with its new location
    """,
    )


def test_external_link_that_leaves_the_folder(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    (tmp_path / "w.bin").write_bytes(b"\0" * 12)
    (folder / "w.bin").symlink_to(tmp_path / "w.bin")
    path = saved(folder, external_model("w.bin"))
    error = error_of(lambda: from_onnx(path), InvalidModelError)
    assert "points outside the folder" in error.what


def test_external_file_that_is_missing(tmp_path: Path) -> None:
    path = saved(tmp_path, external_model("w.bin"))
    assert_refused(
        path,
        InvalidModelError,
        f"""
        E0400 the external data of initializer 'w' is missing
          --> {path}
          expected: the file 'w.bin' in the model's folder
    """,
    )


def test_external_file_that_is_too_short(tmp_path: Path) -> None:
    (tmp_path / "w.bin").write_bytes(b"\0" * 8)
    path = saved(tmp_path, external_model("w.bin"))
    assert_refused(
        path,
        InvalidModelError,
        f"""
        E0400 the external data of initializer 'w' lies beyond the end of its file
          --> {path}
          expected: 12 bytes or more in w.bin
          got: 8 bytes
          help: the data file may be truncated; copy it again
    """,
    )


@pytest.mark.parametrize(("key", "value"), [("offset", "-4"), ("offset", "x"), ("length", "1e3")])
def test_external_numbers(tmp_path: Path, key: str, value: str) -> None:
    (tmp_path / "w.bin").write_bytes(b"\0" * 12)
    path = saved(tmp_path, external_model("w.bin", **{key: value}))
    error = error_of(lambda: from_onnx(path), InvalidModelError)
    assert error.what == f"the external data of initializer 'w' has a bad {key}"
    assert error.got == repr(value)


def test_external_length_that_does_not_match_the_shape(tmp_path: Path) -> None:
    (tmp_path / "w.bin").write_bytes(b"\0" * 64)
    path = saved(tmp_path, external_model("w.bin", length="16"))
    error = error_of(lambda: from_onnx(path), InvalidModelError)
    assert error.what == "the external data of initializer 'w' does not match its shape"
    assert (error.expected, error.got) == ("12 bytes for shape (3,)", "length = 16")


def test_external_data_of_a_model_in_memory() -> None:
    error = error_of(lambda: from_onnx(external_model("w.bin")), InvalidModelError)
    assert "passed in memory" in error.what


def test_initializer_that_contradicts_the_declared_input() -> None:
    node = helper.make_node("Add", ["x", "w"], ["y"])
    weight = helper.make_tensor("w", TensorProto.FLOAT, [3], [1, 2, 3])
    model = make_model([node], inputs=[("x", (2, 3)), ("w", (4,))], initializers=[weight])
    assert_refused(
        model,
        InvalidModelError,
        """
        E0400 initializer 'w' does not match its declaration as a graph input
          --> <ModelProto>
          expected: Tensor[(4,), float32]
          got: Tensor[(3,), float32]
    """,
    )
