"""``torch.compile(model, backend="weft")``: what TorchDynamo traces, compiled for this CPU.

Graphs arrive as core ATen operators from AOTAutograd, with gradients or without. weft compiles
what it supports, in regions as large as they can be; torch runs the rest. Regions are compiled
when they are first called, with the sizes of that call, and again for other sizes.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch.fx

from weft.compiler.integrations.torch.backend import Backend
from weft.support.config import config
from weft.support.errors import OptionError

Compiled = Callable[..., Any]


def torch_backend(
    graph: torch.fx.GraphModule | None = None, example_inputs: Sequence[Any] = (), *,
    mode: str | None = None, options: Mapping[str, Any] | None = None, strict: bool = False,
) -> Compiled:
    """A backend of ``torch.compile``; ``options`` are ``target``, ``opt_level``, ``strict`` and
    settings of ``weft.config``.

    What weft cannot take runs in torch, and one ``FallbackWarning`` for each graph lists the
    operators. ``strict`` raises ``UnsupportedModelError`` instead, with the same list;
    ``torch.compile(model, backend=weft.torch_backend(strict=True))``.

    Raises ``OptionError`` for other options.
    """
    if graph is None:
        return functools.partial(torch_backend, strict=strict)
    if mode not in (None, "default"):
        raise OptionError("weft has one mode", expected='"default"', got=repr(mode))
    settings = dict(options or {})
    strict = bool(settings.pop("strict", strict))
    config.check({k: v for k, v in settings.items() if k not in ("target", "opt_level")})
    return Backend(settings, strict)(graph, example_inputs)
