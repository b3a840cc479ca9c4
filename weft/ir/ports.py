"""The names of the inputs and outputs of ``main``."""

from __future__ import annotations

from weft.ir.module import IRModule
from weft.ir.types import TupleType


def input_names(mod: IRModule) -> list[str]:
    """The names that the model gives (``attrs``), else those of the parameters."""
    params = mod["main"].params
    listed = mod.attrs.get("input_names")
    if isinstance(listed, (tuple, list)) and len(listed) == len(params):
        return [str(name) for name in listed]
    return [param.name for param in params]


def output_names(mod: IRModule) -> list[str]:
    """The names of the results of a typed module; results without names are ``output<n>``."""
    type_ = mod["main"].body.checked_type
    count = len(type_.fields) if isinstance(type_, TupleType) else 1
    return port_names(mod.attrs.get("output_names"), "output", count)


def port_names(given: object, stem: str, count: int) -> list[str]:
    """The names of ports given by the model, else ``stem`` with a number."""
    if isinstance(given, (tuple, list)) and len(given) == count:
        return [str(name) for name in given]
    return [stem] if count == 1 else [f"{stem}{i}" for i in range(count)]
