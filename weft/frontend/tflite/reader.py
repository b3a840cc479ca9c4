"""Reading of TensorFlow Lite files by the generated classes of the package ``tflite``.

Flatbuffers are offsets into the file, which the generated classes follow without checks; what they
raise for those of a damaged file, and lengths above that of the file, are an ``InvalidModelError``.
"""

from __future__ import annotations

import functools
import importlib
import math
import os
import struct
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from tflite.BuiltinOperator import BuiltinOperator
from tflite.BuiltinOptions import BuiltinOptions
from tflite.BuiltinOptions2 import BuiltinOptions2
from tflite.Model import Model as ModelTable
from tflite.TensorType import TensorType

from weft.frontend.common import arrays
from weft.frontend.tflite.model import Model, Operator, Quantization, Signature, Subgraph, Tensor
from weft.ir.dtype import DType
from weft.support.errors import InvalidModelError
from weft.support.file_content import FileContent

IDENTIFIER = b"TFL3"
_DAMAGE = (struct.error, LookupError, ValueError, TypeError, ArithmeticError, AttributeError,
           AssertionError, MemoryError)
_SCHEMA = 3
_MOST_SIZE = 2**31


def _names(enum: type) -> dict[int, str]:
    return {value: name for name, value in vars(enum).items() if isinstance(value, int)}


_OPERATORS = _names(BuiltinOperator)
_TYPES = _names(TensorType)
_OPTIONS = (_names(BuiltinOptions), _names(BuiltinOptions2))
# Types of the schema by weft's dtypes; 4-bit numbers are unpacked.
DTYPES = {**{name: DType.of(name.lower()) for name in (
    "FLOAT32", "FLOAT16", "FLOAT64", "BFLOAT16", "INT8", "INT16", "INT32", "INT64", "UINT8",
    "UINT16", "UINT32", "UINT64", "BOOL")}, "INT4": DType.of("int8")}
_QUANTIZED = ("INT4", "INT8", "UINT8", "INT16", "INT32", "INT64")


def read_model(model: str | os.PathLike[str] | bytes) -> Model:
    """The model in a file, or in its bytes. Raises ``InvalidModelError``."""
    if isinstance(model, (bytes, bytearray, memoryview)):
        return parse_model(bytes(model), "<tflite>")
    file = model if isinstance(model, FileContent) else FileContent.of(model)
    try:
        data = bytes(file.content().data)
    except OSError as error:
        raise InvalidModelError(f"{model} cannot be read", got=str(error)) from None
    return parse_model(data, str(model))


def parse_model(data: bytes, source: str) -> Model:
    """The model in the bytes of a file."""
    if data[4:8] != IDENTIFIER:
        raise InvalidModelError("not a TensorFlow Lite file", where=source,
                                expected=f"{IDENTIFIER!r} at byte 4", got=repr(data[4:8]))
    try:
        return _Reader(data, source).model()
    except _DAMAGE as error:
        raise InvalidModelError("the TensorFlow Lite file is damaged", where=source,
                                got=f"{type(error).__name__}: {error}"[:200]) from None


