"""``weft.export_entries``, and ``export_onnx`` and ``export_stablehlo`` for formats of others."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from weft.compiler.compilation import Compilation
from weft.runtime.executable import Executable
from weft.support.errors import OptionError

if TYPE_CHECKING:
    from weft.frontend.source import Examples, ModelLike
    from weft.ir import IRModule


def export_onnx(
    model: ModelLike | Executable,
    path: str | os.PathLike[str],
    *,
    inputs: Mapping[str, Sequence[object]] | None = None,
    example_inputs: Examples = None,
    opset: int = 21,
    external_data: bool | None = None,
) -> None:
    """Write a model or program as an ONNX file, with the names of its inputs and outputs.

    ``model`` is what ``weft.compile`` takes, such as the module that ``weft.grad`` returns, or an
    executable that this process compiled; ``inputs`` and ``example_inputs`` are those of
    ``weft.compile``. Symbolic sizes become dimension parameters. Operators that ONNX lacks are
    written by their definitions in others. With ``external_data`` the constants are in a second
    file beside the model, as they are by default above 2 GB. Equal programs give equal bytes, and
    the file is replaced atomically.

    Raises ``UnsupportedModelError`` with everything that ONNX has no form for, ``OptionError`` for
    an unknown opset, ``ArtifactError`` if the file cannot be written, and what importing the model
    raises.
    """
    try:
        from weft.export.onnx.model import export_onnx as write
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] not in ("onnx", "google"):
            raise
        raise OptionError("writing ONNX models needs the onnx package",
                          got=f"no module named {error.name!r}",
                          help="pip install weft[onnx]") from None
    write(_module_of(model, inputs, example_inputs), path, opset=opset,
          external_data=external_data)


def export_entries(
    modules: Mapping[str, Any],
    path: str | os.PathLike[str],
    *,
    levels: Sequence[str] | None = None,
    portable: bool = True,
    check: bool = True,
    sign: object = None,
    kind: str = "",
    facts: Mapping[str, Any] | None = None,
) -> None:
    """Write several modules as the entry points of one artifact, over one set of weights.

    ``modules`` are executables and training steps by name. ``weft.load`` gives a mapping from the
    names to modules; states of the same name are one array, so that a program reads what a training
    step of the same file has learnt. The other options are those of ``Executable.export``; ``kind``
    and ``facts`` tell ``weft.load`` what the entry points make up together.

    Raises what ``Executable.export`` raises.
    """
    from weft.compiler.export_model import ExportOptions, ModuleWithState, export_modules

    if not modules:
        raise OptionError("no modules are given", expected='modules by name: {"encode": encoder}')
    parts = {name: ModuleWithState(*one.exported()) if hasattr(one, "exported")
             else ModuleWithState(one) for name, one in modules.items()}
    export_modules(path, parts, ExportOptions.make(levels, portable=portable, check=check,
                                                   sign=sign), kind=kind, facts=facts)


def export_stablehlo(
    model: ModelLike | Executable,
    path: str | os.PathLike[str],
    *,
    inputs: Mapping[str, Sequence[object]] | None = None,
    example_inputs: Examples = None,
) -> None:
    """Write a model or program of fixed sizes as the text of a StableHLO module.

    The arguments are those of ``export_onnx``; ``inputs`` fixes symbolic sizes. Functions that
    StableHLO lacks (``erf``, ``tan``, ..) are operations of CHLO, which compilers of StableHLO
    know. Equal programs give equal bytes, and the file is replaced atomically.

    Raises ``UnsupportedModelError`` with everything that StableHLO has no form for,
    ``ArtifactError`` if the file cannot be written, and what importing the model raises.
    """
    from weft.export.stablehlo.program import export_stablehlo as write

    write(_module_of(model, inputs, example_inputs), path)


def _module_of(model: Any, inputs: Any, examples: Any) -> IRModule:
    """The program of a model, imported or as it was compiled."""
    if isinstance(model, Executable):
        if inputs is not None or examples is not None:
            raise OptionError("inputs and example_inputs are for models, not for executables",
                              help="compile the model for other inputs")
        if not isinstance(model.recompiler, Compilation):
            raise OptionError("a loaded artifact holds no program", got=type(model).__name__,
                              help="export the model that it was compiled from")
        return model.recompiler.stages.module_at("import")
    from weft.compiler.transformations.parameters import imported

    return imported(model, inputs, examples)
