"""Shared by the commands: options, inputs and tables.

Commands import the compiler, the runtime and NumPy where they use them, so that help is printed at
once.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from weft.support.config import config
from weft.support.deprecation import renaming
from weft.support.errors import InvalidInputError
from weft.support.progress import report_to, reporter_for

if TYPE_CHECKING:
    import numpy as np

    from weft.runtime import TensorSpec
    from weft.runtime.executable import Executable

F = TypeVar("F", bound=Callable[..., Any])


@contextmanager
def session(threads: int | None = None) -> Iterator[None]:
    """Report progress on standard error, and use ``threads`` threads unless ``None``."""
    with ExitStack() as stack:
        stack.enter_context(report_to(reporter_for(sys.stderr)))
        if threads is not None:
            stack.enter_context(config(threads=threads))
        yield


class ShapeOption(click.ParamType):
    """The shape of an input, such as ``data:1x3x224x224``."""

    name = "name:shape"

    def convert(self, value: Any, param: Any, ctx: Any) -> tuple[str, tuple[object, ...]]:
        if isinstance(value, tuple):
            return value
        name, colon, shape = value.rpartition(":")
        if not colon or not name or "," in shape:
            self.fail(f"{value!r} is not NAME:SHAPE, such as data:1x3x224x224", param, ctx)
        sizes = [size for size in shape.split("x") if size]
        return name, tuple(int(size) if size.isdecimal() else size for size in sizes)


def shapes_option(function: F) -> F:
    """``--input-shape``, which commands that import a model have."""
    return click.option(
        "--input-shape", "shapes", type=ShapeOption(), multiple=True,
        help="fix or override the shape of an input, such as data:1x3x224x224 "
             "(repeatable); a name as a size, as in data:batchx3, makes it dynamic")(function)


def compile_options(function: F) -> F:
    """The options of every command that compiles."""
    for decorate in reversed((
        click.option("--target", default=None, metavar="TARGET",
                     help='what to compile for: "cpu", "llvm -mcpu=haswell", "cuda -arch=sm_90a"'),
        shapes_option,
        click.option("-O", "--opt-level", type=click.IntRange(0, 3), default=3, show_default=True,
                     help="0 compiles fastest, 3 makes the fastest code"),
        click.option("--precision", type=click.Choice(["fp32", "bf16", "fp16", "int8", "int4"]),
                     default=None, expose_value=False, callback=_use_precision,
                     help="compute matmuls in 16 bits, or quantise their weights to 8 or 4"),
    )):
        function = decorate(function)
    return function


def _use_precision(context: click.Context, _: click.Parameter, value: str | None) -> None:
    if value is not None:
        context.with_resource(config(precision=value))


def records_option(function: F) -> F:
    """``--records``, which sets ``WEFT_RECORDS`` while the command runs."""
    return click.option(
        "--records", type=click.Path(path_type=Path, dir_okay=False, exists=True), default=None,
        expose_value=False, callback=_use_records,
        help="choose implementations by these times, which weft tune measured")(function)


def _use_records(context: click.Context, _: click.Parameter, value: Path | None) -> None:
    if value is not None:
        context.with_resource(config(records=value))


def renamed_option(old: str, new: str, **settings: Any) -> Callable[[F], F]:
    """The old name of the option ``new``: hidden, with a warning on standard error.

    ``settings`` are those of ``click.option``. A value for ``new`` itself has precedence.
    """
    def use(context: click.Context, _: click.Parameter, value: Any) -> None:
        if value is not None:
            click.echo(f"warning: {renaming(old, new)}", err=True)
            name = new.removeprefix("--").replace("-", "_")
            context.default_map = {**(context.default_map or {}), name: value}

    # Eager: its value is the default of ``new``, which is read later.
    return click.option(old, default=None, hidden=True, is_eager=True, expose_value=False,
                        callback=use, **settings)


def run_options(function: F) -> F:
    """The options of every command that runs a module."""
    for decorate in reversed((
        click.option("--inputs", "inputs", type=click.Path(path_type=Path), default=None,
                     help="an .npz file with one array per input name"),
        click.option("--fill", type=click.Choice(["random", "zeros", "ones"]), default="random",
                     show_default=True, help="values of the inputs that --inputs does not give"),
        click.option("--threads", type=click.IntRange(1), default=None,
                     help="threads of compiled code (default: WEFT_THREADS, else all CPUs)"),
    )):
        function = decorate(function)
    return function


def make_inputs(module: Executable, file: Path | None, fill: str) -> dict[str, np.ndarray]:
    """One array per input: from the file, or filled if the file does not contain it."""
    return inputs_for(module.inputs, file, fill)


def inputs_for(ports: Sequence[TensorSpec], file: Path | None, fill: str) -> dict[str, np.ndarray]:
    """One array for each of ``ports``, as ``make_inputs``."""
    import numpy as np

    given = read_npz(file) if file is not None else {}
    unknown = sorted(set(given) - {port.name for port in ports})
    if unknown:
        listed = ", ".join(unknown)
        raise InvalidInputError(f"{file} contains unknown inputs: {listed}",
                                expected=", ".join(port.name for port in ports))
    generator = np.random.default_rng(config.seed)
    return {port.name: _named(given[port.name], np.dtype(port.dtype)) if port.name in given
            else _filled(port, fill, generator) for port in ports}


def read_npz(file: Path) -> dict[str, np.ndarray]:
    """The arrays of a file by name; ``InvalidInputError`` if it cannot be read."""
    import numpy as np

    expected = "an .npz file, as numpy.savez writes it"
    try:
        with file.open("rb") as stream:  # NumPy does not close files that it cannot read
            archive = np.load(stream, allow_pickle=False)
            if isinstance(archive, np.ndarray):
                raise InvalidInputError(f"{file} contains one array without a name",
                                        expected=expected)
            return {name: archive[name] for name in archive.files}
    except InvalidInputError:
        raise
    except Exception as error:  # noqa: BLE001 - damaged archives raise a dozen kinds of errors
        raise InvalidInputError(f"{file} cannot be read", got=str(error) or type(error).__name__,
                                expected=expected) from None


def _named(array: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """``array`` with ``dtype``; .npz files store dtypes such as bfloat16 as opaque bytes."""
    opaque = array.dtype.kind == "V" and array.dtype.itemsize == dtype.itemsize
    return array.view(dtype) if opaque and array.dtype.names is None else array


def _filled(port: TensorSpec, fill: str, generator: np.random.Generator) -> np.ndarray:
    import numpy as np

    if any(isinstance(size, str) for size in port.shape):
        raise InvalidInputError(
            f"input {port.name!r} has a dynamic shape, and no array is given", got=port,
            help=f"--inputs FILE.npz gives it an array, --input-shape {port.name}:SHAPE fixes them",
        )
    shape, dtype = port.concrete_shape, np.dtype(port.dtype)
    if fill == "random" and dtype.kind in "fV":
        return generator.standard_normal(shape).astype(dtype)
    if fill == "random":
        return generator.integers(0, 2, shape).astype(dtype)
    return np.full(shape, fill == "ones").astype(dtype)


def print_json(value: Any) -> None:
    """Print a value as indented JSON."""
    click.echo(json.dumps(value, indent=2, default=str))


def print_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print a table: numbers right-aligned, words left-aligned."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    # Texts, since strings would lose what looks like markup: weft[cuda], Tensor[(n,), float32].
    table = Table(title=Text(title) if title else None, title_justify="left", box=None,
                  pad_edge=False)
    for number, column in enumerate(columns):
        numeric = bool(rows) and isinstance(rows[0][number], (int, float))
        table.add_column(Text(column), justify="right" if numeric else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(_cell(value)) for value in row))
    width = None if sys.stdout.isatty() else 160
    Console(width=width, highlight=False).print(table)


def _cell(value: object) -> str:
    return f"{value:.3f}" if isinstance(value, float) else str(value)
