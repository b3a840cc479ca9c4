"""Gradients of symbols as symbols (``nnvm.compiler.graph_util.gradients``)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from weft.compat.symbol.lowering import to_module
from weft.compat.symbol.reading import from_module
from weft.compat.symbol.symbol import Group, Symbol
from weft.ir.module import IRModule
from weft.support.errors import OptionError
from weft.transform.autodiff.reverse.graph_gradient import graph_gradient


def gradients(ys: Symbol | Sequence[Symbol], xs: Symbol | Sequence[Symbol], *,
              shapes: Mapping[str, Sequence[int]] | None = None,
              dtypes: Mapping[str, str] | None = None, **options: Any
              ) -> tuple[Symbol, dict[str, np.ndarray]]:
    """The gradients of the sum of all ``ys`` with respect to variables, and constants in them.

    ``shapes`` and ``dtypes`` are those of variables, by name; ``options`` are those of
    ``autodiff.reverse.graph_gradient`` (``zero_ops``, ``aggregate_fun``, ...), which says
    what is raised; ``OptionError`` for ``xs`` that are not variables.
    """
    targets = ys if isinstance(ys, Symbol) else Group(ys)
    sources = xs if isinstance(xs, Symbol) else Group(xs)
    for entry in sources.entries:
        if not entry.node.is_variable:
            raise OptionError("gradients are with respect to variables", got=entry.node.name)
    mod = to_module(targets.entries, shapes=shapes, dtypes=dtypes)
    names = [entry.node.name for entry in sources.entries]
    made = graph_gradient(mod, list(range(len(targets))), names, **options)
    return from_module(IRModule(made.functions))
