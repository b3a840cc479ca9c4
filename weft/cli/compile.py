"""``weft compile``."""

from __future__ import annotations

from pathlib import Path

import click

import weft
from weft.cli.common import compile_options, print_json, session
from weft.cli.models import ModelFile
from weft.cli.output import check_writable
from weft.support.errors import ArtifactError


@click.command("compile")
@click.argument("model", type=ModelFile())
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

    An artifact has no compiler: models with dynamic shapes need --input-shape for each input whose
    sizes are open.
    """
    suffix = ".weft" if kind == "weft" else ""
    is_file = Path(model).is_file()  # all else is refused below, in words of its own
    path = output or (Path(model).with_suffix(suffix) if is_file else Path())
    if output is not None or is_file:
        check_writable(path, folder=kind == "c")
    with session():
        module = weft.compile(model, target=target, inputs=dict(shapes) or None,
                              opt_level=opt_level)
        if isinstance(module, weft.DynamicModel):
            raise _open_sizes(module, path)
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


def _open_sizes(module: weft.DynamicModel, path: Path) -> ArtifactError:
    """What is missing for an artifact of a model with dynamic shapes."""
    open_ = [port for port in module.inputs if any(isinstance(n, str) for n in port.shape)]
    options = [f"--input-shape {port.name}:{'x'.join(map(str, port.shape))}" for port in open_]
    return ArtifactError(
        "the model has dynamic shapes, and an artifact has no compiler", where=path,
        notes=[f"input {port}" for port in open_],
        help=f"fix the sizes: {' '.join(options)}, with a number in place of each name")
