"""Files of TensorFlow Lite, written by the flatbuffers builder and the package of the schema."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import flatbuffers
import numpy as np
from tflite.BuiltinOperator import BuiltinOperator
from tflite.BuiltinOptions import BuiltinOptions
from tflite.TensorType import TensorType


@dataclass
class T:
    """A tensor. ``scale`` and ``zero`` are numbers or one for each index of ``axis``."""

    shape: Sequence[int]
    dtype: str = "float32"
    data: Any = None
    name: str = ""
    scale: Any = None
    zero: Any = 0
    axis: int = 0
    signature: Sequence[int] = ()
    is_variable: bool = False


@dataclass
class Op:
    """An operator; ``options`` are fields of the table ``table`` of the schema, by name."""

    name: str
    inputs: Sequence[int]
    outputs: Sequence[int]
    table: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)
    custom: bytes = b""


@dataclass
class Graph:
    tensors: Sequence[T]
    inputs: Sequence[int]
    outputs: Sequence[int]
    operators: Sequence[Op]


def tflite_file(*graphs: Graph, signatures: Mapping[str, int] | None = None, version: int = 3
                ) -> bytes:
    """The bytes of a file; ``signatures`` name subgraphs, with inputs a, b and outputs y0, y1."""
    return _Writer().file(graphs, signatures or {}, version)


class _Writer:
    def __init__(self) -> None:
        self.builder = flatbuffers.Builder(1024)
        self.buffers = [self._table("Buffer")]
        self.codes: dict[str, int] = {}

    def file(self, graphs: Sequence[Graph], signatures: Mapping[str, int], version: int) -> bytes:
        made = [self._graph(graph) for graph in graphs]
        codes = [self._code(name) for name in self.codes]
        signed = [self._signature(name, index, graphs[index])
                  for name, index in signatures.items()]
        model = self._table("Model", Version=version, OperatorCodes=self._offsets(codes),
                            Subgraphs=self._offsets(made), Buffers=self._offsets(self.buffers),
                            SignatureDefs=self._offsets(signed))
        self.builder.Finish(model, b"TFL3")
        return bytes(self.builder.Output())

    def _table(self, kind: str, **fields: Any) -> int:
        module = importlib.import_module(f"tflite.{kind}")
        module.Start(self.builder)
        for name, value in fields.items():
            getattr(module, f"Add{name}")(self.builder, value)
        return module.End(self.builder)

    def _offsets(self, offsets: Sequence[int]) -> int:
        self.builder.StartVector(4, len(offsets), 4)
        for offset in reversed(offsets):
            self.builder.PrependUOffsetTRelative(offset)
        return self.builder.EndVector()

    def _numbers(self, values: Any, dtype: str) -> int:
        return self.builder.CreateNumpyVector(np.ascontiguousarray(values, dtype).reshape(-1))

    def _code(self, name: str) -> int:
        number = getattr(BuiltinOperator, name, None)
        if number is None:
            return self._table("OperatorCode", CustomCode=self.builder.CreateString(name),
                               BuiltinCode=BuiltinOperator.CUSTOM,
                               DeprecatedBuiltinCode=BuiltinOperator.CUSTOM)
        return self._table("OperatorCode", BuiltinCode=number,
                           DeprecatedBuiltinCode=min(number, 127))

    def _graph(self, graph: Graph) -> int:
        tensors = self._offsets([self._tensor(t, i) for i, t in enumerate(graph.tensors)])
        operators = self._offsets([self._operator(o) for o in graph.operators])
        return self._table("SubGraph", Tensors=tensors, Operators=operators,
                           Inputs=self._numbers(graph.inputs, "int32"),
                           Outputs=self._numbers(graph.outputs, "int32"))

    def _tensor(self, tensor: T, index: int) -> int:
        buffer = 0
        if tensor.data is not None:
            raw = np.asarray(tensor.data, tensor.dtype if tensor.dtype != "int4" else "uint8")
            self.buffers.append(self._table("Buffer",
                                            Data=self.builder.CreateByteVector(raw.tobytes())))
            buffer = len(self.buffers) - 1
        fields: dict[str, Any] = {
            "Shape": self._numbers(tensor.shape, "int32"), "Buffer": buffer,
            "Type": getattr(TensorType, tensor.dtype.upper()),
            "Name": self.builder.CreateString(tensor.name or f"t{index}"),
            "IsVariable": tensor.is_variable}
        if tensor.signature:
            fields["ShapeSignature"] = self._numbers(tensor.signature, "int32")
        if tensor.scale is not None:
            fields["Quantization"] = self._table(
                "QuantizationParameters", Scale=self._numbers(tensor.scale, "float32"),
                ZeroPoint=self._numbers(np.broadcast_to(tensor.zero, np.shape(tensor.scale)),
                                        "int64"), QuantizedDimension=tensor.axis)
        return self._table("Tensor", **fields)

    def _operator(self, operator: Op) -> int:
        index = self.codes.setdefault(operator.name, len(self.codes))
        fields: dict[str, Any] = {"OpcodeIndex": index,
                                  "Inputs": self._numbers(operator.inputs, "int32"),
                                  "Outputs": self._numbers(operator.outputs, "int32")}
        if operator.table:
            given = {name: self.builder.CreateString(value) if isinstance(value, str)
                     else self._numbers(value, "int32") if isinstance(value, (tuple, list))
                     else value for name, value in operator.options.items()}
            fields["BuiltinOptions"] = self._table(operator.table, **given)
            fields["BuiltinOptionsType"] = getattr(BuiltinOptions, operator.table)
        if operator.custom:
            fields["CustomOptions"] = self.builder.CreateByteVector(operator.custom)
        return self._table("Operator", **fields)

    def _signature(self, name: str, index: int, graph: Graph) -> int:
        maps = [[self._table("TensorMap", Name=self.builder.CreateString(text), TensorIndex=t)
                 for text, t in zip(names, tensors, strict=False)]
                for names, tensors in (("abcdefgh", graph.inputs),
                                       ([f"y{i}" for i in range(9)], graph.outputs))]
        inputs, outputs = map(self._offsets, maps)
        return self._table("SignatureDef", Inputs=inputs, Outputs=outputs, SubgraphIndex=index,
                           SignatureKey=self.builder.CreateString(name))
