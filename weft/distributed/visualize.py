"""How tensors and programs are cut, as tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from weft.ir import Op
from weft.ir.sharding import Mesh, Sharding
from weft.support.errors import OptionError
from weft.transform.sharding.partition import Decided, Partitioned

_COLOURS = ("cyan", "magenta", "green", "yellow", "blue", "red", "bright_cyan", "bright_magenta")


def visualize_sharding(shape: Sequence[int], sharding: Sharding, mesh: Mesh) -> Table:
    """A picture of which devices hold which part of a tensor of at most two dimensions.

    Print it with ``rich``. Raises ``OptionError`` for more dimensions, and for a mesh that does not
    divide the shape.
    """
    if len(shape) > 2:
        raise OptionError("a picture has at most two dimensions", got=f"{len(shape)} dimensions")
    sharding.local_shape(shape, mesh)
    rows, columns = ([mesh.parts(axes) for axes in sharding.dims] + [1, 1])[:2]
    if len(shape) == 1:
        rows, columns = 1, rows
    holders: dict[tuple[int, int], list[int]] = {}
    for device in range(mesh.size):
        place = [mesh.index(device, axes) for axes in sharding.dims]
        row, column = ([0] * (2 - len(place)) + place)[:2]
        holders.setdefault((row, column), []).append(device)
    table = Table(show_header=False, show_lines=True, title=f"{tuple(shape)} {sharding}")
    for row in range(rows):
        table.add_row(*(_cell(holders[row, column]) for column in range(columns)))
    return table


def _cell(devices: list[int]) -> Text:
    return Text(", ".join(map(str, devices)), style=_COLOURS[devices[0] % len(_COLOURS)])


def plan_table(part: Partitioned) -> Table:
    """The calls, how their results are cut, and the bytes that each device receives."""
    table = Table(title=f"{part.mesh}: {part.bytes_received:,.0f} bytes received per device",
                  title_justify="left")
    for name in ("operator", "results", "parts"):
        table.add_column(name)
    table.add_column("bytes", justify="right")
    table.add_column("operands gathered because")
    for decided in part.decisions:
        table.add_row(*_row(decided))
    return table


def _row(decided: Decided) -> tuple[Any, ...]:
    call, choice = decided.call, decided.choice
    name = call.op.name if isinstance(call.op, Op) else "results"
    return (name, " ".join(map(str, choice.results)), str(choice.parts),
            f"{choice.nbytes:,.0f}" if choice.nbytes else "", decided.whole)
