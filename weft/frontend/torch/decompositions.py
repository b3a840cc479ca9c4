"""Decompositions that torch applies while tracing, for operators that weft does not convert."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import torch
from torch._decomp import core_aten_decompositions, decomposition_table

from weft.frontend.torch import converters as _converters  # noqa: F401 - fills the table
from weft.frontend.torch.calls import takes_overload

Decompositions: TypeAlias = dict[Any, Callable[..., Any]]


def extra_decompositions() -> Decompositions:
    """Decompositions that weft defines, where torch has none or a less exact one."""
    return {torch.ops.aten.native_dropout.default: native_dropout}


def backend_decompositions() -> Decompositions:
    """Decompositions for ``torch.compile``, of all operators that weft does not convert.

    Random operators are not decomposed: torch runs them with its seed.
    """
    table = {**missing_decompositions(), **core_aten_decompositions()}
    taken = {o: f for o, f in table.items() if not is_converted(o) and not draws_numbers(o)}
    return {**taken, **extra_decompositions()}


def missing_decompositions() -> Decompositions:
    """Decompositions of torch beyond core ATen, of operators that weft does not convert."""
    known: Mapping[Any, Any] = decomposition_table
    return {o: f for o, f in known.items()
            if isinstance(o, torch._ops.OpOverload) and not is_converted(o)}  # noqa: SLF001


def is_converted(overload: Any) -> bool:
    """Whether weft has a converter for the arguments of an overload that mutates nothing."""
    return (isinstance(overload, torch._ops.OpOverload)  # noqa: SLF001
            and not overload._schema.is_mutable and takes_overload(overload))  # noqa: SLF001


# Draws of the forward that the backward repeats, in functions with torch.utils.checkpoint.
_REPEATED_DRAWS = ("run_and_save_rng_state", "run_with_rng_state")


def draws_numbers(overload: Any) -> bool:
    """Whether an operator always draws random numbers."""
    if isinstance(overload, torch._ops.HigherOrderOperator):  # noqa: SLF001
        return overload.name() in _REPEATED_DRAWS
    tags = getattr(overload, "tags", ())
    # Attention and recurrent layers are random only by dropout, which is traced separately.
    return torch.Tag.nondeterministic_seeded in tags \
        and not any(part in str(overload) for part in ("attention", "lstm", "gru", "rnn"))


def native_dropout(x: torch.Tensor, p: float, train: bool | None
                   ) -> tuple[torch.Tensor, torch.Tensor]:
    """Dropout like torch on a CPU, with a mask that does not depend on the values of ``x``.

    Because the mask depends only on sizes, torch can draw all masks of a graph before weft runs
    the rest as one program. Random numbers are drawn in the memory order of ``x``.
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
