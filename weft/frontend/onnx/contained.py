"""Calls of onnx's C++ code that damaged models can end or hold up for ever.

Its shape inference, which the version converter runs too, indexes past the end of vectors and
counts without bound where attributes or shapes are nonsense (one in a thousand of randomly damaged
models ended the process). What it asserts cannot be caught, so it runs in a child process
(``contained_child``): a new interpreter that loads nothing but the C++ module, in some 40 ms. A
forked child would be faster, and could find locks that other threads of this process hold.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import onnx.onnx_cpp2py_export
from google.protobuf.message import DecodeError
from onnx import ModelProto, TensorProto

# What a child may take: of a CPU's time, for large models take seconds, so that a busy machine
# changes no result; and in all, should it wait for something.
CPU_SECONDS = 30
PATIENCE = 600.0
# Larger initializers stay here: what decides shapes is small.
_SMALL = 4096
_CHILD = Path(__file__).with_name("contained_child.py")
_COMPLETE = b"complete"  # the end of what a child writes that has come to its end


def infer_shapes(proto: ModelProto) -> ModelProto | None:
    """``onnx.shape_inference.infer_shapes`` with data propagation.

    ``None`` where it raises, ends its process, or takes too long.
    """
    return _called("infer_shapes", proto, False, False, True)  # types are unchecked, not strict


def convert_version(proto: ModelProto, opset: int) -> ModelProto | None:
    """``onnx.version_converter.convert_version``; ``None`` as for ``infer_shapes``."""
    return _called("convert_version", proto, opset)


def _called(function: str, proto: ModelProto, *options: int) -> ModelProto | None:
    data = run_child(_command(function, *options), _without_weights(proto).SerializeToString())
    return None if data is None else _restored(data, proto)


def _command(function: str, *options: int) -> list[str]:
    """Without site packages, which are not needed as long as the C++ module loads by itself."""
    module = str(onnx.onnx_cpp2py_export.__file__)
    numbers = " ".join(str(int(option)) for option in options)
    return [sys.executable or "python3", "-I", "-S", str(_CHILD), str(CPU_SECONDS), module,
            function, numbers, *filter(None, sys.path)]


def run_child(command: Sequence[str], data: bytes, patience: float = PATIENCE) -> bytes | None:
    """What the child that is given ``data`` writes before the mark of its end.

    ``None`` where there is no such mark, it takes more than ``patience`` seconds, or no child can
    be started. The status of the child tells nothing: another part of the program may have taken
    it.
    """
    try:
        started = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                   stderr=subprocess.DEVNULL)
    except OSError:
        return None
    with started as child:
        try:
            written, _ = child.communicate(data, timeout=patience)
        except subprocess.TimeoutExpired:
            return None
        finally:
            child.kill()
    return written.removesuffix(_COMPLETE) if written.endswith(_COMPLETE) else None


def _without_weights(proto: ModelProto) -> ModelProto:
    """The model, of its large initializers only name, dtype and shape."""
    kept = ModelProto()
    _copy_fields(proto, kept, leave_out="graph")
    _copy_fields(proto.graph, kept.graph, leave_out="initializer")
    for tensor in proto.graph.initializer:
        if tensor.ByteSize() <= _SMALL:
            kept.graph.initializer.append(tensor)
        else:
            kept.graph.initializer.append(
                TensorProto(name=tensor.name, data_type=tensor.data_type, dims=tensor.dims))
    return kept


def _copy_fields(source: Any, target: Any, leave_out: str) -> None:
    for field, value in source.ListFields():
        if hasattr(value, "MergeFrom"):  # a message, or a list
            if field.name != leave_out:
                getattr(target, field.name).MergeFrom(value)
        else:
            setattr(target, field.name, value)


def _restored(data: bytes, proto: ModelProto) -> ModelProto | None:
    result = ModelProto()
    try:
        result.ParseFromString(data)
    except DecodeError:
        return None
    large = {t.name: t for t in proto.graph.initializer if t.ByteSize() > _SMALL}
    for tensor in result.graph.initializer:
        if tensor.name in large:
            tensor.CopyFrom(large[tensor.name])
    return result
