"""Files that are no model: missing, empty, truncated, foreign."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import pytest

from tests.errors.bad_models import assert_refused, error_of, good_model
from weft.frontend.onnx import from_onnx
from weft.support.errors import InvalidModelError


def test_missing_file(tmp_path: Path) -> None:
    path = tmp_path / "none.onnx"
    assert_refused(
        path,
        InvalidModelError,
        f"""
        E0400 model file not found
          --> {path}
    """,
    )


def test_folder(tmp_path: Path) -> None:
    assert_refused(
        tmp_path,
        InvalidModelError,
        f"""
        E0400 the model path is a folder
          --> {tmp_path}
          help: name the .onnx file inside it
    """,
    )


def test_empty_file(tmp_path: Path) -> None:
    path = tmp_path / "empty.onnx"
    path.touch()
    assert_refused(
        path,
        InvalidModelError,
        f"""
        E0400 the model file is empty
          --> {path}
          got: 0 bytes
    """,
    )


def test_file_of_another_kind(tmp_path: Path) -> None:
    path = tmp_path / "page.onnx"
    path.write_text("<!DOCTYPE html><html>not found</html>")
    assert_refused(
        path,
        InvalidModelError,
        f"""
        E0400 the model file is not an ONNX model, or it is truncated or corrupted
          --> {path}
          expected: a serialized onnx.ModelProto
          got: 37 bytes that do not parse, starting with b'<!DOCTYP'
          help: download or export the model again
    """,
    )


def _archive(*names: str) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name in names:
            archive.writestr(name, b"")
    return file.getvalue()


@pytest.mark.parametrize(("data", "kind", "cure"), [
    (_archive("m/data.pkl", "m/version"), "what torch.save writes", "load_state_dict"),
    (_archive("m/constants.pkl", "m/data.pkl"), "a program of TorchScript", "torch.jit.load"),
    (_archive("m/models/model.json"), "what torch.export.save writes", ".pt2"),
    (_archive("metadata.json", "config.json"), "a model of Keras", "KERAS_BACKEND=torch"),
    (_archive("artifact.json"), "a compiled artifact", "weft.load"),
    (b"\x89HDF\r\n\x1a\n" + bytes(64), "a model of Keras", "KERAS_BACKEND=torch"),
    (b"GGUF\x03" + bytes(64), "a language model of GGUF", "weft.models.load"),
    (b"\x80\x04\x95" + bytes(64), "a pickle", "skl2onnx"),
    ((2).to_bytes(8, "little") + b"{}", "weights of safetensors", "weft.models.load"),
    (bytes(4) + b"TFL3" + bytes(64), "a model of TensorFlow Lite", ".tflite"),
], ids=["state", "script", "pt2", "keras", "artifact", "hdf5", "gguf", "pickle", "safetensors",
        "tflite"])
def test_a_file_of_another_format_is_named_with_the_way_in(
    tmp_path: Path, data: bytes, kind: str, cure: str
) -> None:
    path = tmp_path / "model.bin"
    path.write_bytes(data)
    message = str(error_of(lambda: from_onnx(path), InvalidModelError))
    assert f"the model file is not an ONNX model but {kind}" in message
    assert cure in message


def test_an_archive_of_nothing_known_is_only_not_onnx(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(_archive("readme.txt"))
    assert "truncated or corrupted" in str(error_of(lambda: from_onnx(path), InvalidModelError))


def test_git_lfs_pointer() -> None:
    data = b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n"
    assert_refused(
        data,
        InvalidModelError,
        """
        E0400 the model file is a Git LFS pointer, not the model
          --> <bytes>
          help: fetch the file itself: git lfs pull
    """,
    )


def test_message_without_a_graph() -> None:
    # A valid protobuf message of one unknown field.
    assert_refused(
        b"\xa0\x06\x01",
        InvalidModelError,
        """
        E0400 the model does not contain a graph
          --> <bytes>
          expected: an onnx.ModelProto with a graph of nodes
          help: the file may be cut off, or may not be an ONNX model; export it again
    """,
    )


def test_every_truncation_is_noticed() -> None:
    data = good_model().SerializeToString()
    for length in range(len(data) - 6):  # the last bytes are the opset, which is checked too
        error_of(lambda cut=length: from_onnx(data[:cut]), InvalidModelError)


def test_object_of_another_kind() -> None:
    assert_refused(
        42,
        InvalidModelError,
        """
        E0400 this object is not an ONNX model
          expected: a path, bytes, or an onnx.ModelProto
          got: an object of type int
    """,
    )


def test_name_that_is_not_text() -> None:
    data = good_model().SerializeToString().replace(b"relu", b"re\xff\xfe")
    with pytest.raises(InvalidModelError, match="not UTF-8 text"):
        from_onnx(data)
