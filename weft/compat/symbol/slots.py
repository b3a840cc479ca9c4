"""Attributes of operators by key, with priorities (NNVM's ``Op::set_attr`` and ``GetAttr``).

A slot maps operators to values, functions mostly. Slots that follow from weft's operator records
(patterns, computes, gradients, names of inputs) need no registration.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Any

from weft.compat.symbol.operator import SymbolOp, operator, operator_of
from weft.ir.op import Op
from weft.support.dataclass import dataclass
from weft.support.errors import OptionError, RegistryError
from weft.support.registry import Origin

DEFAULT_PLEVEL = 10
HIGHEST_PLEVEL = 127


@dataclass(frozen=True, slots=True)
class _Value:
    value: Any
    plevel: int
    origin: Origin


_SLOTS: dict[str, dict[str, _Value]] = {}


def set_attr(op: str | SymbolOp | Op, key: str, value: Any, plevel: int = DEFAULT_PLEVEL) -> None:
    """Set slot ``key`` of an operator; one of higher priority stays, one of lower is replaced.

    ``plevel`` is between 1 and 127. Raises ``RegistryError`` for a second value of the same
    priority, ``OptionError`` for a priority out of range.
    """
    if not 0 < plevel <= HIGHEST_PLEVEL:
        raise OptionError("priority of an attribute out of range", got=plevel,
                          expected=f"1 to {HIGHEST_PLEVEL}")
    name = _found(op).name
    origin = Origin.of_caller()
    slot = _SLOTS.setdefault(key, {})
    before = slot.get(name)
    if before is not None and before.plevel == plevel and not origin.repeats(before.origin):
        raise RegistryError(f"attribute {key} of operator {name!r} is set twice",
                            got=f"priority {plevel}",
                            help="give the value that shall win a higher plevel")
    if before is None or before.plevel <= plevel:
        slot[name] = _Value(value, plevel, origin)


def reset_attr(op: str | SymbolOp | Op, key: str) -> None:
    """Remove the registered value of a slot (NNVM's ``reset_attr``)."""
    _SLOTS.get(key, {}).pop(_found(op).name, None)


def get_attr(op: str | SymbolOp | Op, key: str, default: Any = None) -> Any:
    """The value of slot ``key``: the registered one, that of the operator record, or ``default``.

    Raises ``RegistryError`` for an unknown operator.
    """
    found = _found(op)
    known = registered(found, key)
    if known is not None:
        return known
    derive = DERIVED.get(key)
    value = None if derive is None else derive(found)
    return default if value is None else value


def registered(op: SymbolOp, key: str) -> Any:
    """The value that ``set_attr`` has given a slot, or ``None``."""
    known = _SLOTS.get(key, {}).get(op.name)
    return None if known is None else known.value


def _found(op: str | SymbolOp | Op) -> SymbolOp:
    if isinstance(op, str):
        return operator(op)
    return op if isinstance(op, SymbolOp) else operator_of(op)


def has_attr(op: str | SymbolOp | Op, key: str) -> bool:
    """Whether ``get_attr`` finds a value."""
    return get_attr(op, key, _MISSING) is not _MISSING


_MISSING = object()


def _of_record(get: Callable[[Op], Any]) -> Callable[[SymbolOp], Any]:
    return lambda found: None if found.op is None else get(found.op)


# The counterparts of NNVM's keys on weft's records. FTVMSchedule and FTVMAlterOpLayout have none:
# strategies decide (``weft.strategy``) unless a user sets them (``overrides``).
DERIVED: dict[str, Callable[[SymbolOp], Any]] = {
    "FListInputNames": lambda found: found.inputs,
    "FNumOutputs": lambda _: attrgetter("num_outputs"),  # of a node
    "FCorrectLayout": _of_record(lambda op: op.hook("layout")),
    "FTVMCompute": _of_record(lambda op: op.compute),
    "FInplaceIdentity": _of_record(lambda op: op.traits.is_reshape or None),
    "TOpPattern": _of_record(lambda op: op.pattern),
    "TIsBackward": lambda found: found.name.endswith("_backward")
    or found.name.startswith("_backward_") or None,
    "FInferType": _of_record(lambda op: op.relation),
}
