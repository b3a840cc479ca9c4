"""How a call is cut, given how its operands are: the choice whose collectives cost the least.

A choice gives each factor of the call (``index_maps``) the mesh axes that cut it. Candidates come
from the operands: a factor is cut as one of its operand dimensions already is, or not at all.
Operands that are free, such as weights, take any sharding without communication. Of equal choices
the one that cuts more wins, since each device then computes less. Operands that an all-reduce still
has to combine may be reduced and cut in one.

Where the links of the mesh and the speed of its devices are known (``Costs``), a choice also takes
the time of its part of the work: what cuts less is better only if it exchanges less time than it
computes longer. With ``spreads``, factors that no operand is cut along are cut, too, as long as the
time of the call becomes less.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Protocol, TypeAlias

from weft.ir import Call
from weft.ir.sharding import Mesh, Sharding
from weft.ir.types import TensorType
from weft.support.dataclass import dataclass
from weft.transform.sharding.costs import cost, nbytes_of
from weft.transform.sharding.index_maps import Factor, IndexMaps
from weft.transform.sharding.reshard import Axes, Form, form_cost
from weft.transform.sharding.windows import Window

_MOST_CHOICES = 256  # what more factors than these propose is left out


@dataclass(frozen=True, slots=True)
class Choice:
    """The shardings of operands and results, and how partial results are combined over axes."""

    operands: tuple[Sharding, ...]
    results: tuple[Sharding, ...]
    combine: tuple[tuple[str, Axes], ...]  # (reduction, axes)
    cost: float  # of its collectives (``costs``)
    parts: int  # in how many parts the work is cut
    halos: tuple[tuple[Window, Axes], ...] = ()  # of operands that are read in windows
    seconds: float = 0.0  # of the part of the work, where known

    @property
    def total(self) -> float:
        return self.cost + self.seconds


class CallSeconds(Protocol):
    """The time of a call on a device: of one of ``parts``, which reads and writes ``nbytes``."""

    def __call__(self, call: Call, parts: int, nbytes: float) -> float: ...


@dataclass(frozen=True, slots=True)
class Costs:
    """What computing takes, on a mesh whose links say what an exchange takes."""

    seconds: CallSeconds
    spreads: bool = False


def choices(maps: IndexMaps, operands: Sequence[TensorType], results: Sequence[TensorType],
            given: Sequence[Sequence[Form]], mesh: Mesh, call: Call | None = None,
            costs: Costs | None = None) -> list[Choice]:
    """All candidates, the best first; ``given`` has the forms of each operand, or none if free."""
    def made(cut: Mapping[Factor, Axes]) -> Choice:
        choice = _choice(cut, operands, results, given, mesh)
        if costs is None or call is None:
            return choice
        nbytes = sum(nbytes_of(t) / mesh.parts(tuple(s.axes())) for t, s in zip(
            (*operands, *results), (*choice.operands, *choice.results), strict=True))
        return dataclasses.replace(choice, seconds=costs.seconds(call, choice.parts, nbytes))

    cuts = list(itertools.islice(_cuts(maps, operands, given, mesh), _MOST_CHOICES))
    found = [(made(cut), cut) for cut in cuts]
    if costs is not None and costs.spreads:
        found += _spread(min(found, key=_order), operands, mesh, made)
    return [choice for choice, _ in sorted(found, key=_order)]


_Made: TypeAlias = "tuple[Choice, Mapping[Factor, Axes]]"


def _order(made: _Made) -> tuple[float, int]:
    return made[0].total, -made[0].parts


def _spread(best: _Made, operands: Sequence[TensorType], mesh: Mesh,
            made: Callable[[Mapping[Factor, Axes]], Choice]) -> Iterator[_Made]:
    """Choices that cut one factor more, from the best one on while they take less time."""
    while True:
        used = {axis for axes in best[1].values() for axis in axes}
        cuts = [{**best[1], factor: (*axes, axis)} for factor, axes in best[1].items()
                for axis, size in mesh.axes.items() if size > 1 and axis not in used
                and fits(factor, (*axes, axis), operands, mesh)]
        more = [(made(cut), cut) for cut in cuts]
        yield from more
        following = min([best, *more], key=_order)
        if following is best:
            return
        best = following


def fits(factor: Factor, axes: Axes, operands: Sequence[TensorType], mesh: Mesh) -> bool:
    """Whether the axes cut a factor in equal parts, none narrower than a halo of its windows."""
    parts = mesh.parts(axes)
    return factor.divisor % parts == 0 and all(
        w.fits(operands[w.operand].concrete_shape[w.dim] // parts) for w in factor.windows)


def _cuts(maps: IndexMaps, operands: Sequence[TensorType], given: Sequence[Sequence[Form]],
          mesh: Mesh) -> Iterator[Mapping[Factor, Axes]]:
    proposals: list[list[Axes]] = []
    for factor in maps.factors:
        found = {given_axes[:k] for n, d in factor.operands
                 for form in given[n] if (given_axes := form.sharding.dims[d])
                 for k in range(1, len(given_axes) + 1)}
        fitting = [axes for axes in found if fits(factor, axes, operands, mesh)]
        proposals.append([*sorted(fitting, key=len, reverse=True), ()])
    for chosen in itertools.product(*proposals):
        used = list(itertools.chain.from_iterable(chosen))
        if len(set(used)) == len(used):
            yield dict(zip(maps.factors, chosen, strict=True))


def _choice(cut: Mapping[Factor, Axes], operands: Sequence[TensorType],
            results: Sequence[TensorType], given: Sequence[Sequence[Form]], mesh: Mesh) -> Choice:
    before = [Sharding.replicated(t.ndim) for t in operands]
    after = [Sharding.replicated(t.ndim) for t in results]
    combined: dict[str, Axes] = {}
    for factor, axes in cut.items():
        for n, d in factor.operands:
            before[n] = before[n].with_dim(d, axes)
        for n, d in factor.results:
            after[n] = after[n].with_dim(d, axes)
        if axes and factor.reduction:
            together = (*combined.get(factor.reduction, ()), *axes)
            combined[factor.reduction] = tuple(sorted(together, key=list(mesh.axes).index))
    total = sum(min(form_cost(nbytes_of(t), form, wanted, mesh) for form in forms)
                for t, forms, wanted in zip(operands, given, before, strict=True) if forms)
    for axes in combined.values():
        total += sum(cost("all_reduce", nbytes_of(t) / mesh.parts(tuple(s.axes())), axes, mesh)
                     for t, s in zip(results, after, strict=True))
    parts = math.prod(mesh.parts(axes) for axes in cut.values())
    halos = tuple((w, axes) for factor, axes in cut.items() if mesh.parts(axes) > 1
                  for w in factor.windows)
    total += sum(_halo_cost(t, before[n], [h for h in halos if h[0].operand == n], mesh)
                 for n, t in enumerate(operands))
    return Choice(tuple(before), tuple(after), tuple(combined.items()), total, parts, halos)


def _halo_cost(type_: TensorType, sharding: Sharding, halos: Sequence[tuple[Window, Axes]],
               mesh: Mesh) -> float:
    """The cost of the borders of a part, along a dimension after the other."""
    shape, total = list(sharding.local_shape(type_.concrete_shape, mesh)), 0.0
    for w, axes in halos:
        line = type_.dtype.itemsize * math.prod(shape) / shape[w.dim]
        total += sum(cost("permute", width * line, axes, mesh)
                     for width in (w.before, w.after) if width > 0)
        shape[w.dim] += w.before + w.after
    return total


def because(chosen: Choice, candidates: Sequence[Choice]) -> str:
    """Why a choice is better than the one that exchanges the least, and the one that cuts most."""
    quiet = min(candidates, key=lambda c: (c.cost, c.total))
    widest = max(candidates, key=lambda c: (c.parts, -c.total))
    found = []
    if quiet.cost < chosen.cost and chosen.seconds < quiet.seconds:
        found.append(f"computes {_us(quiet.seconds - chosen.seconds)} less for "
                     f"{_us(chosen.cost - quiet.cost)} of exchange")
    if widest.parts > chosen.parts and widest.cost > chosen.cost and chosen.seconds:
        found.append(f"{widest.parts} parts would compute "
                     f"{_us(chosen.seconds - widest.seconds)} less and exchange "
                     f"{_us(widest.cost - chosen.cost)} more")
    return "; ".join(found)


def _us(seconds: float) -> str:
    return f"{seconds * 1e6:,.1f} us"
