"""Functions of tensors and TorchScript as modules that ``torch.export`` takes."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from weft.frontend.torch.export import quiet
from weft.support.errors import InvalidModelError

_SCRIPTED = (torch.jit.ScriptModule, torch.jit.ScriptFunction)


class Called(torch.nn.Module):
    """A module that calls a function; ``forward`` has the function's parameters."""

    def __init__(self, function: Callable[..., Any], signature: inspect.Signature, name: str
                 ) -> None:
        super().__init__()
        self.called = function
        self.name_of_function = name

        def forward(*args: Any, **kwargs: Any) -> Any:
            bound = signature.bind(*args, **kwargs)
            bound.apply_defaults()
            return function(*bound.args, **bound.kwargs)

        forward.__signature__ = signature  # type: ignore[attr-defined]
        self.forward = forward
        self.training = False


def as_module(model: Any, examples: Sequence[Any] | Mapping[str, Any] | None) -> Any:
    """A function or a module of TorchScript as a module; other models as they are.

    Raises ``InvalidModelError`` for TorchScript that torch cannot convert.
    """
    if isinstance(model, _SCRIPTED):
        if examples is None or getattr(model, "training", False):
            return model  # the export tells what is missing
        return _converted(model, examples)
    if isinstance(model, (torch.nn.Module, torch.export.ExportedProgram)) or not callable(model):
        return model
    try:
        signature = inspect.signature(model)
    except ValueError:  # a function in C
        signature = inspect.signature(lambda *args, **kwargs: (args, kwargs))
    return Called(model, signature, getattr(model, "__qualname__", type(model).__name__))


def _converted(model: Any, examples: Sequence[Any] | Mapping[str, Any]) -> torch.nn.Module:
    """The operators of TorchScript, with the parameters that the script names."""
    signature = _signature(model.forward.schema.arguments[1:]
                           if isinstance(model, torch.jit.ScriptModule) else model.schema.arguments)
    try:
        # torch keeps its converter in a private module, which a release may move.
        from torch._export.converter import TS2EPConverter

        bound = signature.bind(**examples) if isinstance(examples, Mapping) \
            else signature.bind(*examples)
        bound.apply_defaults()
        with quiet():
            program = TS2EPConverter(model, bound.args, bound.kwargs).convert()
    except Exception as error:  # torch raises anything
        raise InvalidModelError("torch cannot convert the TorchScript", where=_name_of(model),
                                got=f"{type(error).__name__}: {error}"[:500],
                                help="give the nn.Module that it was made from") from error
    graph = program.module()
    return Called(graph, signature, _name_of(model))


def check_initialized(model: object) -> None:
    """Raise ``InvalidModelError`` for a module with lazy layers that were never called."""
    if isinstance(model, torch.nn.Module) \
            and any(map(torch.nn.parameter.is_lazy, (*model.parameters(), *model.buffers()))):
        raise InvalidModelError("the module has parameters without a shape",
                                where=type(model).__name__,
                                help="call it once, which initializes its lazy layers")


def _name_of(model: Any) -> str:
    return str(getattr(model, "original_name", "") or getattr(model, "name", "")
               or type(model).__name__)


def _signature(arguments: Sequence[Any]) -> inspect.Signature:
    return inspect.Signature([
        inspect.Parameter(one.name, inspect.Parameter.POSITIONAL_OR_KEYWORD,
                          default=one.default_value if one.has_default_value()
                          else inspect.Parameter.empty) for one in arguments])
