"""Loading of a model from a path, bytes or ``ModelProto``, and basic checks of it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError, Message

from weft.frontend.onnx.other_formats import refuse_other_format
from weft.frontend.onnx.protos import ModelProto
from weft.frontend.onnx.wire import split_model
from weft.support.dataclass import dataclass
from weft.support.errors import InvalidModelError
from weft.support.file_content import MAX_BYTES, FileContent
from weft.support.stage_times import stage

_LFS_POINTER = b"version https://git-lfs"


@dataclass(frozen=True)
class LoadedModel:
    """A parsed model.

    ``source`` names the model in messages; ``folder`` contains its external data and is ``None``
    for a model in memory. ``weights`` are the data of initializers of the main graph that ``proto``
    lacks, by name.
    """

    proto: ModelProto
    source: str
    folder: Path | None
    weights: Mapping[str, memoryview] = field(default_factory=dict)


def load_model(model: str | os.PathLike[str] | bytes | Any) -> LoadedModel:
    """Load ``model`` (a path, bytes, or a ``ModelProto``); raises ``InvalidModelError``."""
    if isinstance(model, ModelProto):
        loaded = LoadedModel(model, "<ModelProto>", None)
    elif isinstance(model, (bytes, bytearray, memoryview)):
        loaded = _parse(memoryview(bytes(model)), "<bytes>", None)
    elif isinstance(model, (str, os.PathLike)):
        path = Path(model)
        loaded = _parse(_read(model, path), str(path), path.resolve().parent)
    else:
        raise InvalidModelError(
            "this object is not an ONNX model",
            expected="a path, bytes, or an onnx.ModelProto",
            got=f"an object of type {type(model).__name__}",
        )
    _check_has_graph(loaded)
    _check_text(loaded)
    return loaded


def _read(model: str | os.PathLike[str], path: Path) -> memoryview:
    try:
        size = path.stat().st_size
        if size > MAX_BYTES:
            raise InvalidModelError(
                "the model file is larger than a protobuf message can be",
                where=path,
                expected=f"at most {MAX_BYTES} bytes",
                got=f"{size} bytes",
                help="save it with external data: onnx.save(..., save_as_external_data=True)",
            )
        file = model if isinstance(model, FileContent) else FileContent(path)
        return file.content().data
    except FileNotFoundError:
        raise InvalidModelError("model file not found", where=path) from None
    except IsADirectoryError:
        raise InvalidModelError(
            "the model path is a folder", where=path, help="name the .onnx file inside it"
        ) from None
    except (OSError, ValueError) as error:
        raise InvalidModelError(f"the model file cannot be read: {error}", where=path) from None


@stage("parsing of the file")
def _parse(data: memoryview, source: str, folder: Path | None) -> LoadedModel:
    if not data:
        raise InvalidModelError("the model file is empty", where=source, got="0 bytes")
    if data[: len(_LFS_POINTER)] == _LFS_POINTER:
        raise InvalidModelError(
            "the model file is a Git LFS pointer, not the model",
            where=source,
            help="fetch the file itself: git lfs pull",
        )
    refuse_other_format(data, source)
    split = split_model(data)
    proto = ModelProto()
    try:
        proto.ParseFromString(bytes(data) if split is None else split.message)
    except DecodeError:
        raise InvalidModelError(
            "the model file is not an ONNX model, or it is truncated or corrupted",
            where=source,
            expected="a serialized onnx.ModelProto",
            got=f"{len(data)} bytes that do not parse, starting with {bytes(data[:8])!r}",
            help="download or export the model again",
        ) from None
    return LoadedModel(proto, source, folder, {} if split is None else split.weights)


def _check_has_graph(loaded: LoadedModel) -> None:
    """Reject a model without a graph: arbitrary bytes can parse as a message of unknown fields."""
    proto = loaded.proto
    if not proto.HasField("graph") or not (proto.graph.node or proto.graph.output):
        raise InvalidModelError(
            "the model does not contain a graph",
            where=loaded.source,
            expected="an onnx.ModelProto with a graph of nodes",
            help="the file may be cut off, or may not be an ONNX model; export it again",
        )


def _check_text(loaded: LoadedModel) -> None:
    """Reject strings that are not UTF-8: protobuf returns these as bytes."""
    pending: list[Message] = [loaded.proto]
    while pending:
        for descriptor, value in pending.pop().ListFields():
            if descriptor.type == FieldDescriptor.TYPE_MESSAGE:
                pending.extend([value] if isinstance(value, Message) else value)
            elif descriptor.type == FieldDescriptor.TYPE_STRING:
                texts = [value] if isinstance(value, (str, bytes)) else value
                _refuse_bytes([t for t in texts if isinstance(t, bytes)],
                              descriptor.name, loaded)


def _refuse_bytes(texts: list[bytes], field: str, loaded: LoadedModel) -> None:
    if texts:
        raise InvalidModelError(
            f"a {field} in the model is not UTF-8 text",
            where=loaded.source,
            got=repr(texts[0][:40]),
            help="the file is damaged; download or export it again",
        )
