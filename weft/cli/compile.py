"""``weft compile``."""

from __future__ import annotations

from pathlib import Path

import click

import weft
from weft.cli.common import compile_options, print_json, session


@click.command("compile")
@click.argument("model")
@click.option("-o", "--output", type=click.Path(path_type=Path), default=None,
              help="the artifact to write (default: the model's name with .weft)")
@compile_options
@click.option("--json", "as_json", is_flag=True, help="print what was made as JSON")
def compile_command(model: str, output: Path | None, target: str | None,
                    shapes: tuple[tuple[str, tuple[object, ...]], ...], opt_level: int,
                    *, as_json: bool) -> None:
    """Compile MODEL into an artifact that runs without a compiler.

    \b
    weft compile resnet50.onnx
    weft compile net.onnx -o net.weft --target "llvm -mcpu=haswell"
    weft compile net.onnx --input-shape data:8x3x224x224
    """
    with session():
        module = weft.compile(model, target=target, inputs=dict(shapes) or None,
                              opt_level=opt_level)
        path = output or Path(model).with_suffix(".weft")  # of what has proved to be a model
        module.export(path)
    facts = {"artifact": str(path), "bytes": path.stat().st_size,
             "inputs": [str(port) for port in module.inputs],
             "outputs": [str(port) for port in module.outputs]}
    if as_json:
        print_json(facts)
        return
    click.echo(f"wrote {path} ({path.stat().st_size / 1e6:.1f} MB)")
    for kind in ("inputs", "outputs"):
        for port in facts[kind]:  # type: ignore[attr-defined]
            click.echo(f"  {kind[:-1]} {port}")
