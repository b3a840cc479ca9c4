"""``weft inspect``: a summary, any stage of the compilation as text, or all on one HTML page."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

import weft
from weft.cli.common import compile_options, print_table, session
from weft.cli.device_options import device_arguments, device_options
from weft.cli.models import ModelFile
from weft.cli.output import check_writable, write_text
from weft.cli.specialize_option import Sizes, all_variants, specialize_option
from weft.compiler.options import CompileOptions
from weft.compiler.report.page import html_report
from weft.compiler.report.sizes import (
    ESTIMATE,
    arena_bytes_at,
    at_sizes,
    kernel_rows,
    memory_text,
    placement_text,
    symbol_rows,
    typical_sizes,
)
from weft.compiler.sources import import_whole
from weft.compiler.stages import all_stages
from weft.support.errors import InvalidInputError
from weft.transform.passes.extract_subgraph import tensors_of


@click.command("inspect")
@click.argument("model", type=ModelFile())
@compile_options
@specialize_option
@device_options
@click.option("--phase", type=click.Choice(all_stages()), default=None,
              help="print this stage as text (with --html: unfold it on the page)")
@click.option("--dot", is_flag=True,
              help="print the graph of --phase (default: optimized) in Graphviz's DOT language")
@click.option("--tensors", is_flag=True,
              help="list the names of all tensors, which runs and `weft debug` take")
@click.option("--html", type=click.Path(path_type=Path), default=None,
              help="write one self-contained page: kernels, times, decisions, stages")
def inspect_command(model: str, target: str | None,
                    shapes: tuple[tuple[str, tuple[object, ...]], ...], opt_level: int,
                    variants: Sequence[Sequence[Sizes]], phase: str | None, html: Path | None, *,
                    dot: bool, tensors: bool, **devices: Any) -> None:
    """Show how MODEL is compiled.

    \b
    weft inspect model.onnx                      inputs, outputs, kernels, memory, decisions;
                                                 of symbolic sizes ranges and variants
    weft inspect model.onnx --specialize "seq=1,128"    with kernels for these sizes
    weft inspect model.onnx --phase decisions    algorithms, estimates and rejected candidates
    weft inspect model.onnx --phase optimized    the graph after optimisation
    weft inspect model.onnx --phase asm | less   machine code
    weft inspect model.onnx --tensors            the names of inner tensors, and their types
    weft inspect model.onnx --dot | dot -Tsvg > model.svg    a drawing of the graph
    weft inspect model.onnx --devices sim:0,sim:1 --placement cost
                                                 where each call runs, and when
    weft inspect model.onnx --html model.html    all on one page
    """
    if html is not None:
        check_writable(html)
    if tensors:
        _print_tensors(model, shapes)
        return
    spread = device_arguments(**devices)
    with session():
        module = weft.compile(model, target=target, inputs=dict(shapes) or None,
                              opt_level=opt_level, specialize=all_variants(variants), **spread)
        if html is not None:
            _check_timed(module)
            write_text(html, html_report(module, title=Path(model).name, opened=phase))
            click.echo(f"wrote {html}", err=dot)  # a drawing may go down a pipe
        if dot:
            click.echo(module.as_dot(phase or "optimized"), nl=False)
        elif phase is not None and html is None:
            click.echo(module.as_text(phase))
        if dot or phase is not None or html is not None:
            return
    _print_summary(module)
    click.echo(f"\ndecisions\n{module.as_text('decisions')}")


def _print_tensors(model: str, shapes: tuple[tuple[str, tuple[object, ...]], ...]) -> None:
    module = import_whole(model, CompileOptions.make(inputs=dict(shapes) or None))
    for name, value in tensors_of(module).items():
        click.echo(f"{name}: {value.checked_type}")


def _print_summary(module: Any) -> None:
    manifest = module.manifest
    for port in module.inputs:
        click.echo(f"input  {port}")
    for port in module.outputs:
        click.echo(f"output {port}")
    reason = _reason(module)
    if reason is not None:
        click.echo(f"\na program for each set of input shapes, compiled when they arrive: {reason}")
        return
    if manifest.symbols:
        click.echo("\none program for all sizes")
        print_table("", ("symbol", "sizes", "from"), symbol_rows(manifest))
    # The virtual machine determines at run time which kernels are called, and how often.
    calls = manifest.steps if manifest.vm is None else manifest.vm.kernels
    sizes = typical_sizes(manifest)
    rows = kernel_rows(manifest, calls)
    columns = ("#", "operators", "sizes", "implementation", f"MFLOP{at_sizes(sizes)}",
               ESTIMATE)
    kept = range(6) if manifest.symbols else (0, 1, 3, 4)
    print_table("", [columns[n] for n in kept], [[row[n] for n in kept] for row in rows])
    if manifest.launched_by == "lanes":
        click.echo(f"\n{module.as_text('placement')}\n")
    if manifest.launched_by == "device":
        click.echo(placement_text(manifest, sizes))
    click.echo(f"arena {arena_bytes_at(manifest, sizes) / 1e6:.2f} MB{at_sizes(sizes)}")
    if manifest.vm is None:
        click.echo(memory_text(manifest, sizes))


def _reason(module: Any) -> str | None:
    """Why a model has no program for all sizes; ``None`` for one that has, and for fixed shapes."""
    return module.reason if isinstance(module, weft.DynamicModel) else None


def _check_timed(module: Any) -> None:
    """Raise ``InvalidInputError`` for dynamic shapes that have no program for all sizes."""
    dynamic = [port for port in module.inputs if any(isinstance(n, str) for n in port.shape)]
    reason = _reason(module)
    if dynamic and not module.manifest.symbols:
        raise InvalidInputError(
            f"input {dynamic[0].name!r} has a dynamic shape, so kernels cannot be timed",
            got=dynamic[0], help=f"--input-shape {dynamic[0].name}:SHAPE fixes them",
            notes=[] if reason is None else [f"not compiled for all sizes: {reason}"])
