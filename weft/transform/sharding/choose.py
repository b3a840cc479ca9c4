"""How a call is cut, given how its operands are: the choice that moves the fewest bytes.

A choice gives each factor of the call (``index_maps``) the mesh axes that cut it. Candidates come
from the operands: a factor is cut as one of its operand dimensions already is, or not at all.
Operands that are free, such as weights, take any sharding without communication. Of equal choices
the one that cuts more wins, since each device then computes less.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence

from weft.ir.sharding import Mesh, Sharding
from weft.ir.types import TensorType
from weft.support.dataclass import dataclass
from weft.transform.sharding.index_maps import Factor, IndexMaps
from weft.transform.sharding.reshard import all_reduce_bytes, resharding_bytes

_MOST_CHOICES = 256  # what more factors than these propose is left out
Axes = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Choice:
    """The shardings of operands and results, and how partial results are combined over axes."""

    operands: tuple[Sharding, ...]
    results: tuple[Sharding, ...]
    combine: tuple[tuple[str, Axes], ...]  # (reduction, axes)
    nbytes: float  # that each device receives
    parts: int  # in how many parts the work is cut


def nbytes_of(type_: TensorType) -> int:
    return math.prod(type_.concrete_shape) * type_.dtype.itemsize


def choices(maps: IndexMaps, operands: Sequence[TensorType], results: Sequence[TensorType],
            given: Sequence[Sharding | None], mesh: Mesh) -> list[Choice]:
    """All candidates, the best first; ``None`` in ``given`` is an operand that is free."""
    found = [_choice(cut, operands, results, given, mesh)
             for cut in itertools.islice(_cuts(maps, given, mesh), _MOST_CHOICES)]
    return sorted(found, key=lambda c: (c.nbytes, -c.parts))


def _cuts(maps: IndexMaps, given: Sequence[Sharding | None], mesh: Mesh
          ) -> Iterator[Mapping[Factor, Axes]]:
    proposals: list[list[Axes]] = []
    for factor in maps.factors:
        found = {given_axes[:k] for n, d in factor.operands
                 if (s := given[n]) is not None and (given_axes := s.dims[d])
                 for k in range(1, len(given_axes) + 1)}
        fitting = [axes for axes in found if factor.divisor % mesh.parts(axes) == 0]
        proposals.append([*sorted(fitting, key=len, reverse=True), ()])
    for chosen in itertools.product(*proposals):
        used = list(itertools.chain.from_iterable(chosen))
        if len(set(used)) == len(used):
            yield dict(zip(maps.factors, chosen, strict=True))


def _choice(cut: Mapping[Factor, Axes], operands: Sequence[TensorType],
            results: Sequence[TensorType], given: Sequence[Sharding | None], mesh: Mesh) -> Choice:
    before = [Sharding.replicated(t.ndim) for t in operands]
    after = [Sharding.replicated(t.ndim) for t in results]
    combine = []
    for factor, axes in cut.items():
        for n, d in factor.operands:
            before[n] = before[n].with_dim(d, axes)
        for n, d in factor.results:
            after[n] = after[n].with_dim(d, axes)
        if axes and factor.reduction:
            combine.append((factor.reduction, axes))
    moved = sum(resharding_bytes(nbytes_of(t), s, wanted, mesh)
                for t, s, wanted in zip(operands, given, before, strict=True) if s is not None)
    for _, axes in combine:
        moved += sum(all_reduce_bytes(nbytes_of(t) / mesh.parts(tuple(s.axes())), axes, mesh)
                     for t, s in zip(results, after, strict=True))
    parts = math.prod(mesh.parts(axes) for axes in cut.values())
    return Choice(tuple(before), tuple(after), tuple(combine), moved, parts)
