"""Types in JSON: a table of records, components by number, so deep and shared types stay small."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from weft.ir import types
from weft.ir.dtype import DType
from weft.ir.shape import ANY, AnyDim, Dim
from weft.ir.text.parser import parse_dim


class TypeWriter:
    """Numbers types; equal types share a number."""

    def __init__(self) -> None:
        self.records: list[dict[str, Any]] = []
        self._numbers: dict[types.Type, int] = {}

    def write(self, type_: types.Type) -> int:
        stack = [type_]
        while stack:
            current = stack[-1]
            parts = current.components() if isinstance(current, types.CompositeType) else ()
            bound = current.binds() if isinstance(current, types.CompositeType) else ()
            waiting = [p for p in (*bound, *parts) if p not in self._numbers]
            if current in self._numbers:
                stack.pop()
            elif waiting:
                stack.extend(reversed(waiting))
            else:
                stack.pop()
                self._numbers[current] = len(self.records)
                self.records.append(self._record(current))
        return self._numbers[type_]

    def _record(self, type_: types.Type) -> dict[str, Any]:
        kind = type(type_).__name__
        if isinstance(type_, types.TensorType):
            dims = [d if isinstance(d, int) else str(d) for d in type_.shape]
            return {"kind": kind, "shape": dims, "dtype": type_.dtype.name}
        if isinstance(type_, (types.TypeVar, types.GlobalTypeVar)):
            return {"kind": kind, "name": type_.name}
        if isinstance(type_, types.CompositeType):
            record = {"kind": kind, "parts": [self._numbers[p] for p in type_.components()]}
            if type_.binds():
                record["binds"] = [self._numbers[v] for v in type_.binds()]
            return record
        return {"kind": kind}


class TypeReader:
    """Types by number."""

    def __init__(self, records: Sequence[Mapping[str, Any]]) -> None:
        self._types: list[types.Type] = []
        for record in records:
            self._types.append(self._read(record))

    def type_(self, index: int) -> types.Type:
        return self._types[index]

    def variable(self, index: int) -> types.TypeVar:
        found = self._types[index]
        if not isinstance(found, types.TypeVar):
            raise TypeError(f"type {index} is not a type parameter")
        return found

    def _read(self, record: Mapping[str, Any]) -> types.Type:
        kind = record["kind"]
        if kind == "TensorType":
            dims = tuple(d if isinstance(d, int) else load_dim(d) for d in record["shape"])
            return types.TensorType(dims, DType.parse(record["dtype"]))
        if kind == "TypeVar":
            return types.TypeVar(record["name"])
        if kind == "GlobalTypeVar":
            return types.GlobalTypeVar(record["name"])
        if kind == "IncompleteType":
            return types.IncompleteType()
        parts = tuple(self._types[i] for i in record["parts"])
        if kind == "TupleType":
            return types.TupleType(parts)
        if kind == "RefType":
            return types.RefType(*parts)
        if kind == "TypeCall":
            return types.TypeCall(parts[0], parts[1:])
        bound = tuple(self.variable(i) for i in record.get("binds", ()))
        return types.FuncType(parts[:-1], parts[-1], bound)


def load_dim(text: str) -> Dim:
    """A symbolic dimension, in the syntax of the text form."""
    if text == str(AnyDim()):
        return ANY
    return parse_dim(text)
