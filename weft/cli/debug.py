"""``weft debug``: every tensor of a model, beside those of another evaluation."""

from __future__ import annotations

from pathlib import Path

import click

from weft.cli.common import ShapeOption
from weft.cli.models import ModelFile
from weft.cli.output import plot_option

Shapes = tuple[tuple[str, tuple[object, ...]], ...]
DEFAULT_BOUND = 1e-3  # that of ``weft.debug.compare``, without an import of it


@click.command("debug")
@click.argument("model", type=ModelFile())
@click.option("--input-shape", "shapes", type=ShapeOption(), multiple=True,
              help="the shape of an input with dynamic sizes, such as data:1x3x224x224")
@click.option("--inputs", type=click.Path(path_type=Path), default=None,
              help="an .npz file with one array per input name")
@click.option("--fill", type=click.Choice(["random", "zeros", "ones"]), default="random",
              show_default=True, help="values of the inputs that --inputs does not give")
@click.option("--against", default="reference", show_default=True,
              help="reference, onnxruntime, O0 to O3, or a target such as 'llvm -mcpu=haswell'")
@click.option("--bound", type=click.FloatRange(0), default=DEFAULT_BOUND, show_default=True,
              help="error relative to the largest element, above which a tensor is wrong")
@click.option("--dump", type=click.Path(path_type=Path), default=None,
              help="write the value of every tensor to this .npz file")
@plot_option("the error of each tensor")
@click.option("--bisect", is_flag=True,
              help="find the first wrong pass, and the first wrong kernel")
@click.option("--shrink", "folder", type=click.Path(path_type=Path), default=None,
              help="write a small program that shows the first wrong tensor to this folder")
def debug_command(model: str, shapes: Shapes, inputs: Path | None, fill: str, against: str,
                  bound: float, dump: Path | None, folder: Path | None,
                  plot: Path | None, *, bisect: bool) -> None:
    """Compare every tensor of MODEL with another evaluation.

    \b
    weft debug model.onnx                            with weft's reference interpreter
    weft debug model.onnx --against onnxruntime      with onnxruntime, layer by layer
    weft debug model.onnx --against O0               with code that is not optimised
    weft debug model.onnx --dump values.npz          and keep all values
    weft debug model.onnx --bisect                   which pass, and which kernel is wrong
    weft debug model.onnx --shrink bug               a small program with the first error

    The exit code is 1 if a tensor is wrong.
    """
    from weft.cli.tensor_report import compare_tensors

    compare_tensors(model, shapes, inputs, fill, against, bound, dump, folder, plot,
                    bisect=bisect)
