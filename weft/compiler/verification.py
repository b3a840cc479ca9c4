"""``WEFT_VERIFY``: checks that a pass keeps the results and side effects of a program."""

from __future__ import annotations

from weft.ir import IRModule
from weft.support.config import config
from weft.transform import check_same_values
from weft.transform.analysis.effects import touches_references


def compare_modules(before: IRModule, after: IRModule) -> None:
    """Level 3: evaluate both on the same random inputs; ``InternalError`` if results differ.

    Programs whose inputs are tuples or have dynamic shapes are not compared.
    """
    check_same_values(before, after, seed=config.seed)


def compare_effects(before: IRModule, after: IRModule) -> None:
    """Level 2: ``compare_modules`` of programs with references, whose effects have no types."""
    if touches_references(before) or touches_references(after):
        compare_modules(before, after)
