"""What workers run that needs the operators of weft."""

from __future__ import annotations

import weft.op  # noqa: F401 - the registry that programs need
from weft.ir import IRModule


def text_of(program: IRModule) -> str:
    return str(program)
