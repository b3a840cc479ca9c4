"""PyTorch models as weft modules, through ``torch.export`` and core ATen.

torch is an extra and takes seconds to import, so it is imported with the first model.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from weft.support.errors import OptionError
from weft.support.interpreter import interrupts_held

if TYPE_CHECKING:
    from weft.frontend.common.user_converters import C
    from weft.frontend.source import Source
    from weft.frontend.torch.program import TorchProgram
    from weft.ir.module import IRModule

__all__ = ["from_torch", "torch_converter", "torch_program"]


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


def torch_converter(name: str) -> Callable[[C], C]:
    """Register the decorated function as the converter of a torch operator.

    ``name`` is ``"library::operator"`` for all overloads, or ``"library::operator.overload"`` for
    one, and replaces weft's converter. The function is ``convert(node, *inputs, **attributes)``:
    the arguments in the order of the operator's schema, those with the names of its keyword-only
    parameters by name; tensors as typed expressions, other arguments as Python values. It returns
    the result, or a sequence of results, as expressions. Raises ``RegistryError`` for a name
    without a library, and ``OptionError`` where torch is missing. ``weft.onnx_converter`` is the
    same for ONNX (docs/tutorials/add_converter.md).
    """

    def wrap(function: C) -> C:
        _load("converters").register_converter(name, function)
        return function

    return wrap


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
