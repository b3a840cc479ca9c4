"""Ahead-of-time artifacts: one file for ``weft.load``, or an object and sources for C."""

from weft.export.artifact import (
    ExportedEntry,
    NativeProgram,
    PortableText,
    export_artifact,
    write_artifact,
)
from weft.export.c_program import export_c

__all__ = ["ExportedEntry", "NativeProgram", "PortableText", "export_artifact", "export_c",
           "write_artifact"]
