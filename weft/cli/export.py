"""``weft export``."""

from __future__ import annotations

from pathlib import Path

import click

import weft
from weft.cli.common import session, shapes_option
from weft.cli.models import ModelFile
from weft.cli.output import check_writable


@click.command("export")
@click.argument("model", type=ModelFile())
@click.option("-o", "--output", type=click.Path(path_type=Path), required=True,
              help="the file to write")
@click.option("--format", type=click.Choice(["onnx", "stablehlo"]), default=None,
              help="default: stablehlo for .mlir and .stablehlo, else onnx")
@shapes_option
@click.option("--opset", type=int, default=21, show_default=True, help="the ONNX opset to write")
@click.option("--external-data/--no-external-data", default=None,
              help="constants in a second file (default: above 2 GB)")
def export_command(model: str, output: Path, shapes: tuple[tuple[str, tuple[object, ...]], ...],
                   opset: int, *, format: str | None, external_data: bool | None) -> None:
    """Write MODEL as ONNX or StableHLO.

    \b
    weft export net.ir -o net.onnx
    weft export net.mlir -o net.onnx --external-data
    weft export net.onnx -o net.mlir
    weft export net.onnx -o fixed.onnx --input-shape data:8x3x224x224

    Inputs and outputs keep their order, and in ONNX their names. Operators that a format lacks are
    written by their definitions; what it cannot express is listed in one error.
    """
    check_writable(output)
    is_stablehlo = output.suffix in (".mlir", ".stablehlo") if format is None \
        else format == "stablehlo"
    with session():
        if is_stablehlo:
            weft.export_stablehlo(model, output, inputs=dict(shapes) or None)
        else:
            weft.export_onnx(model, output, inputs=dict(shapes) or None, opset=opset,
                             external_data=external_data)
    click.echo(f"wrote {output} ({output.stat().st_size / 1e6:.1f} MB)")
