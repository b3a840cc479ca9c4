"""A loop program: one function over buffers."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from weft.tir.buffer import Buffer
from weft.tir.expr import Var
from weft.tir.stmt import Stmt, print_node


@dataclass(frozen=True, slots=True, eq=False)
class PrimFunc:
    """``params`` are buffers (passed as pointers) and scalar variables (symbolic sizes, int64).

    Parameters that are accessed never alias. ``attrs``: ``num_outputs`` (the last so many buffers
    are written), ``workspace_bytes`` and ``workspace_offsets`` (set by ``plan_workspace``: compiled
    code then takes a trailing pointer ``workspace``, and the ``Allocate`` of each buffer in
    ``workspace_offsets`` stands for the memory at that byte offset; all are disjoint),
    ``python_functions`` (what ``call_extern`` finds by symbol, beside the runtime's functions),
    ``in_place`` (the number of a parameter that is not accessed, for its values are in the last
    one: see ``reuse_input``), and facts for people (``implementation``, ``flops``).
    """

    name: str
    params: tuple[Buffer | Var, ...]
    body: Stmt
    attrs: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return print_node(self)

    def replace(self, **changes: Any) -> PrimFunc:
        if all(getattr(self, name) is value for name, value in changes.items()):
            return self
        return dataclasses.replace(self, **changes)

    def with_attrs(self, **attrs: Any) -> PrimFunc:
        return dataclasses.replace(self, attrs={**self.attrs, **attrs})
