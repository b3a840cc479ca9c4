"""Calls of onnx's C++ code that damaged models can end or hold up for ever.

Its shape inference, which the version converter runs too, indexes past the end of vectors and
counts without bound where attributes or shapes are nonsense (one in a thousand of randomly damaged
models ended the process). What it asserts cannot be caught, so it runs in a forked child, which
takes 16 ms where a new interpreter takes a third of a second.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import select
import signal
import time
import warnings
from collections.abc import Callable
from typing import NoReturn

from google.protobuf.message import DecodeError
from onnx import ModelProto

# Large models take seconds.
PATIENCE = 30.0
# Larger initializers that come back as they were stay where they are.
_SMALL = 4096
_CHUNK = 1 << 20
_COMPLETE = b"complete"  # the end of what a child writes that has come to its end


def contained(call: Callable[[ModelProto], ModelProto], proto: ModelProto,
              patience: float = PATIENCE) -> ModelProto | None:
    """``call(proto)``; ``None`` where it raises, ends its process, or takes too long."""
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        # Python warns of threads that hold locks. The child runs none of Python's own, and one
        # that waits for ever is ended.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        _child(call, proto, reading, writing)
    os.close(writing)
    try:
        data = _read_all(reading, time.monotonic() + patience)
    finally:
        os.close(reading)
        os.kill(child, signal.SIGKILL)  # it is not waited for yet, so the number is still its own
        os.waitpid(child, 0)
    return None if data is None else _restored(data, proto)


def _child(call: Callable[[ModelProto], ModelProto], proto: ModelProto, reading: int,
           writing: int) -> NoReturn:
    with contextlib.suppress(BaseException):
        os.close(reading)
        faulthandler.disable()
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # assertions of C++ are of no use to anyone
        result = call(proto)
        _leave_out(result, proto)
        with os.fdopen(writing, "wb") as file:
            file.write(result.SerializeToString())
            file.write(_COMPLETE)
    os._exit(0)


def _leave_out(result: ModelProto, proto: ModelProto) -> None:
    """Empty the large initializers of ``result`` that are those of ``proto``."""
    own = {tensor.name: tensor for tensor in proto.graph.initializer}
    for tensor in result.graph.initializer:
        if tensor.ByteSize() > _SMALL and own.get(tensor.name) == tensor:
            name = tensor.name
            tensor.Clear()
            tensor.name = name


def _restored(data: bytes, proto: ModelProto) -> ModelProto | None:
    result = ModelProto()
    try:
        result.ParseFromString(data)
    except DecodeError:
        return None
    own = {tensor.name: tensor for tensor in proto.graph.initializer}
    for tensor in result.graph.initializer:
        if not tensor.data_type and tensor.name in own:
            tensor.CopyFrom(own[tensor.name])
    return result


def _read_all(source: int, deadline: float) -> bytes | None:
    """What the child writes before it ends; ``None`` where that is nothing or takes too long."""
    chunks: list[bytes] = []
    poll = select.poll()  # it takes any number of open files
    poll.register(source, select.POLLIN)
    while (left := deadline - time.monotonic()) > 0:
        if not poll.poll(1000 * left):
            break
        chunk = os.read(source, _CHUNK)
        if not chunk:
            data = b"".join(chunks)
            return data.removesuffix(_COMPLETE) if data.endswith(_COMPLETE) else None
        chunks.append(chunk)
    return None
