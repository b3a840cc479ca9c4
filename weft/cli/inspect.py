"""``weft inspect``: any stage of a compilation as text, or all of it on one page."""

from __future__ import annotations

from pathlib import Path

import click

import weft
from weft.cli.common import compile_options, print_table, session
from weft.cli.output import write_text
from weft.compiler.report import html_report
from weft.compiler.stages import STAGES


@click.command("inspect")
@click.argument("model")
@compile_options
@click.option("--phase", type=click.Choice(STAGES), default=None, help="print this stage as text")
@click.option("--dot", is_flag=True,
              help="print the graph in Graphviz's language (of --phase; optimized by default)")
@click.option("--html", type=click.Path(path_type=Path), default=None,
              help="write one self-contained page: every stage, kernels, times")
def inspect_command(model: str, target: str | None,
                    shapes: tuple[tuple[str, tuple[object, ...]], ...], opt_level: int,
                    phase: str | None, html: Path | None, *, dot: bool) -> None:
    """Look inside the compilation of MODEL.

    \b
    weft inspect model.onnx                      inputs, outputs, kernels, memory
    weft inspect model.onnx --phase optimized    the graph after optimisation
    weft inspect model.onnx --phase asm | less   machine code
    weft inspect model.onnx --dot | dot -Tsvg > model.svg    a drawing of the graph
    weft inspect model.onnx --html model.html    all on one page
    """
    with session():
        module = weft.compile(model, target=target, inputs=dict(shapes) or None,
                              opt_level=opt_level)
        if dot:
            click.echo(module.as_dot(phase or "optimized"), nl=False)
            return
        if phase is not None:
            click.echo(module.as_text(phase))
            return
        if html is not None:
            write_text(html, html_report(module, title=Path(model).name))
            click.echo(f"wrote {html}")
            return
    for port in module.inputs:
        click.echo(f"input  {port}")
    for port in module.outputs:
        click.echo(f"output {port}")
    program = module.manifest.vm
    # The virtual machine decides as it goes which of its kernels are called, and how often.
    calls = module.manifest.steps if program is None else program.kernels
    rows = [(number, call.op, call.implementation, round(call.flops / 1e6, 3))
            for number, call in enumerate(calls)]
    print_table("", ("#", "operators", "implementation", "MFLOP"), rows)
    click.echo(f"arena {module.manifest.arena_bytes / 1e6:.2f} MB")
