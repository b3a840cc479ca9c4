"""Alias scopes: telling LLVM that buffers are disjoint.

``noalias`` on parameters is lost where a parallel body receives its pointers through memory, and
buffers carved from one workspace share a parameter. So every access carries its buffer's scope
and the scopes of all buffers that it cannot touch; invariant loads then leave loops and stores
do not block loads.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from weft.codegen.llvm.text.writer import ModuleWriter
from weft.tir.buffer import Buffer


class AliasScopes:
    """The suffix of metadata that accesses of each buffer carry."""

    def __init__(
        self, module: ModuleWriter, buffers: Sequence[Buffer], offsets: Mapping[Buffer, int]
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


def _may_overlap(a: Buffer, b: Buffer, offsets: Mapping[Buffer, int]) -> bool:
    """Buffers whose lifetimes differ may share bytes of the workspace; others never overlap."""
    if a is b:
        return True
    if a not in offsets or b not in offsets:
        return False
    size_a, size_b = a.static_bytes, b.static_bytes
    if size_a is None or size_b is None:
        return True
    return offsets[a] < offsets[b] + size_b and offsets[b] < offsets[a] + size_a
