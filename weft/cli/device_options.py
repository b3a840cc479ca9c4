"""``--devices``, ``--placement`` and ``--soft-placement`` of the commands that compile."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])


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
