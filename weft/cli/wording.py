"""Rewording help that names Python calls for the command line."""

from __future__ import annotations

import re

_SHAPES = re.compile(
    r"""(?:as\ in\ )?(?:(?:weft\.compile|from_onnx)\((?:model|module),\ )?
        inputs=\{"(?P<name>[^"]+)":\ \((?P<sizes>[^)]*)\)\}\)?""", re.VERBOSE)
_LOADED = re.compile(r"weft\.load\('(?P<path>[^']+)'\)")
_AT = re.compile(r",? or export model\.at\([^)]*\)\}\)")


def for_command_line(text: str) -> str:
    """``text`` with command-line options and commands instead of Python arguments and calls."""
    text = _AT.sub("", text)
    text = _LOADED.sub(lambda m: f"weft run {m['path']}", text)
    return _SHAPES.sub(lambda m: f"--input-shape {m['name']}:{_with_x(m['sizes'])}", text)


def _with_x(sizes: str) -> str:
    """``"1, 3, 224, 224"`` as ``"1x3x224x224"``."""
    return "x".join(size.strip().strip("\"'") for size in sizes.split(",") if size.strip())
