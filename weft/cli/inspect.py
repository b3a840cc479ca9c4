"""``weft inspect``: a summary, any stage of the compilation as text, or all on one HTML page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

import weft
from weft.cli.common import compile_options, print_table, session
from weft.cli.models import ModelFile
from weft.cli.output import check_writable, write_text
from weft.compiler.report.page import html_report
from weft.compiler.stages import STAGES
from weft.runtime.sizes import Size
from weft.support.errors import InvalidInputError


@click.command("inspect")
@click.argument("model", type=ModelFile())
@compile_options
@click.option("--phase", type=click.Choice(STAGES), default=None,
              help="print this stage as text (with --html: unfold it on the page)")
@click.option("--dot", is_flag=True,
              help="print the graph of --phase (default: optimized) in Graphviz's DOT language")
@click.option("--html", type=click.Path(path_type=Path), default=None,
              help="write one self-contained page: kernels, times, decisions, stages")
def inspect_command(model: str, target: str | None,
                    shapes: tuple[tuple[str, tuple[object, ...]], ...], opt_level: int,
                    phase: str | None, html: Path | None, *, dot: bool) -> None:
    """Show how MODEL is compiled.

    \b
    weft inspect model.onnx                      inputs, outputs, kernels, memory, decisions
    weft inspect model.onnx --phase decisions    algorithms, estimates and rejected candidates
    weft inspect model.onnx --phase optimized    the graph after optimisation
    weft inspect model.onnx --phase asm | less   machine code
    weft inspect model.onnx --dot | dot -Tsvg > model.svg    a drawing of the graph
    weft inspect model.onnx --html model.html    all on one page
    """
    if html is not None:
        check_writable(html)
    with session():
        module = weft.compile(model, target=target, inputs=dict(shapes) or None,
                              opt_level=opt_level)
        if html is not None:
            _check_fixed(module)
            write_text(html, html_report(module, title=Path(model).name, opened=phase))
            click.echo(f"wrote {html}", err=dot)  # a drawing may go down a pipe
        if dot:
            click.echo(module.as_dot(phase or "optimized"), nl=False)
        elif phase is not None and html is None:
            click.echo(module.as_text(phase))
        if dot or phase is not None or html is not None:
            return
    for port in module.inputs:
        click.echo(f"input  {port}")
    for port in module.outputs:
        click.echo(f"output {port}")
    program = module.manifest.vm
    # The virtual machine determines at run time which kernels are called, and how often.
    calls = module.manifest.steps if program is None else program.kernels
    rows = [(number, call.op, call.implementation, _scaled(call.flops, 3))
            for number, call in enumerate(calls)]
    print_table("", ("#", "operators", "implementation", "MFLOP"), rows)
    click.echo(f"arena {_scaled(module.manifest.arena_bytes, 2)} MB")
    click.echo(f"\ndecisions\n{module.as_text('decisions')}")


def _scaled(size: Size, digits: int) -> str:
    """A number in millions; a symbolic one is left to a profile."""
    return "symbolic" if isinstance(size, str) else f"{size / 1e6:.{digits}f}"


def _check_fixed(module: Any) -> None:
    """Raise ``InvalidInputError`` for dynamic shapes, whose kernels cannot be timed."""
    dynamic = [port for port in module.inputs if any(isinstance(n, str) for n in port.shape)]
    if dynamic:
        raise InvalidInputError(
            f"input {dynamic[0].name!r} has a dynamic shape, so kernels cannot be timed",
            got=dynamic[0], help=f"--input-shape {dynamic[0].name}:SHAPE fixes them")
