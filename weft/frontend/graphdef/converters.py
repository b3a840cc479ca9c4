"""Import of all converter modules, which register their converters in ``registry``."""

from __future__ import annotations

from weft.frontend.graphdef.ops import structure as ops_structure

__all__ = ["ops_structure"]
