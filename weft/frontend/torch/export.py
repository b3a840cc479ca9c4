"""Export of a torch module by ``torch.export``, with dynamic shapes."""

from __future__ import annotations

import inspect
import logging
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from weft.ir.shape import as_dim
from weft.support.errors import InvalidModelError, OptionError

Shapes = Mapping[str, Sequence[object]]
# By argument: its dynamic axes, or ``None`` if its shape is static.
OpenAxes = dict[str, "tuple[int, ...] | None"]


def name_of(model: object) -> str:
    """The class of a module, or the name of the function that it calls."""
    return str(getattr(model, "name_of_function", "") or type(model).__name__)


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
        raise InvalidModelError("the module is in training mode", where=name_of(model),
                                help="call model.eval() first; for training, give the result of "
                                     "torch.export.export(model, args), whose running averages "
                                     "and key become inputs")
    named = isinstance(example_inputs, Mapping)
    args = () if named else tuple(example_inputs)
    kwargs = dict(example_inputs) if named else {}
    axes = _open_axes(model, args, kwargs, shapes)
    return traced(model, args, kwargs, axes)


def traced(model: torch.nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any],
           axes: OpenAxes | None = None) -> torch.export.ExportedProgram:
    """Export a module for the sizes of the arguments, and for other sizes of ``axes``.

    Raises ``InvalidModelError`` if torch cannot trace it, or finds that one of ``axes`` has to be
    constant.
    """
    dims = None if axes is None or not any(axes.values()) else {
        name: opened and dict.fromkeys(opened, torch.export.Dim.DYNAMIC)
        for name, opened in axes.items()}
    try:
        with quiet():
            return torch.export.export(model, args, dict(kwargs) or None, dynamic_shapes=dims,
                                       strict=False)
    except Exception as error:  # the model's code may raise anything
        raise InvalidModelError("torch.export cannot trace the module", where=name_of(model),
                                got=f"{type(error).__name__}: {error}",
                                help=_way_round(error)) from error


# By a part of what torch says, how a module that torch.export refuses can be written.
_WAYS_ROUND = {
    "GuardOnDataDependentSymNode": "a branch on the values of tensors is torch.cond; a size from "
                                   ".item() takes torch._check(n <= 4096)",
    "data-dependent": "a branch on the values of tensors is torch.cond; a size from .item() takes "
                      "torch._check(n <= 4096)",
    "Constraints violated": "torch fixes this size: give its number in inputs, or do not name it",
    "marked dynamic": "torch fixes this size: give its number in inputs, or do not name it",
}


def _way_round(error: Exception) -> str | None:
    text = f"{type(error).__name__}: {error}"
    return next((way for part, way in _WAYS_ROUND.items() if part in text), None)


def _open_axes(model: torch.nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any],
               shapes: Shapes) -> OpenAxes:
    """The dynamic axes of each argument."""
    try:
        given = inspect.signature(model.forward).bind(*args, **kwargs).arguments
    except TypeError as error:
        raise OptionError("example_inputs do not fit the arguments of the model",
                          where=name_of(model), got=str(error)) from error
    unknown = [name for name in shapes if not isinstance(given.get(name), torch.Tensor)]
    if unknown:
        raise OptionError(f"unknown tensor argument {', '.join(map(repr, unknown))}",
                          expected=", ".join(n for n, v in given.items()
                                             if isinstance(v, torch.Tensor)),
                          help="for tensors inside others, pass a torch.export.ExportedProgram")
    return {name: _axes_of(name, value, tuple(shapes[name])) if name in shapes else None
            for name, value in given.items()}


def _axes_of(name: str, value: torch.Tensor, shape: tuple[object, ...]) -> tuple[int, ...]:
    if len(shape) != value.ndim:
        raise OptionError(f"the shape given for input {name!r} has the wrong rank",
                          expected=f"{value.ndim} dimensions", got=str(shape))
    axes = []
    for axis, size in enumerate(shape):
        dim = as_dim(size)
        if not isinstance(dim, int):
            axes.append(axis)
        elif dim != value.shape[axis]:
            raise OptionError(f"axis {axis} of the example for input {name!r} has another size",
                              expected=str(dim), got=str(value.shape[axis]))
    return tuple(axes)


@contextmanager
def quiet() -> Iterator[None]:
    """Silence torch's warnings about its own deprecated calls."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@contextmanager
def unlogged(name: str) -> Iterator[None]:
    """Within the context, the logger ``name`` of torch does not log what torch also raises."""
    logger = logging.getLogger(name)
    before = logger.disabled
    logger.disabled = True
    try:
        yield
    finally:
        logger.disabled = before
