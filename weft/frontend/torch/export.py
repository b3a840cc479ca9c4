"""Export of a torch module by ``torch.export``, with dynamic shapes."""

from __future__ import annotations

import inspect
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch._dynamo.exc import UserError

from weft.ir.shape import AnyDim, SymDim, as_dim
from weft.support.errors import InvalidModelError, OptionError

Shapes = Mapping[str, Sequence[object]]
# By argument: the names of its dynamic axes, or ``None`` if its shape is static.
OpenAxes = dict[str, dict[int, str] | None]


def export_module(model: torch.nn.Module, example_inputs: Sequence[Any] | Mapping[str, Any] | None,
                  shapes: Shapes) -> torch.export.ExportedProgram:
    """Export a module in eval mode, traced with example arguments.

    ``shapes`` names the dynamic sizes. Raises ``OptionError`` for examples and shapes that do not
    fit the module, and ``InvalidModelError`` if torch cannot trace it.
    """
    if example_inputs is None:
        raise OptionError("a torch module needs example_inputs",
                          got="no example_inputs",
                          help="weft.compile(module, example_inputs=(torch.zeros(1, 3, 32, 32),))")
    if model.training:
        raise InvalidModelError("the module is in training mode", where=type(model).__name__,
                                help="call model.eval() first; for training, give the result of "
                                     "torch.export.export(model, args), whose running averages "
                                     "and key become inputs")
    named = isinstance(example_inputs, Mapping)
    args = () if named else tuple(example_inputs)
    kwargs = dict(example_inputs) if named else None
    axes = _open_axes(model, args, kwargs, shapes)
    try:
        return _traced(model, args, kwargs, axes)
    except Exception as error:  # the model's code may raise anything
        raise InvalidModelError("torch.export cannot trace the module", where=type(model).__name__,
                                got=f"{type(error).__name__}: {error}") from error


def _traced(model: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any] | None,
            axes: OpenAxes) -> torch.export.ExportedProgram:
    """Export the module, within the bounds of sizes that torch finds (of a position table, say).

    Raises ``UserError`` if torch finds that a dynamic size must be constant.
    """
    with quiet():
        try:
            return torch.export.export(model, args, kwargs, dynamic_shapes=_dims(axes, {}))
        except UserError as error:
            fixes = dict(_FIX.findall(str(error)))
            bounds = {name: dict(_BOUND.findall(fix)) for name, fix in fixes.items()}
            if not bounds or not all(fix.startswith("Dim(") for fix in fixes.values()):
                raise
            return torch.export.export(model, args, kwargs, dynamic_shapes=_dims(axes, bounds))


# Lines of torch's message with the bounds that it found: ``seq = Dim('seq', max=32)``.
_FIX = re.compile(r"^ *(\w+) = (.+)$", re.MULTILINE)
_BOUND = re.compile(r"(min|max)=(\d+)")


def _dims(axes: OpenAxes, bounds: Mapping[str, Mapping[str, str]]) -> Any:
    """The ``dynamic_shapes`` argument of ``torch.export``, with one ``Dim`` per name."""
    if not any(axes.values()):
        return None
    names = dict.fromkeys(name for named in axes.values() for name in (named or {}).values())
    dims = {name: torch.export.Dim(name, **{k: int(v) for k, v in bounds.get(name, {}).items()})
            for name in names}
    return {argument: named and {axis: dims[name] for axis, name in named.items()}
            for argument, named in axes.items()}


def _open_axes(model: torch.nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any] | None,
               shapes: Shapes) -> OpenAxes:
    """The dynamic axes of each argument and their names."""
    given = inspect.signature(model.forward).bind(*args, **(kwargs or {})).arguments
    unknown = [name for name in shapes if not isinstance(given.get(name), torch.Tensor)]
    if unknown:
        raise OptionError(f"unknown tensor argument {', '.join(map(repr, unknown))}",
                          expected=", ".join(n for n, v in given.items()
                                             if isinstance(v, torch.Tensor)),
                          help="for tensors inside others, pass a torch.export.ExportedProgram")
    return {name: _axes_of(name, value, tuple(shapes[name])) if name in shapes else None
            for name, value in given.items()}


def _axes_of(name: str, value: torch.Tensor, shape: tuple[object, ...]) -> dict[int, str]:
    if len(shape) != value.ndim:
        raise OptionError(f"the shape given for input {name!r} has the wrong rank",
                          expected=f"{value.ndim} dimensions", got=str(shape))
    axes: dict[int, str] = {}
    for axis, size in enumerate(shape):
        dim = as_dim(size)
        if isinstance(dim, AnyDim):
            axes[axis] = f"{name}_{axis}"
        elif isinstance(dim, SymDim):
            symbol = str(dim)
            if not symbol.isidentifier():
                raise OptionError("a dynamic size of a torch module must be a name", got=symbol)
            axes[axis] = symbol
        elif dim != value.shape[axis]:
            raise OptionError(f"axis {axis} of the example for input {name!r} has another size",
                              expected=str(dim), got=str(value.shape[axis]))
    return axes


@contextmanager
def quiet() -> Iterator[None]:
    """Silence torch's warnings about its own deprecated calls."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
