"""``weft run``, ``weft bench`` and ``weft profile``."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from weft.cli.common import (
    compile_options,
    make_inputs,
    print_json,
    print_table,
    records_option,
    run_options,
    session,
)
from weft.cli.models import ModelFile, open_model
from weft.cli.output import (
    check_writable,
    plot_option,
    plots,
    write_npz,
    write_plot,
    writing,
)

if TYPE_CHECKING:
    import numpy as np

    from weft.compiler.options import CompileOptions
    from weft.runtime.executable import Executable

Shapes = tuple[tuple[str, tuple[object, ...]], ...]


@click.command("run")
@click.argument("model", type=ModelFile())
@compile_options
@records_option
@run_options
@click.option("-o", "--output", type=click.Path(path_type=Path), default=None,
              help="write the outputs to this .npz file")
def run_command(model: str, target: str | None, shapes: Shapes, opt_level: int,
                inputs: Path | None, fill: str, threads: int | None,
                output: Path | None) -> None:
    """Run MODEL once: an artifact, or a model to compile first.

    \b
    weft run model.weft --inputs x.npz -o y.npz
    weft run model.onnx --fill random
    """
    import numpy as np

    if output is not None:
        check_writable(output)
    with session(threads):
        module = open_model(model, target=target, shapes=shapes, opt_level=opt_level)
        results = module.run(None, make_inputs(module, inputs, fill))
    if results and not module.outputs:
        click.echo(str(results[0]))  # a value of an algebraic data type
        return
    names = [port.name for port in module.outputs]
    for name, array in zip(names, results, strict=True):
        click.echo(f"{name}: {_summary(np.asarray(array))}")
    if output is not None:
        write_npz(output, dict(zip(names, results, strict=True)))
        click.echo(f"wrote {output}")


def _summary(array: np.ndarray) -> str:
    import numpy as np

    head = f"{array.dtype}{list(array.shape)}"
    if array.size == 0:
        return head
    values = array.astype(np.float64)
    return f"{head} min {values.min():.6g} mean {values.mean():.6g} max {values.max():.6g}"


@click.command("bench")
@click.argument("model", type=ModelFile())
@compile_options
@records_option
@run_options
@click.option("--repeat", type=click.IntRange(1), default=50, show_default=True,
              help="number of runs")
@click.option("--json", "as_json", is_flag=True, help="print the figures as JSON")
@plot_option("how many runs took how long")
def bench_command(model: str, target: str | None, shapes: Shapes, opt_level: int,
                  inputs: Path | None, fill: str, threads: int | None, repeat: int,
                  plot: Path | None, *, as_json: bool) -> None:
    """Time MODEL: the best, median and worst of many runs.

    \b
    weft bench model.onnx --threads 1 --repeat 100
    """
    with session(threads):
        module = open_model(model, target=target, shapes=shapes, opt_level=opt_level)
        feeds = list(make_inputs(module, inputs, fill).values())
        times = sorted(_measure(module, feeds, repeat))
    figures = {"best_ms": times[0], "median_ms": times[len(times) // 2], "worst_ms": times[-1],
               "repeat": repeat}
    write_plot(plot, lambda: plots().times_plot(Path(model).name, times))
    if as_json:
        print_json(figures)
        return
    click.echo(f"best {figures['best_ms']:.3f} ms, median {figures['median_ms']:.3f} ms, "
               f"worst {figures['worst_ms']:.3f} ms of {repeat} runs")


def _measure(module: Executable, feeds: list[np.ndarray], repeat: int) -> list[float]:
    """Milliseconds per run, after two warm-up runs."""
    for _ in range(2):
        module(*feeds)
    times = []
    for _ in range(repeat):
        start = time.perf_counter()
        module(*feeds)
        times.append((time.perf_counter() - start) * 1e3)
    return times


@click.command("profile")
@click.argument("model", type=ModelFile())
@compile_options
@records_option
@run_options
@click.option("--repeat", type=click.IntRange(1), default=20, show_default=True,
              help="number of runs of each kernel")
@click.option("--trace", type=click.Path(path_type=Path), default=None,
              help="also write a Chrome trace")
@plot_option("the time of each kernel, and the limit of the machine,")
@click.option("--static", is_flag=True,
              help="do not run: registers, occupancy and estimates of CUDA kernels")
def profile_command(model: str, target: str | None, shapes: Shapes, opt_level: int,
                    inputs: Path | None, fill: str, threads: int | None, repeat: int,
                    trace: Path | None, plot: Path | None, *, static: bool) -> None:
    """Time each kernel of MODEL.

    \b
    weft profile model.onnx --threads 1
    weft profile --static model.onnx --target "cuda -arch=sm_90a"      (needs no GPU)
    weft profile model.weft --trace trace.json     (open in ui.perfetto.dev)
    """
    if static:
        from weft.compiler.options import CompileOptions

        _print_static(model, CompileOptions.make(target=target, inputs=dict(shapes) or None,
                                                 opt_level=opt_level))
        return
    if trace is not None:
        check_writable(trace)
    with session(threads):
        module = open_model(model, target=target, shapes=shapes, opt_level=opt_level)
        feeds = list(make_inputs(module, inputs, fill).values())
        profile = module.profile(*feeds, repeat=repeat)
    click.echo(profile.table())
    write_plot(plot, lambda: plots().profile_plot(Path(model).name, profile))
    if trace is not None:
        with writing(trace):
            profile.chrome_trace(trace)
        click.echo(f"wrote {trace}")


def _print_static(model: str, options: CompileOptions) -> None:
    from weft.compiler.report.static_kernels import static_profile

    rows = static_profile(model, options)
    columns = tuple(rows[0]) if rows else ("operators",)
    print_table(f"static profile for {options.target}: estimates, not measurements", columns,
                [tuple(row.values()) for row in rows])
