"""Remove functions that are unreachable from the entry points."""

from __future__ import annotations

from typing import ClassVar

from weft.ir import GlobalVar, IRModule, Pass, PassContext, post_order, register_pass
from weft.support.dataclass import dataclass
from weft.support.errors import PassError


@register_pass
@dataclass(frozen=True)
class RemoveUnusedFunctions(Pass):
    """Keep only the functions that ``entries`` call, directly or indirectly.

    def @main(%x: Tensor[(4,), float32]) { exp(%x) }
    def @unused(%x: Tensor[(4,), float32]) { log(%x) }
    =>
    def @main(%x: Tensor[(4,), float32]) { exp(%x) }
    """

    name: ClassVar[str] = "remove_unused_functions"
    opt_level: ClassVar[int] = 1
    entries: tuple[str, ...] = ("main",)

    def run_module(self, mod: IRModule, ctx: PassContext) -> IRModule:  # noqa: ARG002
        missing = [e for e in self.entries if e not in mod]
        if missing:
            raise PassError(f"unknown function @{missing[0]}",
                            expected=", ".join(f"@{n}" for n in mod.functions))
        if all(name in self.entries for name in mod.functions):
            return mod
        reached: set[str] = set()
        pending = list(self.entries)
        while pending:
            name = pending.pop()
            if name in reached or name not in mod:
                continue
            reached.add(name)
            callees = (e for e in post_order(mod[name]) if isinstance(e, GlobalVar))
            pending.extend(e.name for e in callees)
        unused = [n for n in mod.functions if n not in reached]
        return mod.without(*unused) if unused else mod
