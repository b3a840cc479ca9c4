"""``weft tune`` and ``weft records``: search for faster kernels, and files of what was found."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from weft.cli.common import compile_options, print_json, print_table, session
from weft.cli.models import ModelFile
from weft.cli.output import check_writable, plot_option, write_plot

if TYPE_CHECKING:
    from weft.runtime.executors import Executor
    from weft.tune import TuningReport

SHOWN = 12  # kernels of a live table


@click.command("tune")
@click.argument("model", type=ModelFile())
@click.option("--records", type=click.Path(path_type=Path, dir_okay=False), default=None,
              help="database of what was measured (default: one in the cache folder)")
@click.option("--budget", default="60s", show_default=True, metavar="TIME",
              help="time to search, such as 90s, 10m or 1h")
@compile_options
@click.option("--threads", type=click.IntRange(1), default=None,
              help="threads of the code that is timed (default: WEFT_THREADS, else all CPUs)")
@click.option("--seed", type=int, default=0, show_default=True, help="of the random choices")
@plot_option("the times of the cost model's choices, and of the fastest,")
@click.option("--scheduler", default=None, metavar="EXECUTOR",
              help="share the work among workers: an address of Dask's scheduler, dask:4, or "
                   "processes:4")
@click.option("--again", is_flag=True, help="measure anew what the file has")
@click.option("--json", "as_json", is_flag=True, help="print one JSON object")
def tune_command(model: str, records: Path | None, budget: str, target: str | None,
                 shapes: tuple[tuple[str, tuple[object, ...]], ...], opt_level: int,
                 threads: int | None, seed: int, plot: Path | None,
                 scheduler: str | None, *, again: bool, as_json: bool) -> None:
    """Search for faster tiles, orders and algorithms of the kernels of MODEL.

    Tuning is optional: by default a model of registers, caches and threads decides. Where that
    model is wrong for a machine, what was measured overrides it. Results are kept as they come:
    Ctrl-C ends the search and loses nothing, and a second run goes on.

    \b
    weft tune model.onnx --budget 10m
    weft bench model.onnx
    """
    import weft.tune

    if records is not None:
        check_writable(records)
    with session(threads), _watching(plain=as_json) as watch, _workers(scheduler) as executor:
        report = weft.tune.tune(model, records, budget=budget, target=target,
                                inputs=dict(shapes) or None, opt_level=opt_level, seed=seed,
                                again=again, watch=watch, executor=executor)
    write_plot(plot, lambda: report.plot(Path(model).name))
    if as_json:
        print_json(report.values())
        return
    if report.tuned:
        click.echo(report.table())
    for note in report.notes:
        click.echo(note)
    if report.interrupted:
        click.echo("interrupted: what was measured is kept, the same command goes on")
    use = "" if records is None else f"; use them with WEFT_RECORDS={report.records}"
    click.echo(f"{len(report.tuned)} of {report.kernels} kernels tuned in {report.spent:.0f} s: "
               f"together {report.gain:.2f} times as fast, in {report.records}{use}")


@contextmanager
def _workers(scheduler: str | None) -> Iterator[Executor | None]:
    """The executor of a name; ``None`` without one."""
    if scheduler is None:
        yield None
        return
    from weft.distributed.executors.opening import open_executor

    with open_executor(scheduler, allowed_failures=2) as executor:
        yield executor


@contextmanager
def _watching(*, plain: bool) -> Iterator[Callable[[TuningReport], None] | None]:
    """The display of the search: a live table on a terminal, else lines."""
    if plain:
        yield None
    elif not sys.stderr.isatty():
        yield _Lines()
    else:
        from rich.console import Console
        from rich.live import Live

        with Live(console=Console(stderr=True), refresh_per_second=2, transient=True) as live:
            yield lambda report: live.update(_live_table(report))


class _Lines:
    """A line when the gain grows, and at most one in ten seconds otherwise."""

    def __init__(self) -> None:
        self._spent, self._gain = -10.0, 0.0

    def __call__(self, report: TuningReport) -> None:
        if report.gain > 1.01 * self._gain or report.spent > self._spent + 10:
            self._spent, self._gain = report.spent, report.gain
            click.echo(f"{report.spent:6.1f} s: {len(report.tuned)} kernels, "
                       f"{1e6 * report.seconds:.0f} us of {1e6 * report.baseline:.0f} us, "
                       f"{report.gain:.2f}x", err=True)


def _live_table(report: TuningReport) -> Any:
    from rich.table import Table

    table = Table(title=f"{report.spent:.0f} s: {report.gain:.2f} times as fast")
    for name in ("kernel", "calls", "default us", "best us", "gain", "limit us", "expected us",
                 "timed"):
        table.add_column(name, justify="left" if name == "kernel" else "right")
    ordered = sorted(report.tuned, key=lambda k: -k.count * k.baseline)
    for k in ordered[:SHOWN]:
        table.add_row(k.text[:48], str(k.count), f"{1e6 * k.baseline:.1f}",
                      f"{1e6 * k.seconds:.1f}", f"{k.gain:.2f}x", f"{1e6 * k.limit:.1f}",
                      f"{1e6 * k.expected_gain:.2f}", str(k.measured))
    if len(ordered) > SHOWN:
        table.caption = f"and {len(ordered) - SHOWN} more kernels"
    return table


@click.group("records")
def records_command() -> None:
    """Show and merge databases of tuning records."""


@records_command.command("merge")
@click.argument("into", type=click.Path(path_type=Path, dir_okay=False))
@click.argument("sources", nargs=-1, required=True,
                type=click.Path(path_type=Path, dir_okay=False, exists=True))
def merge_command(into: Path, sources: tuple[Path, ...]) -> None:
    """Add the records of SOURCES to the database INTO, which is made if needed.

    Sources are databases of other machines or runs, or files of a former version (JSON lines).
    Nothing is lost: of two measurements of a point the later one stays, of two winners of a kernel
    the one that gains more.
    """
    from weft.tune.store import TuningStore

    with TuningStore(into) as store:
        for source in sources:
            store.merge(source)
        winners, samples = len(store.winners()), len(store.samples())
    click.echo(f"{into}: {winners} winners, {samples} measured points")


@records_command.command("show")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False, exists=True))
@click.option("--json", "as_json", is_flag=True, help="print as JSON")
def show_command(file: Path, *, as_json: bool) -> None:
    """List the winners of a database: what compilations take, and what it gains."""
    from weft.tune.store import TuningStore

    with TuningStore(file) as store:
        winners = store.winners()
    if as_json:
        print_json([{name: getattr(w, name) for name in (
            "cpu", "kernel", "text", "implementation", "threads", "seconds", "baseline", "gain")}
            for w in winners])
        return
    print_table(str(file), ("kernel", "implementation", "threads", "default us", "us", "gain"), [
        (w.text, w.implementation, str(w.threads), f"{1e6 * w.baseline:.1f}",
         f"{1e6 * w.seconds:.1f}", f"{w.gain:.2f}x") for w in winners])
