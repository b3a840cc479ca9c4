"""``weft tune``."""

from __future__ import annotations

from pathlib import Path

import click

import weft
from weft.cli.common import compile_options, session
from weft.cli.models import ModelFile
from weft.cli.output import check_writable


@click.command("tune")
@click.argument("model", type=ModelFile())
@click.option("--records", required=True, type=click.Path(path_type=Path, dir_okay=False),
              help="records file to append measured times to")
@compile_options
@click.option("--threads", type=click.IntRange(1), default=None,
              help="threads of the code that is timed (default: WEFT_THREADS, else all CPUs)")
@click.option("--seconds", type=click.FloatRange(min=0, min_open=True), default=0.1,
              show_default=True, help="time for each implementation of each kernel")
@click.option("--again", is_flag=True, help="also time implementations that the file has")
def tune_command(model: str, records: Path, target: str | None,
                 shapes: tuple[tuple[str, tuple[object, ...]], ...], opt_level: int,
                 threads: int | None, seconds: float, *, again: bool) -> None:
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
    click.echo(f"{len(report.tuned)} of {report.kernels} kernels had several candidates; "
               f"use the times with WEFT_RECORDS={report.records}")
