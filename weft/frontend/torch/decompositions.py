"""Which operators are taken apart while torch traces: those that weft does not convert whole."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import torch
from torch._decomp import core_aten_decompositions, decomposition_table

from weft.frontend.torch import converters as _converters  # noqa: F401 - fills the table
from weft.frontend.torch.calls import takes_overload

Decompositions: TypeAlias = dict[Any, Callable[..., Any]]


def extra_decompositions() -> Decompositions:
    """Decompositions of weft's own: where torch has none, or a less exact one."""
    return {torch.ops.aten.native_dropout.default: native_dropout}


def backend_decompositions() -> Decompositions:
    """For ``torch.compile``: the operators that torch can decompose and weft cannot convert.

    Operators that draw random numbers stay whole: torch runs them, as its seed says.
    """
    table = {**missing_decompositions(), **core_aten_decompositions()}
    taken = {o: f for o, f in table.items() if not is_converted(o) and not draws_numbers(o)}
    return {**taken, **extra_decompositions()}


def missing_decompositions() -> Decompositions:
    """Those that torch has beyond core ATen, of operators that weft does not convert."""
    known: Mapping[Any, Any] = decomposition_table
    return {o: f for o, f in known.items()
            if isinstance(o, torch._ops.OpOverload) and not is_converted(o)}  # noqa: SLF001


def is_converted(overload: Any) -> bool:
    """Whether weft has a converter for the arguments of an overload that changes nothing."""
    return (isinstance(overload, torch._ops.OpOverload)  # noqa: SLF001
            and not overload._schema.is_mutable and takes_overload(overload))  # noqa: SLF001


def draws_numbers(overload: Any) -> bool:
    """Whether an operator always draws random numbers."""
    tags = getattr(overload, "tags", ())
    # Attention and recurrent layers draw numbers for dropout alone, which is traced as its own.
    return torch.Tag.nondeterministic_seeded in tags \
        and not any(part in str(overload) for part in ("attention", "lstm", "gru", "rnn"))


def native_dropout(x: torch.Tensor, p: float, train: bool | None
                   ) -> tuple[torch.Tensor, torch.Tensor]:
    """Dropout as torch does it on a CPU, its mask drawn apart from ``x``.

    The mask depends on sizes alone, so torch can draw all masks of a graph before weft runs the
    rest as one. Numbers are drawn in the order in which ``x`` lies in memory.
    """
    if train is False:
        return x.clone(), torch.ones_like(x, dtype=torch.bool)
    kept = 1.0 - p
    order = list(range(x.ndim))
    if not x.is_contiguous():
        order.sort(key=x.stride, reverse=True)
    empty = torch.empty([x.shape[axis] for axis in order], dtype=torch.bool, device=x.device)
    drawn = torch.ops.aten.bernoulli.p(empty, kept)
    mask = drawn.permute([order.index(axis) for axis in range(x.ndim)])
    return x * (mask.to(x.dtype) * (1.0 / kept if kept else 0.0)), mask
