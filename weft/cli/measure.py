"""``weft calibrate``: measure this machine."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from weft.cli.output import plot_option, plots, write_plot


@click.command("calibrate")
@click.option("--show", is_flag=True, help="show what is known, and measure nothing")
@click.option("--force", is_flag=True, help="measure again")
@click.option("--json", "as_json", is_flag=True, help="print as JSON")
@plot_option("what a core loads from each cache")
def calibrate_command(plot: Path | None, *, show: bool, force: bool, as_json: bool) -> None:
    """Measure this machine in about a second: ports, clock, caches, memory, threads.

    The result is kept in the cache folder, and decisions for this machine follow it from then on.
    Without it they follow the shipped table of the CPU. Run it while the machine is idle.
    """
    # Help of the command is printed without the compiler.
    from weft.cli.common import print_json, print_table, session
    from weft.cli.machines import known_values
    from weft.compiler.first_calibration import calibrate_and_store
    from weft.target import CpuTarget
    from weft.target.host_machine import needs_calibration, stored_machine

    host = CpuTarget.host()
    if not show and (force or not stored_machine()):
        with session():
            calibrate_and_store(host)
        host = CpuTarget.host()
    rows, title = known_values(host)
    write_plot(plot, lambda: plots().bars_svg(title, [
        plots().Bar(row.name, row.used, f"{row.used:.4g}") for row in rows
        if row.unit == "bytes/cycle"], note="bytes per cycle"))
    if as_json:
        print_json({"machine": host.machine, "from": title,
                    "values": list(map(asdict, rows))})
        return
    print_table(title, ("value", "found", "used", "unit", "kind", "from"),
                [row.texts() for row in rows])
    if needs_calibration(host.cpu, host.arch):
        click.echo("\nno table describes this CPU; weft calibrate measures it")
