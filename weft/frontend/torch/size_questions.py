"""What the Python code of a module asks about its sizes while torch traces it.

torch assumes that a traced size is 2 or more, and answers ``x.shape[0] == 1`` by no, without a
guard. The trace is wrong for size 1 then, which only the question shows.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import sympy
import torch

from weft.frontend.torch.dims import value_at

_TORCH = Path(torch.__file__).parent
# Modules of torch are code of the model; all else in torch asks for reasons of its own (strides).
_LAYERS = str(_TORCH / "nn")


@contextmanager
def noted_questions() -> Iterator[list[sympy.Basic]]:
    """Within the context, the conditions on sizes that Python code outside of torch branches on.

    They are added to the list that the context gives.
    """
    found: list[sympy.Basic] = []
    before = torch.SymBool.__bool__

    def noted(self: torch.SymBool) -> bool:
        caller = inspect.currentframe().f_back  # type: ignore[union-attr]
        if caller is not None and _is_of_model(caller.f_code.co_filename):
            found.append(self.node.expr)
        return before(self)

    torch.SymBool.__bool__ = noted  # type: ignore[method-assign]
    try:
        yield found
    finally:
        torch.SymBool.__bool__ = before  # type: ignore[method-assign]


def _is_of_model(file: str) -> bool:
    return not file.startswith(str(_TORCH)) or file.startswith(_LAYERS)


def differs(question: sympy.Basic, sizes: Mapping[str, int], usual: Mapping[str, int]) -> bool:
    """Whether the answer at ``sizes`` may be another than at ``usual`` sizes."""
    return value_at(question, sizes) != value_at(question, usual)
