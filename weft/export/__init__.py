"""Ahead-of-time artifacts: linking objects, writing one file, or sources for C."""

from weft.export.artifact import export_artifact
from weft.export.c_program import export_c
from weft.export.linker import find_linkers, link_shared

__all__ = ["export_artifact", "export_c", "find_linkers", "link_shared"]
