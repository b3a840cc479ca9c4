"""Operators by attribute: ``op.dense(x, units=3)``, ``op.nn.relu(x)``."""

from __future__ import annotations

from typing import Any

from weft.compat.symbol.operator import NNVM_OPS, OWN
from weft.compat.symbol.symbol import Symbol, apply_operator
from weft.ir.op import OPS
from weft.support.suggestion import did_you_mean


class OperatorNames:
    """An operator, or a group of operators; calls make nodes (``apply_operator``)."""

    __slots__ = ("_name",)

    def __init__(self, name: str = "") -> None:
        self._name = name

    def __getattr__(self, name: str) -> OperatorNames:
        full = f"{self._name}.{name}" if self._name else name
        own = full.removeprefix(OWN)
        known = full in NNVM_OPS or own in OPS or full == OWN.rstrip(".") \
            or any(n.startswith(f"{own}.") for n in OPS)
        if not known:
            hint = did_you_mean(full, [*NNVM_OPS, *OPS], "weft ops lists the operators")
            raise AttributeError(f"unknown operator {full!r}; {hint}")
        return OperatorNames(full)

    def __call__(self, *args: Symbol, name: str | None = None, **kwargs: Any) -> Symbol:
        """See ``apply_operator``."""
        return apply_operator(self._name, *args, name=name, **kwargs)

    def __dir__(self) -> list[str]:
        prefix = f"{self._name}." if self._name else ""
        return sorted({known[len(prefix):].split(".")[0] for known in (*NNVM_OPS, *OPS)
                       if known.startswith(prefix)})

    def __repr__(self) -> str:
        return f"<operator {self._name or 'names'}>"


op = OperatorNames()
