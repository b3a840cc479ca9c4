"""The allocation budget: how many bytes of constants an import or a pass may make.

A file of 100 bytes can ask for a constant of any size (a depth, a shape, a number of repetitions).
Whoever computes such a constant with NumPy asks a budget first, and does without the constant or
raises an error if the budget does not grant it. Data that are stored in a file are not counted.
"""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

from weft.support.errors import UnsupportedModelError

# Some published models store no weights, but make up to 574 MB of them (ConstantOfShape).
BUDGET_BYTES = 1 << 30
# About the memory of a node of a program, and of a number in a Python list.
_NODE_BYTES = 4096
_NUMBER_BYTES = 128


class AllocationBudget:
    """A number of bytes, from which those of each constant are taken."""

    def __init__(self, nbytes: int = BUDGET_BYTES) -> None:
        self.left = nbytes

    def grants(self, nbytes: int) -> bool:
        """Whether ``nbytes`` are left; if so, they are taken."""
        granted = nbytes <= self.left
        if granted:
            self.left -= max(nbytes, 0)
        return granted


_current: ContextVar[AllocationBudget | None] = ContextVar("weft_allocation", default=None)


@contextmanager
def allocation_budget() -> Iterator[None]:
    """Give all allocations inside one budget; that of an enclosing block, if there is one."""
    token = _current.set(_current.get() or AllocationBudget())
    try:
        yield
    finally:
        _current.reset(token)


@functools.cache
def machine_memory() -> int:
    """The bytes of memory of this machine."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def may_allocate(shape: Sequence[int], itemsize: int) -> bool:
    """Whether the current budget grants an array; its bytes are taken from it if so.

    Outside of ``allocation_budget`` each array has a budget of its own.
    """
    budget = _current.get() or AllocationBudget()
    return budget.grants(math.prod(map(int, shape)) * itemsize)


def check_allocation(shape: Sequence[int], itemsize: int) -> None:
    """Raise ``UnsupportedModelError`` unless ``may_allocate``; importers add the node."""
    if not may_allocate(shape, itemsize):
        sizes = ", ".join(map(str, shape))
        raise UnsupportedModelError(
            "the model asks for more memory than an import may take",
            expected=f"at most {BUDGET_BYTES} bytes for all that its files do not store",
            got=f"shape ({sizes}), {math.prod(map(int, shape)) * itemsize} bytes",
            help="use smaller sizes, or make the tensor an input of the model",
        )


def check_nodes(count: int) -> None:
    """``check_allocation`` for as many nodes, which one node of a model becomes."""
    check_allocation((count,), _NODE_BYTES)


def check_numbers(count: int) -> None:
    """``check_allocation`` for a Python list of as many numbers."""
    check_allocation((count,), _NUMBER_BYTES)
