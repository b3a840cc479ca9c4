"""Ahead-of-time artifacts: linking objects, writing one file."""

from weft.export.artifact import export_artifact
from weft.export.linker import find_linkers, link_shared

__all__ = ["export_artifact", "find_linkers", "link_shared"]
