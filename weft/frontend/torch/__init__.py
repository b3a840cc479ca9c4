"""PyTorch models as weft modules, through ``torch.export`` and core ATen.

torch is an extra and takes seconds to import, so it is imported with the first model.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from weft.support.errors import OptionError
from weft.support.interpreter import interrupts_held

if TYPE_CHECKING:
    from weft.frontend.source import Source
    from weft.frontend.torch.program import TorchProgram
    from weft.ir.module import IRModule

__all__ = ["from_torch", "torch_program"]


def torch_program(
    model: Any,
    *,
    example_inputs: Sequence[Any] | Mapping[str, Any] | None = None,
    inputs: Mapping[str, Sequence[object]] | None = None,
) -> TorchProgram:
    """Convert a torch module or ``ExportedProgram`` to a graph of core ATen operators with weights.

    A module needs ``example_inputs``, positional or by name. ``inputs`` names the dynamic sizes:
    ``{"x": ("batch", 3, 224, 224)}``. Raises ``UnsupportedModelError`` that lists all unsupported
    operators, and ``InvalidModelError`` if torch cannot export the module.
    """
    return _load("program").make_program(model, example_inputs, inputs or {})


def from_torch(
    program: TorchProgram, *, inputs: Mapping[str, Sequence[object]] | None = None
) -> IRModule:
    """Import ``program`` as a typed module, with the input shapes ``inputs``.

    Inputs that ``inputs`` omits must have static shapes.
    """
    return _load("importer").import_program(program, inputs or {})


def open_torch(model: Any, examples: Any, options: Any) -> Source:
    """The source of a module, of an exported program, or of the file of one (``.pt2``)."""
    source: Source = _load("source").TorchSource(model, examples, options)
    return source


def _load(name: str) -> Any:
    try:
        with interrupts_held():
            return importlib.import_module(f"weft.frontend.torch.{name}")
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] not in ("torch", "sympy"):
            raise
        raise OptionError(
            "reading PyTorch models needs torch",
            got=f"no module named {error.name!r}",
            help="pip install weft[torch]",
        ) from None
