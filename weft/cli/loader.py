"""``weft loader``."""

from __future__ import annotations

from pathlib import Path

import click

LANGUAGES = ("c", "c++", "js")


@click.command("loader")
@click.option("-o", "--output", type=click.Path(path_type=Path), default=Path(),
              help="the folder to write to (default: this one)")
@click.option("--language", type=click.Choice(LANGUAGES), default="c", show_default=True,
              help="the language of the program")
def loader_command(output: Path, language: str) -> None:
    """Write the sources that load artifacts without Python.

    \b
    weft loader -o src                       weft_loader.h and weft_loader.c
    weft loader -o src --language c++        weft_loader.hpp too
    weft loader -o www --language js         weft_loader.js, for code for WebAssembly
    """
    from weft.export.loaders import write_loader

    for path in write_loader(output, language):
        click.echo(f"wrote {path}")
