"""Make positions in the printed program the spans of its nodes."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from weft.ir import IRModule, Pass, PassContext, as_text, parse, register_pass
from weft.support.dataclass import dataclass


@register_pass
@dataclass(frozen=True)
class AnnotateSpans(Pass):
    """Print the module and read it back, so that errors of later passes name lines of the text.

    ``source`` names the text in those spans; with ``path``, the text is also written to a file.

    def @main(%x: Tensor[(4,), float32]) { exp(%x) }
    =>
    def @main(%x: Tensor[(4,), float32]) { exp(%x) }
    """

    name: ClassVar[str] = "annotate_spans"
    opt_level: ClassVar[int] = 0
    source: str = "annotated.ir"
    path: str | None = None

    def run_module(self, mod: IRModule, ctx: PassContext) -> IRModule:  # noqa: ARG002
        text = as_text(mod)
        if self.path is not None:
            Path(self.path).write_text(text, encoding="utf-8")
        return parse(text, source=self.path or self.source)
