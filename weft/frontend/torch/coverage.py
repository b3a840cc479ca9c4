"""What weft does with each operator of torch's core ATen set and of its prims."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
import torch._prims

from weft.frontend.torch.calls import takes_overload
from weft.frontend.torch.program import decompositions
from weft.support.dataclass import dataclass

_LAYOUT = "strides and offsets of memory are no part of a weft tensor"
_WRITES = "it writes to its argument; torch.export gives the operator that returns the result"
_FUNCTION = "torch.export keeps the ATen operator, which weft converts or torch decomposes"
# By operator, why neither weft nor torch has an equivalent that an exported program could hold.
REFUSED: Mapping[str, str] = {
    "aten.sym_storage_offset": _LAYOUT, "prims.as_strided": _LAYOUT,
    "prims.as_strided_scatter": _LAYOUT, "prims.empty_strided": _LAYOUT,
    "prims.view_of": _LAYOUT, "prims.copy_strided": _LAYOUT,
    "aten.resize_": _WRITES, "prims.copy_to": _WRITES, "prims.resize": _WRITES,
}


@dataclass(frozen=True)
class Covered:
    """An operator, and how weft reads it: ``"converter"``, ``"decomposition"``, or a reason."""

    name: str
    how: str


def core_operators() -> Iterator[Any]:
    """The overloads of ATen that torch tags as core."""
    return (op for op in _overloads("aten") if torch.Tag.core in op.tags)


def prims_operators() -> Iterator[Any]:
    """The overloads of prims, without those that torch's own compiler adds when it is imported."""
    names = set(torch._prims.__all__)  # noqa: SLF001 - torch has no public list
    return (op for op in _overloads("prims") if op.overloadpacket.__name__ in names)


def _overloads(library: str) -> Iterator[Any]:
    for name in sorted(torch._C._dispatch_get_all_op_names()):  # noqa: SLF001 - torch has no public list
        own, _, operator = name.partition("::")
        packet, _, overload = operator.partition(".")
        if own == library:
            yield getattr(getattr(getattr(torch.ops, library), packet), overload or "default")


def covered() -> list[Covered]:
    """All operators of the core set and prims."""
    table = decompositions()
    return [Covered(str(op), _how(op, table)) for op in (*core_operators(), *prims_operators())]


def _how(overload: Any, table: Mapping[Any, Any]) -> str:
    if takes_overload(overload):
        return "converter"
    if overload in table:
        return "decomposition"
    name = str(overload).rpartition(".")[0]
    if name in REFUSED:
        return REFUSED[name]
    # torch writes prims where a decomposition goes below ATen, which weft's table stops.
    return _FUNCTION if name.startswith("prims.") else ""


def coverage_lines() -> list[str]:
    """The counts for each set, as rows of a table of docs/pytorch.md."""
    found = covered()
    lines = []
    for title, prefix in (("core ATen", "aten."), ("prims", "prims.")):
        own = [one for one in found if one.name.startswith(prefix)]
        counts = [sum(one.how == how for one in own) for how in ("converter", "decomposition")]
        lines.append(f"| {title} | {len(own)} | {counts[0]} | {counts[1]} "
                     f"| {len(own) - sum(counts)} |")
    return lines
