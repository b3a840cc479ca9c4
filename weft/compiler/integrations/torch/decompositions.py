"""Which operators are taken apart while a graph is traced."""

from __future__ import annotations

from typing import Any

import torch
from torch._decomp import core_aten_decompositions, decomposition_table

from weft.frontend.torch import converters as _converters  # noqa: F401 - fills the table
from weft.frontend.torch.program import without_kept
from weft.frontend.torch.registry import find_converter


def decompositions() -> dict[Any, Any]:
    """Those of core ATen, and of every operator else that weft has no converter for.

    Operators that draw random numbers stay whole: torch runs them, as its seed says.
    """
    table = dict(core_aten_decompositions())
    for overload, function in decomposition_table.items():
        if isinstance(overload, torch._ops.OpOverload) and find_converter(str(overload)) is None:  # noqa: SLF001
            table.setdefault(overload, function)
    kept = without_kept(table)
    return {o: f for o, f in kept.items() if not _draws(o)}


def _draws(overload: Any) -> bool:
    return torch.Tag.nondeterministic_seeded in getattr(overload, "tags", ()) \
        and overload.namespace == "aten" and "attention" not in str(overload)
