"""Tensors of the Open Inference Protocol: JSON, and raw bytes behind a JSON header."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from weft.runtime.dtypes import numpy_dtype
from weft.runtime.manifest import TensorSpec
from weft.runtime.ndarray import to_numpy
from weft.support.dataclass import dataclass
from weft.support.errors import InvalidInputError

# weft's dtype -> the datatype of the protocol; BF16 is that of Triton.
DATATYPES = {
    "bool": "BOOL", "uint8": "UINT8", "uint16": "UINT16", "uint32": "UINT32", "uint64": "UINT64",
    "int8": "INT8", "int16": "INT16", "int32": "INT32", "int64": "INT64", "float16": "FP16",
    "float32": "FP32", "float64": "FP64", "bfloat16": "BF16",
}
DTYPES = {datatype: dtype for dtype, datatype in DATATYPES.items()}
_MAX_RANK = 32
_MAX_EMPTY = 2**20


@dataclass(frozen=True)
class RequestedOutput:
    """An output that a client asks for; ``binary`` as raw bytes."""

    name: str
    binary: bool


@dataclass(frozen=True)
class InferRequest:
    """A request: arrays by name, and the outputs it wants (all if ``None``)."""

    id: str | None
    feeds: Mapping[str, np.ndarray]
    outputs: tuple[RequestedOutput, ...] | None
    binary: bool  # the form of outputs that are not named


def parse_json(body: bytes | memoryview) -> Any:
    """The value of a JSON text; ``InvalidInputError`` for any other text."""
    try:
        return json.loads(bytes(body))
    except (ValueError, RecursionError) as error:
        reason = str(error) or type(error).__name__
        raise InvalidInputError("the body is not JSON", got=reason) from None


def parse_infer_request(body: bytes, header_length: int | None) -> InferRequest:
    """A request from its body, of which ``header_length`` bytes are JSON (``None``: all)."""
    if header_length is not None and not 0 < header_length <= len(body):
        raise InvalidInputError("the length of the JSON header does not fit the body",
                                expected=f"1 to {len(body)}", got=header_length)
    split = len(body) if header_length is None else header_length
    view = memoryview(body)
    found = _mapping(parse_json(view[:split]), "the request")
    rest = _Bytes(view[split:])
    feeds: dict[str, np.ndarray] = {}
    for entry in _list(found.get("inputs"), "inputs"):
        name, array = _tensor(_mapping(entry, "an input"), rest)
        if name in feeds:
            raise InvalidInputError(f"input {name!r} is given twice")
        feeds[name] = array
    if len(rest):
        raise InvalidInputError("the body has more bytes than its inputs", got=len(rest))
    parameters = _mapping(found.get("parameters", {}), "parameters")
    binary = parameters.get("binary_data_output", False) is True
    identifier = found.get("id")
    if identifier is not None and not isinstance(identifier, str):
        raise InvalidInputError("the id is not a string", got=type(identifier).__name__)
    outputs = None
    if found.get("outputs"):
        outputs = tuple(_output(_mapping(entry, "an output"), binary)
                        for entry in _list(found["outputs"], "outputs"))
    return InferRequest(identifier, feeds, outputs, binary)


class _Bytes:
    """Raw bytes that inputs take from the front."""

    def __init__(self, left: memoryview) -> None:
        self._left = left

    def __len__(self) -> int:
        return len(self._left)

    def take(self, count: int) -> memoryview:
        taken, self._left = self._left[:count], self._left[count:]
        return taken


def _mapping(value: Any, what: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise InvalidInputError(f"{what} is not a JSON object", got=type(value).__name__)
    return value


def _list(value: Any, what: str) -> list[Any]:
    if not isinstance(value, list) or not value:
        raise InvalidInputError(f"{what!r} is not a list with entries", got=type(value).__name__)
    return value


def _name(entry: Mapping[str, Any]) -> str:
    name = entry.get("name")
    if not isinstance(name, str):
        raise InvalidInputError("a tensor without a name", got=type(name).__name__)
    return name


def _output(entry: Mapping[str, Any], binary: bool) -> RequestedOutput:
    parameters = _mapping(entry.get("parameters", {}), "parameters")
    return RequestedOutput(_name(entry), parameters.get("binary_data", binary) is True)


def _tensor(entry: Mapping[str, Any], rest: _Bytes) -> tuple[str, np.ndarray]:
    name = _name(entry)
    shape = _shape(name, entry.get("shape"))
    datatype = entry.get("datatype")
    if not isinstance(datatype, str) or datatype not in DTYPES:
        raise InvalidInputError(f"input {name!r} has an unknown datatype", got=datatype,
                                expected=", ".join(DTYPES))
    dtype = DTYPES[datatype]
    parameters = _mapping(entry.get("parameters", {}), "parameters")
    if "shared_memory_region" in parameters:
        raise InvalidInputError("shared memory is not supported", where=f"input {name!r}",
                                help="send the tensor as JSON or as binary data")
    if "binary_data_size" in parameters:
        return name, _from_bytes(name, shape, dtype, parameters["binary_data_size"], rest)
    return name, _from_json(name, shape, dtype, entry.get("data"))


def _shape(name: str, given: Any) -> tuple[int, ...]:
    valid = isinstance(given, list) and len(given) <= _MAX_RANK and all(
        isinstance(size, int) and not isinstance(size, bool) and size >= 0 for size in given)
    # A body bounds the sizes of all tensors but the empty ones, whose sizes a result may have.
    if not valid or (0 in given and math.prod(size or 1 for size in given) > _MAX_EMPTY):
        raise InvalidInputError(f"input {name!r} has an invalid shape", got=given,
                                expected="a list of sizes >= 0")
    return tuple(given)


def _from_json(name: str, shape: tuple[int, ...], dtype: str, data: Any) -> np.ndarray:
    """Values as a flat list in row-major order, or as nested lists of the shape."""
    if not isinstance(data, list):
        raise InvalidInputError(f"input {name!r} has no data", expected="a list of values",
                                got=type(data).__name__)
    nested = bool(data) and isinstance(data[0], list)
    given = shape if nested else (math.prod(shape),)
    if not nested and len(data) != given[0]:
        raise InvalidInputError(f"input {name!r} has the wrong number of values", got=len(data),
                                expected=f"{given[0]} for the shape {list(shape)}")
    # NumPy reads an empty list as floats.
    values = data or np.empty(given, numpy_dtype(dtype))
    return to_numpy(values, TensorSpec(name, dtype, given)).reshape(shape)


def _from_bytes(name: str, shape: tuple[int, ...], dtype: str, size: Any, rest: _Bytes
                ) -> np.ndarray:
    wanted = math.prod(shape) * numpy_dtype(dtype).itemsize
    if isinstance(size, bool) or not isinstance(size, int) or size != wanted:
        raise InvalidInputError(f"input {name!r} has the wrong number of bytes", got=size,
                                expected=f"{wanted} for the shape {list(shape)}")
    if size > len(rest):
        raise InvalidInputError("the body ends within a tensor", where=f"input {name!r}",
                                expected=f"{size} bytes", got=len(rest))
    flat = np.frombuffer(rest.take(size), np.uint8 if dtype == "bool" else numpy_dtype(dtype))
    if dtype == "bool":
        flat = flat != 0
    # Compiled code reads aligned memory; what precedes a tensor in a body may have any length.
    return np.require(flat, requirements="A").reshape(shape)


def encode_response(head: Mapping[str, Any], specs: Sequence[TensorSpec],
                    arrays: Sequence[np.ndarray], request: InferRequest
                    ) -> tuple[bytes, int | None]:
    """The body of a response, and the length of its JSON header if raw bytes follow."""
    known = {spec.name: (spec, array) for spec, array in zip(specs, arrays, strict=True)}
    wanted = (tuple(RequestedOutput(spec.name, request.binary) for spec in specs)
              if request.outputs is None else request.outputs)
    entries, raw = [], []
    for output in wanted:
        spec, array = known[output.name]
        entry: dict[str, Any] = {"name": spec.name, "datatype": DATATYPES[spec.dtype],
                                 "shape": list(array.shape)}
        if output.binary:
            raw.append(np.ascontiguousarray(array).tobytes())
            entry["parameters"] = {"binary_data_size": len(raw[-1])}
        else:
            flat = array.ravel()
            entry["data"] = (flat.astype(np.float32) if spec.dtype == "bfloat16" else flat).tolist()
        entries.append(entry)
    header = json.dumps({**head, "outputs": entries}, separators=(",", ":")).encode()
    return (b"".join([header, *raw]), len(header)) if raw else (header, None)


def check_outputs(request: InferRequest, specs: Sequence[TensorSpec]) -> None:
    """``InvalidInputError`` if the request asks for an output that the model does not have."""
    names = [spec.name for spec in specs]
    for output in request.outputs or ():
        if output.name not in names:
            raise InvalidInputError("unknown output", got=output.name, expected=", ".join(names))
