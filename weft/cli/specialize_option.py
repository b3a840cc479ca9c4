"""The option ``--specialize``: sizes for which kernels get variants."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])
# Sizes by symbol, all of which a variant is for: {"batch": 1, "seq": (2, 16)}.
Sizes: TypeAlias = "dict[str, int | tuple[int, int]]"

_RANGE = re.compile(r"(\d+)(?:\.\.(\d+))?")


class SpecializeOption(click.ParamType):
    """Sizes by symbol, such as ``seq=1,128`` or ``batch=1 seq=2..16``."""

    name = "sizes"

    def convert(self, value: Any, param: Any, ctx: Any) -> list[Sizes]:
        if isinstance(value, list):
            return value
        choices = [self._choices(part, param, ctx) for part in value.split()]
        if not choices:
            self.fail("no sizes are given", param, ctx)
        return [dict(chosen) for chosen in itertools.product(*choices)]

    def _choices(self, text: str, param: Any, ctx: Any
                 ) -> list[tuple[str, int | tuple[int, int]]]:
        name, _, sizes = text.partition("=")
        found = [_RANGE.fullmatch(one) for one in sizes.split(",")]
        if not name or None in found:
            self.fail(f"{text!r} is not NAME=SIZES, such as seq=1,128 or seq=2..16", param, ctx)
        return [(name, (int(one[1]), int(one[2])) if one[2] else int(one[1]))
                for one in found if one is not None]


def specialize_option(function: F) -> F:
    """Add the option, whose values are lists of variants."""
    return click.option(
        "--specialize", "variants", type=SpecializeOption(), multiple=True,
        help='kernels for sizes of symbols (repeatable): "seq=1,128", a range as "seq=2..16", '
             'products as "batch*seq=1..8", sizes that belong together as "batch=1 seq=1"',
    )(function)


def all_variants(values: Sequence[Sequence[Sizes]]) -> list[Sizes] | None:
    """``specialize`` of ``weft.compile`` for the values of the option; ``None`` without any."""
    return list(itertools.chain.from_iterable(values)) or None
