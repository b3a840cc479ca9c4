"""Options of the commands that compile: devices, variants for sizes, and what to say of plans."""

from __future__ import annotations

import itertools
import re
import sys
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, TypeVar

import click

import weft
from weft.support.stage_times import StageTimes

F = TypeVar("F", bound=Callable[..., Any])
# Sizes by symbol, all of which a variant is for: {"batch": 1, "seq": (2, 16)}.
Sizes: TypeAlias = "dict[str, int | tuple[int, int]]"
_RANGE = re.compile(r"(\d+)(?:\.\.(\d+))?")


def device_options(function: F) -> F:
    """The options for programs on several devices."""
    for decorate in reversed((
        click.option("--devices", default=None, metavar="LIST",
                     help="spread the program over these devices: sim:0,sim:1,cpu"),
        click.option("--placement", default=None, metavar="HOW",
                     help='by "cost", by "profile", or by names of tensors: relu_3=sim:1,... '
                          "(default: by the annotations of the program)"),
        click.option("--soft-placement", is_flag=True,
                     help="run on the first device what names a device that is not listed"),
    )):
        function = decorate(function)
    return function


def device_arguments(devices: str | None, placement: str | None, *, soft_placement: bool
                     ) -> dict[str, Any]:
    """The arguments of ``weft.compile`` for these options."""
    made: dict[str, Any] = {}
    if devices is not None:
        made["devices"] = [name.strip() for name in devices.split(",") if name.strip()]
    if placement is not None:
        made["placement"] = placement if "=" not in placement else dict(
            _pair(one) for one in placement.split(","))
    if soft_placement:
        made["soft_placement"] = True
    return made


def _pair(text: str) -> tuple[str, str]:
    name, equals, device = text.rpartition("=")
    if not equals or not name:
        raise click.BadParameter(f"{text!r} is not TENSOR=DEVICE", param_hint="--placement")
    return name.strip(), device.strip()


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


def plan_options(function: F) -> F:
    """The options about what weft does instead of what was asked for."""
    for decorate in reversed((
        click.option("--strict", is_flag=True,
                     help="refuse what weft otherwise warns of, such as kernels on the host"),
        click.option("--timing", is_flag=True,
                     help="say how long the compilation took and how that splits into stages, "
                          "whether it started from the cache and if not, why, and what weft does "
                          "instead of what was asked for"),
    )):
        function = decorate(function)
    return function


def show_timing(module: weft.Executable, seconds: float, times: StageTimes) -> None:
    """Write the time, its split and ``explain()`` of a compiled model to standard error."""
    from weft.compiler.report.timing import timing_table

    sys.stderr.write(f"compiled in {seconds:.2f} s\n{timing_table(times, seconds)}\n"
                     f"{module.explain()}\n")
