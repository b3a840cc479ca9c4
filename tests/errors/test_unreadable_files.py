"""Files that are no model: missing, empty, truncated, foreign."""

from __future__ import annotations

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
