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
    return {}


def backend_decompositions() -> Decompositions:
    """For graphs of ``torch.compile``: whatever torch can take apart and weft does not convert.

    Operators that draw random numbers stay whole: torch runs them, as its seed says.
    """
    table = {**missing_decompositions(), **core_aten_decompositions(), **extra_decompositions()}
    return {o: f for o, f in table.items() if not is_converted(o) and not draws_numbers(o)}


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
    """Whether an operator draws random numbers whatever its arguments are."""
    tags = getattr(overload, "tags", ())
    # Attention and recurrent layers draw numbers for dropout alone, which is traced as its own.
    return torch.Tag.nondeterministic_seeded in tags \
        and not any(part in str(overload) for part in ("attention", "lstm", "gru", "rnn"))
