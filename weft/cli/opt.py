"""``weft opt``: running passes on a program in text form."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

import click

from weft.cli.output import check_writable, write_text
from weft.support.errors import ParseError
from weft.support.plugins import load_plugins


@click.command("opt")
@click.argument("file", type=click.File("rb"), default="-")
@click.option("-p", "--passes", default="", help="passes in order: 'fold_constant,fuse_ops'")
@click.option("-o", "--output", type=click.Path(path_type=Path), default=None,
              help="write here instead of standard output")
@click.option("--target", default=None, help="the target of layout passes")
@click.option("--print-between-passes", is_flag=True, help="print the IR after each pass on stderr")
@click.option("--time-passes", is_flag=True, help="print the time of each pass on stderr")
@click.option("--verify", is_flag=True, help="check well-formedness after each pass")
@click.option("--list", "list_passes", is_flag=True, help="print the pipeline of weft compile")
def opt_command(file: BinaryIO, passes: str, output: Path | None, target: str | None, *,
                print_between_passes: bool, time_passes: bool, verify: bool,
                list_passes: bool) -> None:
    """Run passes on FILE, a program as text (- is standard input).

    \b
    weft opt net.ir -p fold_constant,dead_code_elimination
    weft opt net.ir -p 'fuse_ops{max_depth=8}' --print-between-passes
    weft opt net.ir -p 'graph_optimizer{remapping=false}'   simplify in rounds
    weft opt --list                              the pipeline of weft compile
    weft passes                                  every pass, with a summary
    weft passes store_passing                    its options, and what it needs and provides
    """
    import weft.op
    import weft.transform  # noqa: F401 - makes the passes known by name
    from weft.compiler.options import CompileOptions
    from weft.compiler.pipeline import make_context, pipeline_text
    from weft.ir import (
        PASSES,
        PrintInstrument,
        TimingInstrument,
        VerifyInstrument,
        as_text,
        infer_type,
        parse,
        parse_pipeline,
    )

    if list_passes:
        click.echo(pipeline_text())
        return
    if output is not None:
        check_writable(output)
    load_plugins()
    timing = TimingInstrument()
    instruments = [timing, *([PrintInstrument()] if print_between_passes else []),
                   *([VerifyInstrument()] if verify else [])]
    # A pass that is named runs at every optimisation level.
    context = replace(make_context(CompileOptions.make(target), *instruments),
                      opt_level=max(pass_type.opt_level for pass_type in map(PASSES.get, PASSES)))
    mod = parse_pipeline(passes)(infer_type(parse(_read(file))), context)
    text = as_text(mod)
    if output is None:
        click.echo(text, nl=not text.endswith("\n"))
    else:
        write_text(output, text)
    if time_passes:
        sys.stderr.write(timing.table() + "\n")


def _read(file: BinaryIO) -> str:
    try:
        return file.read().decode("utf-8")
    except UnicodeDecodeError as error:
        raise ParseError("not a program in weft's text form", where=file.name,
                         expected="text in UTF-8", got=error) from None
