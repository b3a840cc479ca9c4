"""Typed access to the attributes of a node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from onnx import AttributeProto, NodeProto, TensorProto

from weft.support.dataclass import dataclass
from weft.support.errors import InvalidModelError

_FIELDS: dict[int, str] = {
    AttributeProto.INT: "i",
    AttributeProto.INTS: "ints",
    AttributeProto.FLOAT: "f",
    AttributeProto.FLOATS: "floats",
    AttributeProto.STRING: "s",
    AttributeProto.STRINGS: "strings",
    AttributeProto.TENSOR: "t",
}


@dataclass(frozen=True)
class Attributes:
    """The attributes of a node; the getters raise ``InvalidModelError`` for the wrong type."""

    values: Mapping[str, AttributeProto]
    where: object

    @staticmethod
    def of(node: NodeProto, where: object) -> Attributes:
        values: dict[str, AttributeProto] = {}
        for attribute in node.attribute:
            if attribute.name in values:
                raise InvalidModelError(
                    f"attribute {attribute.name!r} of {node.op_type} is given twice", where=where
                )
            values[attribute.name] = attribute
        return Attributes(values, where)

    def __contains__(self, name: str) -> bool:
        return name in self.values

    def integer(self, name: str, default: int) -> int:
        value = self._read(name, AttributeProto.INT)
        return default if value is None else int(value)

    def flag(self, name: str, default: bool = False) -> bool:
        """Read an integer attribute as a bool; values other than 0 and 1 are rejected."""
        value = self.integer(name, int(default))
        if value not in (0, 1):
            raise InvalidModelError(
                f"attribute {name!r} is neither 0 nor 1", where=self.where, got=str(value)
            )
        return bool(value)

    def number(self, name: str, default: float) -> float:
        """Read a float attribute; ``default`` is rounded to float32 as in the ONNX standard."""
        value = self._read(name, AttributeProto.FLOAT)
        return float(np.float32(default)) if value is None else float(value)

    def text(self, name: str, default: str) -> str:
        value = self._read(name, AttributeProto.STRING)
        return default if value is None else self._decoded(name, value)

    def texts(self, name: str) -> tuple[str, ...] | None:
        values = self._read(name, AttributeProto.STRINGS)
        return None if values is None else tuple(self._decoded(name, v) for v in values)

    def _decoded(self, name: str, value: bytes) -> str:
        try:
            return str(value, "utf-8")
        except UnicodeDecodeError:
            raise InvalidModelError(
                f"attribute {name!r} is not UTF-8 text", where=self.where, got=repr(value[:40])
            ) from None

    def integers(self, name: str) -> tuple[int, ...] | None:
        value = self._read(name, AttributeProto.INTS)
        return None if value is None else tuple(int(v) for v in value)

    def numbers(self, name: str) -> tuple[float, ...] | None:
        value = self._read(name, AttributeProto.FLOATS)
        return None if value is None else tuple(float(v) for v in value)

    def tensor(self, name: str) -> TensorProto | None:
        return self._read(name, AttributeProto.TENSOR)

    def one_of(self, name: str, default: str, choices: Sequence[str]) -> str:
        """Read a string attribute that must be one of ``choices``."""
        value = self.text(name, default)
        if value not in choices:
            raise InvalidModelError(
                f"attribute {name!r} has an unknown value",
                where=self.where,
                expected=", ".join(choices),
                got=repr(value),
            )
        return value

    def _read(self, name: str, kind: AttributeProto.AttributeType.ValueType) -> Any:
        attribute = self.values.get(name)
        if attribute is None:
            return None
        if attribute.type != kind or attribute.ref_attr_name:
            raise InvalidModelError(
                f"attribute {name!r} has the wrong type",
                where=self.where,
                expected=AttributeProto.AttributeType.Name(kind),
                got=_type_name(attribute.type),
            )
        return getattr(attribute, _FIELDS[kind])


def _type_name(code: int) -> str:
    names = AttributeProto.AttributeType.DESCRIPTOR.values_by_number
    return names[code].name if code in names else f"number {code}"
