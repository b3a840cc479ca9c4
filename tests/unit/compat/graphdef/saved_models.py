"""Small SavedModels: a graph, signatures, and a checkpoint in TensorFlow's format."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from weft.compat.graphdef import GraphDef, graph_def_bytes
from weft.compat.graphdef.crc32c import masked_crc32c
from weft.compat.graphdef.definitions import ShapeAttr
from weft.compat.graphdef.messages import message_class
from weft.compat.graphdef.tensor_values import type_number, write_shape
from weft.ir.dtype import DType

SIGNATURES = Mapping[str, tuple[Mapping[str, str], Mapping[str, str]]]


def save(folder: Path, graph: GraphDef, signatures: SIGNATURES,
         variables: Mapping[str, np.ndarray], tags: Sequence[str] = ("serve",)) -> Path:
    """Write ``graph``; ``variables`` are the tensors of the checkpoint by their keys there.

    A node ``restore`` of the operator ``RestoreV2``, if the graph has one, gives them in the order
    of the mapping.
    """
    message = message_class("SavedModel")(saved_model_schema_version=1)
    meta = message.meta_graphs.add()
    meta.meta_info_def.tags.extend(tags)
    meta.graph_def.ParseFromString(graph_def_bytes(graph))
    for nodes in (meta.graph_def.node, *(f.node_def for f in meta.graph_def.library.function)):
        for node in nodes:
            if node.name.endswith(("tensor_names", "slices")):
                texts = list(variables) if node.name.endswith("names") else [""] * len(variables)
                write_texts(node, texts)
    for name, (inputs, outputs) in signatures.items():
        signature = meta.signature_def[name]
        for key, tensor in inputs.items():
            signature.inputs[key].name = tensor
        for key, tensor in outputs.items():
            signature.outputs[key].name = tensor
    (folder / "variables").mkdir(parents=True)
    (folder / "saved_model.pb").write_bytes(message.SerializeToString(deterministic=True))
    write_checkpoint(folder / "variables" / "variables", variables)
    return folder


def write_texts(node: Any, texts: Sequence[str]) -> None:
    """Make a node a constant vector of strings."""
    tensor = node.attr["value"].tensor
    tensor.dtype = 7
    tensor.tensor_shape.dim.add().size = len(texts)
    tensor.string_val.extend(text.encode() for text in texts)


def write_checkpoint(prefix: Path, tensors: Mapping[str, np.ndarray]) -> None:
    """A bundle of one shard; keys of the index share prefixes, and it has two blocks."""
    data, entries = b"", [(b"", message_class("BundleHeaderProto")(
        num_shards=1).SerializeToString())]
    for key in sorted(tensors):
        raw = np.ascontiguousarray(tensors[key]).tobytes()
        entry = message_class("BundleEntryProto")(
            dtype=type_number(DType.of(tensors[key].dtype)), offset=len(data), size=len(raw),
            crc32c=masked_crc32c(raw))
        write_shape(entry.shape, ShapeAttr(tensors[key].shape))
        entries.append((key.encode(), entry.SerializeToString()))
        data += raw
    prefix.with_name(f"{prefix.name}.data-00000-of-00001").write_bytes(data)
    half = max(1, len(entries) // 2)
    table, handles = b"", []
    for part in (entries[:half], entries[half:]):
        if part:
            handles.append((part[-1][0], _varint(len(table)) + _varint(len(_block(part)))))
            table += _trailed(_block(part))
    meta = _varint(len(table)) + _varint(len(_block([])))
    table += _trailed(_block([]))
    index = _varint(len(table)) + _varint(len(_block(handles)))
    table += _trailed(_block(handles))
    table += (meta + index).ljust(40, b"\0") + struct.pack("<Q", 0xDB4775248B80FB57)
    prefix.with_name(f"{prefix.name}.index").write_bytes(table)


def _block(pairs: Sequence[tuple[bytes, bytes]]) -> bytes:
    made, before = b"", b""
    for key, value in pairs:
        shared = next((i for i, (a, b) in enumerate(zip(key, before, strict=False)) if a != b),
                      min(len(key), len(before)))
        made += _varint(shared) + _varint(len(key) - shared) + _varint(len(value))
        made, before = made + key[shared:] + value, key
    return made + struct.pack("<II", 0, 1)


def _trailed(block: bytes) -> bytes:
    return block + b"\0" + struct.pack("<I", masked_crc32c(block + b"\0"))


def _varint(value: int) -> bytes:
    made = b""
    while value > 0x7F:
        made += bytes([value & 0x7F | 0x80])
        value >>= 7
    return made + bytes([value])
