"""``weft inspect``: a summary, any stage of the compilation as text, or all on one HTML page."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from weft.cli.common import compile_options, records_option, renamed_option, session
from weft.cli.compile_options import (
    Sizes,
    all_variants,
    device_arguments,
    device_options,
    specialize_option,
)
from weft.cli.models import ARTIFACT_SUFFIX, ModelFile
from weft.cli.output import check_writable, write_text

# ``weft.compiler.stages.all_stages()``, without an import of the compiler.
STAGES = (
    "import", "canonical", "optimized", "lowered", "devices", "decisions", "vm", "te",
    "scheduled", "tir", "llvm", "asm", "ptx", "placement",
)


@click.command("inspect")
@click.argument("model", type=ModelFile())
@compile_options
@records_option
@specialize_option
@device_options
@click.option("--stage", type=click.Choice(STAGES), default=None,
              help="print this stage as text (with --html: unfold it on the page)")
@renamed_option("--phase", "--stage", type=click.Choice(STAGES))
@click.option("--dot", is_flag=True,
              help="print the graph of --stage (default: optimized) in Graphviz's DOT language")
@click.option("--tensors", is_flag=True,
              help="list the names of all tensors, which runs and `weft debug` take")
@click.option("--html", type=click.Path(path_type=Path), default=None,
              help="write one self-contained page: kernels, times, decisions, stages")
def inspect_command(model: str, target: str | None,
                    shapes: tuple[tuple[str, tuple[object, ...]], ...], opt_level: int,
                    variants: Sequence[Sequence[Sizes]], stage: str | None, html: Path | None, *,
                    dot: bool, tensors: bool, **devices: Any) -> None:
    """Show how MODEL is compiled.

    \b
    weft inspect model.onnx                      inputs, outputs, kernels, memory, decisions;
                                                 of symbolic sizes ranges and variants
    weft inspect model.onnx --specialize "seq=1,128"    with kernels for these sizes
    weft inspect model.onnx --stage decisions    algorithms, estimates and rejected candidates
    weft inspect model.onnx --stage optimized    the graph after optimisation
    weft inspect model.onnx --stage asm | less   machine code
    weft inspect model.onnx --tensors            the names of inner tensors, and their types
    weft inspect model.onnx --dot | dot -Tsvg > model.svg    a drawing of the graph
    weft inspect model.onnx --devices sim:0,sim:1 --placement cost
                                                 where each call runs, and when
    weft inspect model.onnx --html model.html    all on one page
    weft inspect model.weft                      what an artifact holds and what it needs
    """
    if model.endswith(ARTIFACT_SUFFIX):
        from weft.cli.artifact_summary import print_artifact

        print_artifact(Path(model))
        return
    import weft
    from weft.cli.model_summary import check_timed, print_summary, print_tensors

    if html is not None:
        check_writable(html)
    if tensors:
        print_tensors(model, shapes)
        return
    spread = device_arguments(**devices)
    with session():
        module = weft.compile(model, target=target, inputs=dict(shapes) or None,
                              opt_level=opt_level, specialize=all_variants(variants), **spread)
        if html is not None:
            from weft.compiler.report.page import html_report

            check_timed(module)
            write_text(html, html_report(module, title=Path(model).name, opened=stage))
            click.echo(f"wrote {html}", err=dot)  # a drawing may go down a pipe
        if dot:
            click.echo(module.as_dot(stage or "optimized"), nl=False)
        elif stage is not None and html is None:
            click.echo(module.as_text(stage))
        if dot or stage is not None or html is not None:
            return
    print_summary(module)
    click.echo(f"\ndecisions\n{module.as_text('decisions')}")
