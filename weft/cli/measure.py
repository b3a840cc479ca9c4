"""``weft tune`` and ``weft calibrate``: measure kernels, and this machine."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

import weft
from weft.cli.common import compile_options, session
from weft.cli.models import ModelFile
from weft.cli.output import check_writable, plot_option, plots, write_plot


@click.command("tune")
@click.argument("model", type=ModelFile())
@click.option("--records", required=True, type=click.Path(path_type=Path, dir_okay=False),
              help="records file to append measured times to")
@compile_options
@click.option("--threads", type=click.IntRange(1), default=None,
              help="threads of the code that is timed (default: WEFT_THREADS, else all CPUs)")
@click.option("--seconds", type=click.FloatRange(min=0, min_open=True), default=0.1,
              show_default=True, help="time for each implementation of each kernel")
@plot_option("the times of the cost model's choices, and of the fastest,")
@click.option("--again", is_flag=True, help="also time implementations that the file has")
def tune_command(model: str, records: Path, target: str | None,
                 shapes: tuple[tuple[str, tuple[object, ...]], ...], opt_level: int,
                 threads: int | None, seconds: float,
                 plot: Path | None, *, again: bool) -> None:
    """Time the candidate implementations of each kernel of MODEL and record the results.

    Tuning is optional: by default implementations are selected by a model of registers, caches and
    threads. Where that model is wrong for a machine, the records override it.

    \b
    weft tune model.onnx --records here.jsonl
    WEFT_RECORDS=here.jsonl weft bench model.onnx
    """
    check_writable(records)
    with session(threads):
        report = weft.autotune(model, records, target=target, inputs=dict(shapes) or None,
                               opt_level=opt_level, seconds=seconds, again=again)
    if report.tuned:
        click.echo(report.table())
    write_plot(plot, lambda: plots().tuning_plot(Path(model).name, report))
    click.echo(f"{len(report.tuned)} of {report.kernels} kernels had several candidates; "
               f"use the times with WEFT_RECORDS={report.records}")


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
