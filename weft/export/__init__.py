"""Ahead-of-time artifacts: one file for ``weft.load``, or an object and sources for C."""

from weft.export.artifact import export_artifact
from weft.export.c_program import export_c

__all__ = ["export_artifact", "export_c"]
