"""Meshes of devices with named axes, and shardings: which axes cut which dimension of a tensor.

The terms are those of GSPMD (Xu et al., 2021) and of JAX: a dimension that the mesh axes ``("a",
"b")`` cut is in ``size(a) * size(b)`` equal parts, the coordinate along ``a`` counting first. A
device holds one part; devices that differ only in other axes hold copies of it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from typing import TypeAlias

from weft.support.dataclass import dataclass
from weft.support.errors import OptionError
from weft.support.suggestion import did_you_mean

# What users write for a dimension: an axis, several, or None.
DimSpec: TypeAlias = "str | Sequence[str] | None"


@dataclass(frozen=True)
class Link:
    """What joins a device to its neighbour: bytes per second, and seconds of a message."""

    bandwidth: float = 1.0
    latency: float = 0.0

    def __post_init__(self) -> None:
        if not self.bandwidth > 0 or not self.latency >= 0:
            raise OptionError("a link needs a bandwidth above 0 and a latency of at least 0",
                              got=f"bandwidth={self.bandwidth}, latency={self.latency}")


@dataclass(frozen=True)
class Mesh:
    """Devices in a grid: ``Mesh({"data": 2, "model": 4})`` has eight, numbered row by row.

    ``links`` says how fast the links along each axis are; without it, plans move the fewest bytes.
    """

    axes: Mapping[str, int]
    links: Mapping[str, Link] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in self.links:
            self.size_of(name)
        object.__setattr__(self, "links", dict(self.links))
        for name, size in self.axes.items():
            if not isinstance(name, str) or not name.isidentifier():
                raise OptionError("a mesh axis needs a name", expected="an identifier", got=name)
            if type(size) is not int or size < 1:
                raise OptionError(f"the mesh axis {name!r} needs a size", got=size,
                                  expected="a number of devices, at least 1")
        object.__setattr__(self, "axes", dict(self.axes))

    def __hash__(self) -> int:
        return hash(tuple(self.axes.items()))

    @property
    def size(self) -> int:
        return math.prod(self.axes.values())

    def parts(self, axes: Sequence[str]) -> int:
        """In how many parts these axes together cut a dimension."""
        return math.prod(self.size_of(name) for name in axes)

    def size_of(self, name: str) -> int:
        if name not in self.axes:
            raise OptionError(f"the mesh has no axis {name!r}", expected=", ".join(self.axes),
                              help=did_you_mean(name, list(self.axes)))
        return self.axes[name]

    def link(self, axes: Sequence[str]) -> Link:
        """The slowest link of a group along ``axes``."""
        links = [self.links.get(name, Link()) for name in axes if self.size_of(name) > 1]
        return Link(min((each.bandwidth for each in links), default=1.0),
                    max((each.latency for each in links), default=0.0))

    def coordinates(self, device: int) -> dict[str, int]:
        """The place of a device along each axis."""
        found = {}
        for name, size in reversed(list(self.axes.items())):
            device, found[name] = divmod(device, size)
        return {name: found[name] for name in self.axes}

    def index(self, device: int, axes: Sequence[str]) -> int:
        """Which part of a dimension that ``axes`` cut the device holds."""
        place, number = self.coordinates(device), 0
        for name in axes:
            number = number * self.size_of(name) + place[name]
        return number

    def group(self, device: int, axes: Sequence[str]) -> list[int]:
        """The devices that differ from ``device`` only along ``axes``, in the order of parts."""
        place, names = self.coordinates(device), list(self.axes)
        found = []
        for values in itertools.product(*(range(self.size_of(name)) for name in axes)):
            there, number = {**place, **dict(zip(axes, values, strict=True))}, 0
            for name in names:
                number = number * self.axes[name] + there[name]
            found.append(number)
        return found

    def __str__(self) -> str:
        return " x ".join(f"{name} {size}" for name, size in self.axes.items())


@dataclass(frozen=True)
class Sharding:
    """The mesh axes that cut each dimension of a tensor, the major one first."""

    dims: tuple[tuple[str, ...], ...]

    @staticmethod
    def of(*dims: DimSpec) -> Sharding:
        """``Sharding.of("data", None, ("x", "y"))``; ``OptionError`` for an axis used twice."""
        made = Sharding(tuple(() if d is None else (d,) if isinstance(d, str) else tuple(d)
                              for d in dims))
        used = list(made.axes())
        if len(set(used)) < len(used):
            raise OptionError("a mesh axis cuts two dimensions of one tensor", got=made,
                              expected="each axis at most once")
        return made

    @staticmethod
    def replicated(ndim: int) -> Sharding:
        return Sharding(((),) * ndim)

    @property
    def is_replicated(self) -> bool:
        return not any(self.dims)

    def axes(self) -> Iterator[str]:
        return itertools.chain.from_iterable(self.dims)

    def with_dim(self, dim: int, axes: tuple[str, ...]) -> Sharding:
        return Sharding((*self.dims[:dim], axes, *self.dims[dim + 1:]))

    def local_shape(self, shape: Sequence[int], mesh: Mesh) -> tuple[int, ...]:
        """The shape of the part that a device holds.

        Raises ``OptionError`` for another number of dimensions, and naming the dimension and axes
        where the parts would not be equal.
        """
        if len(shape) != len(self.dims):
            raise OptionError(f"a sharding of {len(self.dims)} dimensions for a tensor of "
                              f"{len(shape)}", expected=f"{len(shape)} dimensions", got=self)
        for dim, (size, axes) in enumerate(zip(shape, self.dims, strict=True)):
            if size % mesh.parts(axes):
                raise OptionError(
                    f"the mesh axes {', '.join(axes)} do not divide dimension {dim}",
                    expected=f"a multiple of {mesh.parts(axes)}", got=size,
                    help="pad the tensor, or choose another axis for this dimension")
        return tuple(size // mesh.parts(axes) for size, axes in zip(shape, self.dims, strict=True))

    def padded_shape(self, shape: Sequence[int], mesh: Mesh) -> tuple[int, ...]:
        """The next larger shape that the mesh divides."""
        if len(shape) != len(self.dims):
            self.local_shape(shape, mesh)
        return tuple(-(-size // parts) * parts for size, axes in zip(shape, self.dims, strict=True)
                     for parts in [mesh.parts(axes)])

    def __str__(self) -> str:
        return "(" + ", ".join("+".join(axes) or "-" for axes in self.dims) + ")"
