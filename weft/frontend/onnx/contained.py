"""Run onnx's C++ shape inference and version converter in a child process.

On a damaged model this C++ code can crash or loop forever: it indexes past the end of vectors and
iterates without bound for invalid attributes or shapes (one in a thousand randomly damaged models
crashed the process). Failed C++ assertions cannot be caught, so the code runs in a child process
(``contained_child``): a new interpreter that loads only the C++ module, in about 40 ms. A forked
child would start faster, but could deadlock on locks that other threads held during the fork.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from google.protobuf.message import DecodeError

from weft.frontend.onnx.protos import ModelProto, TensorProto

# Limits of a child process: CPU time (large models take seconds, and CPU time does not depend on
# the load of the machine), and elapsed time, in case the child blocks.
CPU_SECONDS = 30
PATIENCE = 600.0
# Larger initializers are not sent to the child: shape inference only reads small ones.
_SMALL = 4096
_CHILD = Path(__file__).with_name("contained_child.py")
_COMPLETE = b"complete"  # end marker of a complete output


def infer_shapes(proto: ModelProto) -> ModelProto | None:
    """Run ``onnx.shape_inference.infer_shapes`` with data propagation.

    Returns ``None`` if it raises, crashes, or exceeds a time limit.
    """
    return _called("infer_shapes", proto, False, False, True)  # check_type, strict_mode, data_prop


def convert_version(proto: ModelProto, opset: int) -> ModelProto | None:
    """Run ``onnx.version_converter.convert_version``; ``None`` as for ``infer_shapes``."""
    return _called("convert_version", proto, opset)


def _called(function: str, proto: ModelProto, *options: int) -> ModelProto | None:
    data = run_child(_command(function, *options), _without_weights(proto).SerializeToString())
    return None if data is None else _restored(data, proto)


def _command(function: str, *options: int) -> list[str]:
    """Return the child's command line; the C++ module does not need site packages (``-S``)."""
    import onnx.onnx_cpp2py_export

    module = str(onnx.onnx_cpp2py_export.__file__)
    numbers = " ".join(str(int(option)) for option in options)
    return [sys.executable or "python3", "-I", "-S", str(_CHILD), str(CPU_SECONDS), module,
            function, numbers, *filter(None, sys.path)]


def run_child(command: Sequence[str], data: bytes, patience: float = PATIENCE) -> bytes | None:
    """Run ``command`` with ``data`` as its input; return its output without the end marker.

    Returns ``None`` if the marker is missing, the child takes more than ``patience`` seconds, or
    it cannot be started. The exit status is ignored: other code in this process may already have
    waited for the child.
    """
    import subprocess

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
    """Return a copy of the model without the data of large initializers."""
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
