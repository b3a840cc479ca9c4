"""Print the program within a pipeline."""

from __future__ import annotations

import sys
from typing import ClassVar

from weft.ir import IRModule, Pass, PassContext, as_text, register_pass
from weft.support.dataclass import dataclass


@register_pass
@dataclass(frozen=True)
class PrintIR(Pass):
    """Write the module to standard error under ``header``, and leave it unchanged.

    ``types`` adds the inferred types as comments, ``metadata`` the bytes of large constants;
    ``functions`` restricts the output to these. ``config["print_ir_stream"]`` may name another
    stream.

    def @main(%x: Tensor[(4,), float32]) { exp(%x) }
    =>
    def @main(%x: Tensor[(4,), float32]) { exp(%x) }
    """

    name: ClassVar[str] = "print_ir"
    opt_level: ClassVar[int] = 0
    header: str = ""
    types: bool = True
    metadata: bool = False
    functions: tuple[str, ...] = ()

    def run_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
        shown = mod
        if self.functions:
            shown = mod.without(*(n for n in mod.functions if n not in self.functions))
        text = as_text(shown, metadata=self.metadata, types=self.types)
        stream = ctx.config.get("print_ir_stream") or sys.stderr
        stream.write(f"// {self.header}\n{text}" if self.header else text)
        return mod
