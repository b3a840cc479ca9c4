"""Rewording help that names Python calls for the command line."""

from __future__ import annotations

import re

_SHAPES = re.compile(
    r"""(?:as\ in\ )?(?:(?:weft\.compile|from_onnx)\((?:model|module),\ )?
        inputs=\{"(?P<name>[^"]+)":\ \((?P<sizes>[^)]*)\)\}\)?""", re.VERBOSE)
_LOADED = re.compile(r"weft\.load\('(?P<path>[^']+)'\)")
_SPECIALIZE = re.compile(r",? or export model\.specialize\([^)]*\)\}\)")


def for_command_line(text: str) -> str:
    """``text`` with command-line options and commands instead of Python arguments and calls."""
    text = _SPECIALIZE.sub("", text)
    text = _LOADED.sub(lambda m: f"weft run {m['path']}", text)
    return _SHAPES.sub(lambda m: f"--input-shape {_quoted(m['name'], _with_x(m['sizes']))}", text)


def _quoted(name: str, sizes: str) -> str:
    """The value of the option, in quotes if it has a bound such as ``1<=n``, for the shell."""
    shape = f"{name}:{sizes}"
    return f'"{shape}"' if "<" in shape or ">" in shape else shape


def _with_x(sizes: str) -> str:
    """``"1, 3, 224, 224"`` as ``"1x3x224x224"``."""
    names = (size.strip().strip("\"'").replace(" ", "") for size in sizes.split(","))
    return "x".join(filter(None, names))
