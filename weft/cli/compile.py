"""``weft compile``."""

from __future__ import annotations

from pathlib import Path

import click

import weft
from weft.cli.common import compile_options, print_json, session


@click.command("compile")
@click.argument("model")
@click.option("-o", "--output", type=click.Path(path_type=Path), default=None,
              help="what to write (default: the model's name with .weft, or without for C)")
@click.option("--kind", type=click.Choice(["weft", "c"]), default="weft", show_default=True,
              help="one file for weft.load, or a folder with object, header and main.c")
@compile_options
@click.option("--json", "as_json", is_flag=True, help="print what was made as JSON")
def compile_command(model: str, output: Path | None, target: str | None,
                    shapes: tuple[tuple[str, tuple[object, ...]], ...], opt_level: int,
                    *, kind: str, as_json: bool) -> None:
    """Compile MODEL into an artifact that runs without a compiler.

    \b
    weft compile resnet50.onnx
    weft compile net.onnx -o net.weft --target "llvm -mcpu=haswell"
    weft compile net.onnx --input-shape data:8x3x224x224
    weft compile net.onnx --kind c -o build/net       net.o, net.h and main.c for C
    """
    with session():
        module = weft.compile(model, target=target, inputs=dict(shapes) or None,
                              opt_level=opt_level)
        suffix = ".weft" if kind == "weft" else ""
        path = output or Path(model).with_suffix(suffix)  # of what has proved to be a model
        module.export(path, kind=kind)
    files = [path] if path.is_file() else sorted(path.iterdir())
    size = sum(file.stat().st_size for file in files)
    facts = {"artifact": str(path), "bytes": size,
             "inputs": [str(port) for port in module.inputs],
             "outputs": [str(port) for port in module.outputs]}
    if as_json:
        print_json(facts)
        return
    click.echo(f"wrote {path} ({size / 1e6:.1f} MB)")
    for side in ("inputs", "outputs"):
        for port in facts[side]:  # type: ignore[attr-defined]
            click.echo(f"  {side[:-1]} {port}")
