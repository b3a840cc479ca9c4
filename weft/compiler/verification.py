"""``WEFT_VERIFY``: a pass must not change what a program computes, nor what it does."""

from __future__ import annotations

from weft.ir import IRModule
from weft.support.config import config
from weft.transform import check_same_values
from weft.transform.analysis.effects import touches_references


def compare_modules(before: IRModule, after: IRModule) -> None:
    """Level 3: evaluate both on the same random inputs; ``InternalError`` where they differ.

    Programs whose inputs have no random values (tuples, open sizes) are not compared.
    """
    check_same_values(before, after, seed=config.seed)


def compare_effects(before: IRModule, after: IRModule) -> None:
    """Level 2: the same, of programs with references alone, whose effects no type speaks of."""
    if touches_references(before) or touches_references(after):
        compare_modules(before, after)
