"""PyTorch models as weft modules, through ``torch.export`` and core ATen.

torch is an extra and takes seconds to import, so it is imported when the first model arrives.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeGuard

from weft.support.errors import OptionError
from weft.support.interrupts import interrupts_held

if TYPE_CHECKING:
    from weft.frontend.torch.module_source import ModuleSource
    from weft.frontend.torch.program import TorchProgram
    from weft.ir.module import IRModule

__all__ = ["from_torch", "is_module_source", "is_torch_model", "is_torch_program",
           "source_of_module", "torch_program"]


def is_torch_model(model: Any) -> bool:
    """Whether ``model`` is a torch module or an exported program. Does not import torch."""
    torch = sys.modules.get("torch")
    if torch is None:
        return False
    return isinstance(model, (torch.nn.Module, torch.export.ExportedProgram))


def is_torch_program(model: object) -> TypeGuard[TorchProgram]:
    """Whether ``model`` is a ``TorchProgram``."""
    module = sys.modules.get("weft.frontend.torch.program")
    return module is not None and isinstance(model, module.TorchProgram)


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


def source_of_module(
    model: Any, example_inputs: Sequence[Any] | Mapping[str, Any] | None
) -> ModuleSource | None:
    """Wrap a torch module to trace it lazily; returns ``None`` for an ``ExportedProgram``."""
    if not isinstance(model, sys.modules["torch"].nn.Module):
        return None
    return _load("module_source").ModuleSource(model, example_inputs)


def is_module_source(model: object) -> TypeGuard[ModuleSource]:
    """Whether ``model`` is a ``ModuleSource``."""
    module = sys.modules.get("weft.frontend.torch.module_source")
    return module is not None and isinstance(model, module.ModuleSource)


def from_torch(
    program: TorchProgram, *, inputs: Mapping[str, Sequence[object]] | None = None
) -> IRModule:
    """Import ``program`` as a typed module, with the input shapes ``inputs``.

    Inputs that ``inputs`` omits must have static shapes.
    """
    return _load("importer").import_program(program, inputs or {})


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
