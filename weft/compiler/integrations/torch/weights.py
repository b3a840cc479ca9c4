"""Weights that a region was compiled with as constants, and whether they have changed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import attrgetter, is_, itemgetter
from typing import Any

import torch

_version = attrgetter("_version")  # counts the changes that torch makes to a tensor


class Weights:
    """The tensors at ``positions`` of the arguments, with their present versions."""

    def __init__(self, args: Sequence[Any], positions: Iterable[int]) -> None:
        self.positions = tuple(p for p in sorted(positions) if isinstance(args[p], torch.Tensor)
                               and not args[p].is_inference())
        self._take = _taker(self.positions)
        self._tensors = self._take(args)
        self._versions = tuple(map(_version, self._tensors))

    def are_in(self, args: Sequence[Any]) -> bool:
        """Whether the arguments hold the same tensors, unchanged."""
        given = self._take(args)
        return all(map(is_, given, self._tensors)) \
            and tuple(map(_version, given)) == self._versions


def _taker(positions: tuple[int, ...]) -> Any:
    if len(positions) < 2:  # itemgetter gives a tuple from two on
        return lambda args: tuple(args[p] for p in positions)
    return itemgetter(*positions)
