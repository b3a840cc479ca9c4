"""Modules that a text may import by name (``import "prelude"``)."""

from __future__ import annotations

from collections.abc import Callable

from weft.ir.module import IRModule
from weft.support.registry import Registry

# Each is made on first use.
LIBRARIES: Registry[Callable[[], IRModule]] = Registry("library")