class _Reader:
    """Reads one file."""

    def __init__(self, data: bytes, source: str) -> None:
        self._data, self._source = data, source
        self._table = ModelTable.GetRootAs(data, 0)
        self._budget = max(len(data), 1 << 16)  # entries of vectors: a cyclic file has more

    def model(self) -> Model:
        if self._table.Version() != _SCHEMA:
            raise InvalidModelError("another version of the schema", where=self._source,
                                    expected=str(_SCHEMA), got=str(self._table.Version()))
        codes = [self._code(code) for code in self._each(self._table, "OperatorCodes")]
        subgraphs = tuple(self._subgraph(table, codes)
                          for table in self._each(self._table, "Subgraphs"))
        if not subgraphs:
            raise ValueError("no subgraph")
        signatures = tuple(self._signature(table, subgraphs)
                           for table in self._each(self._table, "SignatureDefs"))
        return Model(self._source, subgraphs, signatures)

    def _each(self, table: Any, name: str) -> Iterator[Any]:
        count = getattr(table, f"{name}Length")()
        self._spend(count)
        entry = getattr(table, name)
        return (entry(index) for index in range(count))

    def _spend(self, count: int) -> None:
        self._budget -= count
        if count < 0 or self._budget < 0:
            raise ValueError("the vectors are longer than the file")

    def _ints(self, table: Any, name: str) -> np.ndarray:
        count = getattr(table, f"{name}Length")()
        self._spend(count)
        return getattr(table, f"{name}AsNumpy")() if count else np.zeros(0, np.int32)

    def _code(self, code: Any) -> tuple[str, bool]:
        """The name of an operator, and whether it is a custom one."""
        number = max(code.BuiltinCode(), code.DeprecatedBuiltinCode())
        name = _OPERATORS.get(number, f"builtin operator {number}")
        if name == "CUSTOM":
            return _text(code.CustomCode()), True
        return name, False

    def _subgraph(self, table: Any, codes: list[tuple[str, bool]]) -> Subgraph:
        tensors = tuple(self._tensor(t) for t in self._each(table, "Tensors"))
        inputs, outputs = (_indices(self._ints(table, name), len(tensors))
                           for name in ("Inputs", "Outputs"))
        operators = tuple(self._operator(o, codes, len(tensors))
                          for o in self._each(table, "Operators"))
        if -1 in inputs or -1 in outputs:
            raise ValueError("an input or output of a subgraph is missing")
        return Subgraph(_text(table.Name()), tensors, inputs, outputs, operators)

    def _tensor(self, table: Any) -> Tensor:
        shape = [int(d) for d in self._ints(table, "Shape")]
        declared = [int(d) for d in self._ints(table, "ShapeSignature")]
        sizes = tuple(declared if len(declared) == len(shape) else shape)
        if any(not -1 <= d < _MOST_SIZE for d in sizes):
            raise ValueError(f"the shape {sizes}")
        name, type_ = _text(table.Name()), _TYPES.get(table.Type(), f"type {table.Type()}")
        by = self._quantization(table, type_, sizes)
        return Tensor(name, sizes, type_, DTYPES.get(type_), by, bool(table.IsVariable()),
                      self._loader(table, tuple(shape), type_))

    def _quantization(self, table: Any, type_: str, shape: tuple[int, ...]) -> Quantization | None:
        told = table.Quantization()
        if told is None or type_ not in _QUANTIZED or not told.ScaleLength():
            return None
        scale = self._ints(told, "Scale").astype(np.float32)
        zero = self._ints(told, "ZeroPoint").astype(np.int64)
        axis = int(told.QuantizedDimension())
        if not np.isfinite(scale).all() or (scale <= 0).any():
            raise ValueError("a scale of quantized numbers is not positive")
        if len(scale) > 1 and not (0 <= axis < len(shape) and shape[axis] == len(scale)):
            raise ValueError(f"{len(scale)} scales along axis {axis} of the shape {shape}")
        if len(zero) not in (0, 1, len(scale)) or (abs(zero) > _MOST_SIZE - 1).any():
            raise ValueError("the zero points do not fit the scales")
        zeros = np.broadcast_to(zero if len(zero) else np.zeros(1), scale.shape)
        return Quantization(scale, zeros.astype(np.int32), axis)

    def _loader(self, table: Any, shape: tuple[int, ...], type_: str
                ) -> Callable[[], np.ndarray] | None:
        index = table.Buffer()
        if not 0 <= index < max(self._table.BuffersLength(), 1):
            raise ValueError(f"buffer {index}")
        if index == 0:
            return None
        buffer = self._table.Buffers(index)
        start, size = buffer.Offset(), buffer.Size()
        if not buffer.DataLength() and start <= 1:
            return None
        raw = buffer.DataAsNumpy() if start <= 1 else np.frombuffer(self._data, np.uint8, size,
                                                                    start)
        return lambda: _as_array(raw, shape, type_)

    def _operator(self, table: Any, codes: list[tuple[str, bool]], tensors: int) -> Operator:
        name, is_custom = codes[table.OpcodeIndex()]
        inputs, outputs = (_indices(self._ints(table, part), tensors)
                           for part in ("Inputs", "Outputs"))
        custom = self._ints(table, "CustomOptions")
        return Operator(name, inputs, outputs, _options(table), custom.tobytes(), is_custom)

    def _signature(self, table: Any, subgraphs: tuple[Subgraph, ...]) -> Signature:
        index = table.SubgraphIndex()
        count = len(subgraphs[index].tensors)
        inputs, outputs = ({_indices([t.TensorIndex()], count)[0]: _text(t.Name())
                            for t in self._each(table, part)} for part in ("Inputs", "Outputs"))
        return Signature(_text(table.SignatureKey()), index, inputs, outputs)


def _options(table: Any) -> dict[str, Any] | None:
    """The options of an operator by the names of their getters; ``None`` without any."""
    for suffix, names in zip(("", "2"), _OPTIONS, strict=True):
        number = getattr(table, f"BuiltinOptions{suffix}Type")()
        found = getattr(table, f"BuiltinOptions{suffix}")()
        if number and found is not None:
            name = names[number]
            options = getattr(importlib.import_module(f"tflite.{name}"), name)()
            options.Init(found.Bytes, found.Pos)
            return {field: _field(options, field) for field in _fields(type(options))}
    return None


@functools.cache
def _fields(kind: type) -> tuple[str, ...]:
    """The getters of a generated class, those of nested vectors left out."""
    names = [name for name in vars(kind) if name[0].isupper()
             and name != "Init"
             and not name.startswith(("GetRootAs", f"{kind.__name__}Buffer"))
             and not name.endswith(("AsNumpy", "Length", "IsNone"))]
    return tuple(name for name in names
                 if hasattr(kind, f"{name}AsNumpy") or not hasattr(kind, f"{name}Length"))


def _field(options: Any, name: str) -> Any:
    """A number, bytes, or the numbers of a vector."""
    if not hasattr(options, f"{name}AsNumpy"):
        return getattr(options, name)()
    found = getattr(options, f"{name}AsNumpy")() if getattr(options, f"{name}Length")() else ()
    return tuple(np.asarray(found).tolist())


def _as_array(raw: np.ndarray, shape: tuple[int, ...], type_: str) -> np.ndarray:
    dtype, count = DTYPES[type_].numpy, math.prod(shape)
    if type_ == "INT4":
        if raw.size != (count + 1) // 2:
            raise ValueError(f"{raw.size} bytes for {count} numbers of 4 bits")
        pairs = arrays.empty((raw.size, 2), np.int8)
        pairs[:, 0], pairs[:, 1] = raw << 4, raw & 0xF0
        return (pairs.reshape(-1)[:count] >> 4).reshape(shape)
    if min(shape, default=0) < 0 or raw.size != count * dtype.itemsize:
        raise ValueError(f"{raw.size} bytes for the shape {shape}")
    return np.frombuffer(raw.tobytes(), dtype).reshape(shape)


def _indices(values: Any, count: int) -> tuple[int, ...]:
    found = tuple(int(v) for v in values)
    if any(not -1 <= v < count for v in found):
        raise IndexError(f"tensor {max(found)} of {count}")
    return found


def _text(value: bytes | None) -> str:
    return (value or b"").decode("utf-8", "replace")
