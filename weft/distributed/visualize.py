"""How tensors and programs are cut, as tables."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rich.table import Table
from rich.text import Text

from weft.ir import Call, Expr, GlobalVar, Op
from weft.ir.sharding import Mesh, Sharding
from weft.support.dataclass import dataclass
from weft.support.errors import OptionError
from weft.transform.sharding.blocks import calls_behind
from weft.transform.sharding.costs import call_cost, collective_name
from weft.transform.sharding.partition import Decided, Partitioned
from weft.transform.sharding.steps import block_of

if TYPE_CHECKING:
    from weft.distributed.predict import Predicted, Prediction

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
    for name in ("bytes", "behind"):
        table.add_column(name, justify="right")
    table.add_column("operands gathered because")
    behind = calls_behind(block_of(part.module))
    for decided in part.decisions:
        table.add_row(*_row(decided, [behind[c] for c in decided.collectives if c in behind]))
    table.caption = "behind: calls that a device computes while it waits for the bytes"
    table.caption_justify = "left"
    return table


def printed(shown: Any, width: int = 110) -> str:
    """The text of an object that rich shows as a table."""
    from rich.console import Console

    text = io.StringIO()
    Console(file=text, width=width).print(shown.__rich__())
    return text.getvalue().rstrip()


@dataclass(frozen=True)
class Explanation:
    """The computation and the exchange of each call of a plan, with the reasons."""

    part: Partitioned

    def __str__(self) -> str:
        return printed(self, width=140)

    def __rich__(self) -> Table:
        part, timed = self.part, bool(self.part.computing)
        sums = f"computing {part.computing * 1e6:,.1f} us, exchange {part.exchanging * 1e6:,.1f} us"
        table = Table(title=f"{part.mesh}: {sums}" if timed else str(part.mesh),
                      title_justify="left", caption=part.because or None, caption_justify="left")
        for name in ("operator", "results", "collectives"):
            table.add_column(name)
        for name in ("computing us", "exchange us", "bytes"):
            table.add_column(name, justify="right")
        table.add_column("because")
        for decided in part.decisions:
            table.add_row(*self._row(decided, timed))
        return table

    def _row(self, decided: Decided, timed: bool) -> list[str]:
        calls = decided.collectives
        names = ", ".join(dict.fromkeys(str(collective_name(c)) for c in calls))
        exchange = sum(call_cost(c, self.part.mesh) for c in calls)
        why = "; ".join(filter(None, (decided.because, decided.whole and
                                      f"operands gathered: {decided.whole}")))
        return [_called(decided), " ".join(map(str, decided.choice.results)), names,
                f"{decided.choice.seconds * 1e6:,.1f}" if decided.choice.seconds else "",
                f"{exchange * 1e6:,.1f}" if calls and timed else "",
                f"{decided.nbytes:,.0f}" if decided.nbytes else "", why]


def _called(decided: Decided) -> str:
    name = _name(decided.call)
    return name if decided.within is None else f"{name} of {_name(decided.within)}"


def _name(node: Expr) -> str:
    if not isinstance(node, Call):
        return "if"
    return f"@{node.op.name}" if isinstance(node.op, GlobalVar) else \
        node.op.name if isinstance(node.op, Op) else "results"


def _row(decided: Decided, behind: Sequence[int]) -> tuple[Any, ...]:
    choice = decided.choice
    return (_called(decided), " ".join(map(str, choice.results)), str(choice.parts),
            f"{decided.nbytes:,.0f}" if decided.nbytes else "",
            f"{min(behind)}" if behind else "", decided.whole)


def prediction_table(prediction: Prediction) -> Table:
    """The predicted times for each number of devices, beside the ideal ones."""
    table = Table(title=f"step over {prediction.axis}; a device is {prediction.target}",
                  title_justify="left")
    for name in ("devices", "predicted us", "ideal us", "efficiency", "exchange us", "bytes"):
        table.add_column(name, justify="right")
    table.add_column("no plan because")
    for row in prediction.rows:
        ideal = f"{row.ideal * 1e6:,.1f}"
        if row.why:
            table.add_row(str(row.devices), "", ideal, "", "", "", row.why)
        else:
            table.add_row(str(row.devices), f"{row.seconds * 1e6:,.1f}", ideal,
                          f"{row.ideal / row.seconds:.0%}", f"{row.exchanging * 1e6:,.1f}",
                          f"{row.nbytes:,.0f}", "")
    return table


def steps_table(row: Predicted) -> Table:
    """When a device begins each step, and how long it takes."""
    table = Table(title=f"{row.devices} devices: {row.seconds * 1e6:,.1f} us",
                  title_justify="left")
    table.add_column("step")
    for name in ("begins at us", "takes us", "bytes"):
        table.add_column(name, justify="right")
    for step in row.steps:
        table.add_row(step.step, f"{step.begin * 1e6:,.1f}",
                      f"{(step.end - step.begin) * 1e6:,.1f}",
                      f"{step.nbytes:,.0f}" if step.nbytes else "")
    return table
