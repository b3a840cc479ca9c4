"""Checks of the operator and the target kind that a function is registered for."""

from __future__ import annotations

import weft.op  # noqa: F401 - makes the operators known
from weft.ir.op import OPS
from weft.support.errors import RegistryError
from weft.support.suggestion import did_you_mean
from weft.target import TARGET_KINDS


def check_operator(op_name: str, target: str) -> None:
    """Raise ``RegistryError`` for an unknown operator or target kind."""
    if op_name not in OPS:
        OPS.get(op_name)  # raises the error
    check_kind(target)


def check_kind(target: str) -> None:
    """Raise ``RegistryError`` for an unknown target kind."""
    if target not in TARGET_KINDS:
        raise RegistryError(f"unknown kind of target {target!r}", expected=", ".join(TARGET_KINDS),
                            help=did_you_mean(target, TARGET_KINDS))
