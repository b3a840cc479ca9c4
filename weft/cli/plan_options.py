"""``--strict`` and ``--timing`` of ``weft compile``."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TypeVar

import click

import weft

F = TypeVar("F", bound=Callable[..., object])


def plan_options(function: F) -> F:
    """The options about what weft does instead of what was asked for."""
    for decorate in reversed((
        click.option("--strict", is_flag=True,
                     help="refuse what weft otherwise warns of, such as kernels on the host"),
        click.option("--timing", is_flag=True,
                     help="say how long the compilation took, whether it started from the cache "
                          "and if not, why, and what weft does instead of what was asked for"),
    )):
        function = decorate(function)
    return function


def show_timing(module: weft.Executable, seconds: float) -> None:
    """Write the time and ``explain()`` of a compiled model to standard error."""
    sys.stderr.write(f"compiled in {seconds:.2f} s\n{module.explain()}\n")
