"""Alias scopes: metadata that tells LLVM which buffers are disjoint.

The ``noalias`` attribute of parameters is not enough: a parallel body loads its pointers from
memory, and buffers in the workspace share one parameter. So each access carries the alias scope of
its buffer and a ``noalias`` list of all other buffers. LLVM can then hoist invariant loads out of
loops and move loads across stores.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from weft.codegen.ir_text.writer import ModuleWriter
from weft.tir import Buffer, PrimExpr


class AliasScopes:
    """For each buffer, the metadata suffix of its loads and stores."""

    def __init__(
        self, module: ModuleWriter, buffers: Sequence[Buffer],
        offsets: Mapping[Buffer, int | PrimExpr],
    ) -> None:
        self._suffix: dict[Buffer, str] = {}
        if len(buffers) < 2:
            return
        domain = module.metadata("distinct !{!N}")
        scopes = {b: module.metadata(f"distinct !{{!N, {domain}}}") for b in buffers}
        for buffer in buffers:
            own = module.metadata(f"!{{{scopes[buffer]}}}")
            others = [s for b, s in scopes.items() if not _may_overlap(b, buffer, offsets)]
            suffix = f", !alias.scope {own}"
            if others:
                suffix += f", !noalias {module.metadata('!{' + ', '.join(others) + '}')}"
            self._suffix[buffer] = suffix

    def suffix(self, buffer: Buffer) -> str:
        return self._suffix.get(buffer, "")


def _may_overlap(a: Buffer, b: Buffer, offsets: Mapping[Buffer, int | PrimExpr]) -> bool:
    """Whether two buffers may share memory.

    Only workspace buffers with constant offsets can: those with disjoint live ranges may be
    assigned the same bytes.
    """
    if a is b:
        return True
    if a not in offsets or b not in offsets:
        return False
    first, second = offsets[a], offsets[b]
    if isinstance(first, PrimExpr) or isinstance(second, PrimExpr):
        return False
    size_a, size_b = a.static_bytes, b.static_bytes
    if size_a is None or size_b is None:
        return True
    return first < second + size_b and second < first + size_a
