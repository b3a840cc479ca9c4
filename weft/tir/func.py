"""``PrimFunc``: one function over buffers, the unit of lowering and code generation."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import field
from typing import Any

from weft.support.dataclass import dataclass
from weft.support.markup import shown_as_text
from weft.tir.buffer import Buffer
from weft.tir.expr import Var
from weft.tir.node import print_node
from weft.tir.stmt import Stmt


@dataclass(frozen=True, slots=True, eq=False)
class PrimFunc:
    """A function. ``params`` are buffers (pointers) and scalars (symbolic sizes, int64).

    Accessed parameters never alias. Keys of ``attrs``:

    - ``num_outputs``: the number of output buffers, which are the last parameters;
    - ``workspace_bytes``, ``workspace_offsets``: set by ``plan_workspace``. Compiled code takes a
      further pointer to the workspace, in which each buffer has its byte offset: an integer, or an
      expression over the scalars. Buffers with symbolic offsets share no memory. The size is an
      integer or a text of ``weft.runtime.sizes`` over the program's symbols;
    - ``task_scratch``: the ``TaskScratch`` of buffers of symbolic size in parallel loops;
    - ``shared_offsets``: the byte offset of each shared buffer in the memory of a block, set by
      ``plan_shared``;
    - ``python_functions``: the Python functions that ``call_extern`` may call, by symbol;
    - ``foreign_kernels``: the kernels of other compilers that it may launch, by symbol;
    - ``in_place``: the index of a parameter that is not accessed, because its values are in the
      memory of the last parameter (see ``reuse_input``);
    - ``implementation``, ``flops``: for reports.
    """

    name: str
    params: tuple[Buffer | Var, ...]
    body: Stmt
    attrs: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return print_node(self)

    _repr_html_ = shown_as_text

    def replace(self, **changes: Any) -> PrimFunc:
        if all(getattr(self, name) is value for name, value in changes.items()):
            return self
        return dataclasses.replace(self, **changes)

    def with_attrs(self, **attrs: Any) -> PrimFunc:
        return dataclasses.replace(self, attrs={**self.attrs, **attrs})
