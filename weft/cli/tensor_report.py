"""What ``weft debug`` prints: every tensor of a model, beside those of another evaluation."""

from __future__ import annotations

from pathlib import Path

import click
import numpy as np

from weft.cli.common import inputs_for, print_table, session
from weft.cli.output import check_writable, plots, write_npz, write_plot
from weft.compiler.options import CompileOptions
from weft.debug import Comparison, ModelTensors, first_wrong_kernel, first_wrong_pass, shrink
from weft.debug.compare import COLUMNS, compared
from weft.frontend.source import open_source
from weft.ir import TensorType, Var, input_names
from weft.runtime import TensorSpec
from weft.support.errors import InvalidInputError, UnsupportedModelError

Shapes = tuple[tuple[str, tuple[object, ...]], ...]
_WRONG = 1  # the exit code if a tensor is wrong


def compare_tensors(model: str, shapes: Shapes, inputs: Path | None, fill: str, against: str,
                    bound: float, dump: Path | None, folder: Path | None,
                    plot: Path | None, *, bisect: bool) -> None:
    """The comparison that the options of the command ask for."""
    for path in filter(None, (dump,)):
        check_writable(path)
    if folder is not None:
        check_writable(folder, folder=True)
    with session():
        tensors = ModelTensors(model, _inputs(model, shapes, inputs, fill))
        values = tensors.values()
        comparison = compared(tensors, values, tensors.values(against), bound)
    _print(comparison, against)
    title = f"{Path(model).name} beside {against}"
    write_plot(plot, lambda: plots().errors_plot(
        title, [(t.name, np.inf if t.bad else t.relative) for t in comparison.tensors],
        comparison.bound))
    if dump is not None:
        write_npz(dump, values)
        click.echo(f"wrote {dump}")
    if bisect:
        _print_bisection(tensors, bound)
    wrong = comparison.first_wrong
    if folder is not None and wrong is not None:
        found = shrink(tensors, wrong.name, bound=bound)
        found.save(folder)
        click.echo(f"wrote {folder}: {found.operators} operators; run reproduce.py there")
    if wrong is not None:
        raise click.exceptions.Exit(_WRONG)


def _inputs(model: str, shapes: Shapes, file: Path | None, fill: str) -> dict[str, np.ndarray]:
    options = CompileOptions.make(inputs=dict(shapes) or None)
    module = open_source(model, None, options).import_whole(options)
    ports = [TensorSpec(name, str(type_.dtype), tuple(
                size if isinstance(size, int) else str(size) for size in type_.shape))
             for name, type_ in zip(input_names(module), map(_type, module["main"].params),
                                    strict=True)]
    return inputs_for(ports, file, fill)


def _type(param: Var) -> TensorType:
    if not isinstance(param.checked_type, TensorType):
        raise InvalidInputError(f"input {param.name!r} is not a tensor", got=param.checked_type)
    return param.checked_type


def _print(comparison: Comparison, against: str) -> None:
    print_table(f"weft beside {against}", COLUMNS, comparison.rows())
    infinite, wrong = comparison.first_not_finite, comparison.first_wrong
    if infinite is not None:
        click.echo(f"the first NaN or infinity is in {infinite.name} ({infinite.where})")
    if wrong is None:
        click.echo(f"all {len(comparison.tensors)} tensors are within {comparison.bound:g}")
    else:
        click.echo(f"the first wrong tensor is {wrong.name} ({wrong.where}): "
                   f"relative error {wrong.relative:.3g}")


def _print_bisection(tensors: ModelTensors, bound: float) -> None:
    found = first_wrong_pass(tensors, bound=bound)
    if found is not None:
        click.echo(f"pass {found.name} (number {found.number} of those that changed the program) "
                   f"changes {found.difference.name}: relative error "
                   f"{found.difference.relative:.3g}")
        return
    click.echo("all passes keep the results")
    try:
        kernel = first_wrong_kernel(tensors, bound=bound)
    except UnsupportedModelError as error:
        click.echo(f"kernels are not compared: {error.what}")
        return
    if kernel is None:
        click.echo("all kernels compute what their operators say")
    else:
        click.echo(f"step {kernel.step}, {kernel.kernel.text} ({kernel.implementation}) is wrong: "
                   f"relative error {kernel.difference.relative:.3g}")
