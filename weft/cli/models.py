"""The MODEL argument: a file to compile, or an artifact to load."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

import weft
from weft.support.errors import InvalidModelError, OptionError
from weft.support.suggestion import nearest

ARTIFACT_SUFFIX = ".weft"
Shapes = Sequence[tuple[str, tuple[object, ...]]]

# The options of a compilation, by parameter.
_OF_COMPILING = {"target": "--target", "shapes": "--input-shape", "opt_level": "--opt-level"}


class ModelFile(click.ParamType):
    """The path of a model; raises ``InvalidModelError`` for a missing file."""

    name = "model"

    def convert(self, value: Any, param: Any, ctx: Any) -> str:  # noqa: ARG002 - click's names
        path = Path(value)
        if not path.exists():
            raise InvalidModelError("model file not found", where=value,
                                    help=_suggestion(path))
        return str(value)


def _suggestion(path: Path) -> str | None:
    """A hint at a file of the same folder with a similar name."""
    try:
        names = sorted(other.name for other in path.parent.iterdir() if other.is_file())
    except OSError:
        return None
    alike = {Path(name).stem: name for name in names}
    close = nearest(path.name, names) or [alike[stem] for stem in nearest(path.name, alike)]
    return f"did you mean {str(path.with_name(close[0]))!r}?" if close else None


def open_model(path: str, *, target: str | None, shapes: Shapes, opt_level: int) -> weft.Executable:
    """The model to run: an artifact is loaded, any other file compiled.

    Raises ``OptionError`` for options of a compilation given with an artifact.
    """
    if not path.endswith(ARTIFACT_SUFFIX):
        return weft.compile(path, target=target, inputs=dict(shapes) or None, opt_level=opt_level)
    context = click.get_current_context()
    given = [option for name, option in _OF_COMPILING.items()
             if context.get_parameter_source(name) is ParameterSource.COMMANDLINE]
    if given:
        raise OptionError(f"{', '.join(given)} cannot be used with a compiled artifact",
                          where=path, help="pass the option to `weft compile`, and run the result")
    found = weft.load(path)
    if not isinstance(found, weft.Executable):
        raise OptionError("the artifact has several entry points, or is a decoder", where=path,
                          help=f"run it in Python: weft.load({path!r}); weft inspect lists them")
    return found
