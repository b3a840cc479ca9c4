"""The graph under construction: nodes in order, constants once each, unique names."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np
from onnx import GraphProto, NodeProto, TensorProto, ValueInfoProto, helper

from weft.ir import DType
from weft.support.errors import UnsupportedModelError

if TYPE_CHECKING:
    from collections.abc import Iterator

# Constants of at most this size are compared by content, larger ones by identity.
_COMPARED_BYTES = 1 << 16
SMALLEST_EXTERNAL = 1024
ALIGNMENT = 64  # of constants in a file, so that they can be mapped
_ONNX_NAMES = {"float16": "FLOAT16", "float32": "FLOAT", "float64": "DOUBLE",
               "float4_e2m1fn": "FLOAT4E2M1", "float8_e8m0fnu": "FLOAT8E8M0"}


def element_type(dtype: DType) -> int:
    """The number of ONNX's element type; ``UnsupportedModelError`` if it has none."""
    name = dtype.name
    upper = _ONNX_NAMES.get(name, name.replace("_", "").upper())
    if upper not in TensorProto.DataType.keys():  # noqa: SIM118 - not a mapping
        raise UnsupportedModelError(f"ONNX has no element type {name}", got=name)
    return int(TensorProto.DataType.Value(upper))


class GraphWriter:
    """Nodes and constants of a model; branches are graphs that read the values around them."""

    def __init__(self, taken: Iterable[str]) -> None:
        self.nodes: list[NodeProto] = []
        self.constants: dict[str, np.ndarray] = {}
        self._types: dict[str, int] = {}
        self._by_content: dict[object, str] = {}
        self._taken = set(taken)
        self._counts: dict[str, int] = {}
        self._outer: list[list[NodeProto]] = []

    @property
    def is_inside(self) -> bool:
        """Whether the nodes that are emitted are those of a branch."""
        return bool(self._outer)

    def fresh(self, stem: str) -> str:
        """A name that no other value has."""
        stem = stem.rpartition(".")[2]
        while True:
            number = self._counts[stem] = self._counts.get(stem, -1) + 1
            name = f"{stem}_{number}"
            if name not in self._taken:
                return name

    def emit(self, op: str, inputs: Iterable[str], outputs: int, stem: str,
             attributes: dict[str, Any], domain: str = "") -> list[str]:
        """Append a node; the names of its results."""
        name = self.fresh(stem)
        results = [name] if outputs == 1 else [f"{name}.{i}" for i in range(outputs)]
        node = helper.make_node(op, list(inputs), results, name=name, domain=domain,
                                **{k: v for k, v in attributes.items() if v is not None})
        self.nodes.append(node)
        return results

    def constant(self, data: np.ndarray, dtype: DType | None = None) -> str:
        """The name of a constant; equal constants have one name."""
        kind = dtype or DType.of(data.dtype)
        key: object = id(data)
        if data.nbytes <= _COMPARED_BYTES:
            content = np.ascontiguousarray(data).tobytes()
            key = kind.name, data.shape, hashlib.sha256(content).digest()
        found = self._by_content.get(key)
        if found is None:
            found = self._by_content[key] = self.fresh("constant")
            self.constants[found] = data
            self._types[found] = element_type(kind)
        return found

    def value_of(self, name: str) -> np.ndarray | None:
        """The value of a constant."""
        return self.constants.get(name)

    @contextmanager
    def inside(self) -> Iterator[list[NodeProto]]:
        """Collect the nodes of a block as those of a branch."""
        self._outer.append(self.nodes)
        self.nodes = inner = []
        try:
            yield inner
        finally:
            self.nodes = self._outer.pop()

    @contextmanager
    def outermost(self) -> Iterator[None]:
        """Emit the nodes of a block ahead of all branches that are being written."""
        if not self._outer:
            yield
            return
        inner, self.nodes = self.nodes, self._outer[0]
        try:
            yield
        finally:
            self.nodes = inner

    def graph(self, name: str, inputs: list[ValueInfoProto], outputs: list[ValueInfoProto],
              initializers: list[TensorProto]) -> GraphProto:
        """The graph of the nodes, without constants that no node reads."""
        return helper.make_graph(self.nodes, name, inputs, outputs, initializers)

    def tensors(self, external: ExternalData | None = None) -> list[TensorProto]:
        """The constants that a node reads, with their data or, if large, its place in a file."""
        used = _read_by(self.nodes)
        return [self._tensor(name, data, external) for name, data in self.constants.items()
                if name in used]

    def _tensor(self, name: str, data: np.ndarray, external: ExternalData | None) -> TensorProto:
        tensor = TensorProto(name=name, data_type=self._types[name], dims=data.shape)
        if external is None or data.nbytes < SMALLEST_EXTERNAL:
            tensor.raw_data = raw_bytes(data)
            return tensor
        offset, length = external.place(data)
        tensor.data_location = TensorProto.EXTERNAL
        for key, value in (("location", external.name), ("offset", offset), ("length", length)):
            tensor.external_data.add(key=key, value=str(value))
        return tensor


def _read_by(nodes: Iterable[NodeProto]) -> set[str]:
    """The values that nodes and their branches read."""
    found: set[str] = set()
    pending = list(nodes)
    while pending:
        node = pending.pop()
        found.update(node.input)
        pending += [n for a in node.attribute if a.HasField("g") for n in a.g.node]
    return found


class ExternalData:
    """The file beside a model that holds the data of its large constants."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._parts: list[tuple[int, np.ndarray]] = []
        self._end = 0

    def place(self, data: np.ndarray) -> tuple[int, int]:
        """The offset of the data in the file, and its length."""
        offset = -(-self._end // ALIGNMENT) * ALIGNMENT
        length = data.size * DType.of(data.dtype).bits // 8 if DType.of(data.dtype).bits >= 8 \
            else len(raw_bytes(data))
        self._parts.append((offset, data))
        self._end = offset + length
        return offset, length

    def write(self, file: BinaryIO) -> None:
        """Write the data in the order in which it was placed."""
        for offset, data in self._parts:
            file.write(bytes(offset - file.tell()))
            file.write(raw_bytes(data))


def raw_bytes(data: np.ndarray) -> bytes:
    """The elements as ONNX stores them."""
    flat = np.ascontiguousarray(data).reshape(-1)
    bits = DType.of(data.dtype).bits
    if bits in (2, 4):
        per = 8 // bits
        codes = flat.view(np.uint8) & (2**bits - 1)
        codes = np.pad(codes, (0, -len(codes) % per)).reshape(-1, per)
        shifts = np.arange(per, dtype=np.uint8) * bits
        return bytes(np.bitwise_or.reduce(codes << shifts, axis=1).astype(np.uint8).tobytes())
    return bytes(flat.astype(flat.dtype.newbyteorder("<"), copy=False).tobytes())
