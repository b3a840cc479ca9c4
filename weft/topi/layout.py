"""Data layouts by name: which axis of a tensor is which, and which axes are split into blocks.

An upper-case letter is a primal axis, a number with a lower-case letter a block of that axis:
``NCHW16c`` is ``(N, C // 16, H, W, 16)``, ``OIHW16i8o`` is ``(O // 8, I // 16, H, W, 16, 8)``.
"""

from __future__ import annotations

import functools
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Any

import numpy as np

from weft.support.dataclass import dataclass
from weft.support.errors import AttrsError

_TOKEN = re.compile(r"([A-Z])|(\d+)([a-z])")


@dataclass(frozen=True, slots=True)
class LayoutAxis:
    """One axis of a layout: ``letter`` names the primal axis, ``factor`` is set for blocks."""

    letter: str
    factor: int | None = None

    @property
    def is_primal(self) -> bool:
        return self.factor is None

    def __str__(self) -> str:
        return self.letter if self.factor is None else f"{self.factor}{self.letter.lower()}"


@dataclass(frozen=True, slots=True)
class Layout:
    """An ordered tuple of axes; value equality. Make one with ``Layout.parse(name)``.

    Type relations and passes ask for the properties all the time, so each is computed once:
    ``primal_axes`` are the primal letters in order (``NCHW`` of ``NCHW16c``).
    """

    axes: tuple[LayoutAxis, ...]
    name: str = field(init=False, compare=False, repr=False)
    primal_axes: str = field(init=False, compare=False, repr=False)
    is_primal: bool = field(init=False, compare=False, repr=False)
    _position: Mapping[str, int] = field(init=False, compare=False, repr=False)
    _block_position: Mapping[str, int] = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        primal = {a.letter: i for i, a in enumerate(self.axes) if a.factor is None}
        blocks = {a.letter: i for i, a in enumerate(self.axes) if a.factor is not None}
        derived = {"name": "".join(map(str, self.axes)), "primal_axes": "".join(primal),
                   "is_primal": not blocks, "_position": primal, "_block_position": blocks}
        for name, value in derived.items():
            object.__setattr__(self, name, value)

    @staticmethod
    def parse(name: str | Layout) -> Layout:
        """The layout of that name; raises ``AttrsError`` for a malformed one."""
        return name if isinstance(name, Layout) else _parse(name)

    def __hash__(self) -> int:
        return hash(self.name)  # the axes, and Python keeps the hash of a text

    def __str__(self) -> str:
        return self.name

    @property
    def ndim(self) -> int:
        return len(self.axes)

    @property
    def primal(self) -> Layout:
        """The same layout without blocks."""
        return self if self.is_primal else _parse(self.primal_axes)

    def index_of(self, letter: str) -> int:
        """The position of a primal axis; raises ``AttrsError`` for a letter not in the layout."""
        found = self._position.get(letter)
        if found is not None:
            return found
        raise AttrsError(f"axis {letter!r} is not in layout {self}")

    def block_index_of(self, letter: str) -> int | None:
        """The position of the block of ``letter``, ``None`` if it is not split."""
        return self._block_position.get(letter)

    def factor_of(self, letter: str) -> int:
        """The block size of ``letter``; 1 if it is not split."""
        position = self._block_position.get(letter)
        return 1 if position is None else self.axes[position].factor or 1

    def has(self, letter: str) -> bool:
        return letter in self._position

    def indices(self, primal: Mapping[str, Any]) -> tuple[Any, ...]:
        """Indices into a tensor of this layout from one index per primal letter."""
        return tuple(self._index(axis, primal[axis.letter]) for axis in self.axes)

    def _index(self, axis: LayoutAxis, primal: Any) -> Any:
        factor = self.factor_of(axis.letter)
        if isinstance(primal, BlockedIndex):
            return primal.along(axis, factor)
        if axis.is_primal:
            return primal if factor == 1 else primal // factor
        return primal % factor

    def blocked_indices(self, indices: Sequence[Any]) -> dict[str, Any]:
        """One index per primal letter from indices into a tensor of this layout.

        Split axes give a ``BlockedIndex``, so that equal blocks index each other without division.
        """
        found: dict[str, Any] = {}
        for letter in self.primal_axes:
            outer = indices[self.index_of(letter)]
            block = self.block_index_of(letter)
            found[letter] = (
                outer
                if block is None
                else BlockedIndex(outer, indices[block], self.factor_of(letter))
            )
        return found


@dataclass(frozen=True, slots=True, eq=False)
class BlockedIndex:
    """The index ``outer * factor + inner``, kept as ``outer`` and ``inner``."""

    outer: Any
    inner: Any
    factor: int

    @property
    def value(self) -> Any:
        return self.outer * self.factor + self.inner

    def along(self, axis: LayoutAxis, factor: int) -> Any:
        """The index along ``axis`` of a layout that blocks the letter by ``factor``."""
        if factor == self.factor:
            return self.outer if axis.is_primal else self.inner
        if axis.is_primal:
            return self.value if factor == 1 else self.value // factor
        return self.value % factor


@functools.lru_cache(maxsize=512)
def _parse(name: str) -> Layout:
    axes: list[LayoutAxis] = []
    position = 0
    while position < len(name):
        match = _TOKEN.match(name, position)
        if match is None:
            raise _bad_layout(name, "upper-case axes, and blocks such as 16c")
        axes.append(
            LayoutAxis(match[1]) if match[1] else LayoutAxis(match[3].upper(), int(match[2]))
        )
        position = match.end()
    _check(name, axes)
    return Layout(tuple(axes))


def _check(name: str, axes: Sequence[LayoutAxis]) -> None:
    primal = [a.letter for a in axes if a.is_primal]
    blocks = [a for a in axes if not a.is_primal]
    letters = [a.letter for a in blocks]
    if not primal or len(set(primal)) != len(primal) or len(set(letters)) != len(letters):
        raise _bad_layout(name, "each axis once, and at most one block of it")
    if any(letter not in primal for letter in letters):
        raise _bad_layout(name, "a primal axis for every block (C for 16c)")
    if any(not a.factor for a in blocks):
        raise _bad_layout(name, "block sizes of at least 1")


def _bad_layout(name: str, expected: str) -> AttrsError:
    return AttrsError(f"malformed layout {name!r}", expected=expected,
                      help="layouts look like NCHW, NHWC, NCHW16c, OIHW16i16o")


def check_convertible(src: Layout, dst: Layout) -> None:
    """Raise ``AttrsError`` unless both layouts have the same primal axes."""
    if sorted(src.primal_axes) != sorted(dst.primal_axes):
        raise AttrsError(f"cannot convert layout {src} to {dst}",
                         expected=f"a layout of the axes {', '.join(src.primal_axes)}",
                         got=str(dst))


def convert_shape(
    src: Layout,
    dst: Layout,
    shape: Sequence[Any],
    *,
    mul: Callable[[Any, Any], Any] = operator.mul,
    div: Callable[[Any, Any], Any] = operator.floordiv,
) -> tuple[Any, ...]:
    """The shape in ``dst`` of a tensor that has ``shape`` in ``src``.

    ``mul`` and ``div`` serve sizes without operators. The caller checks that blocks divide their
    axes. Raises ``AttrsError`` if the rank differs from that of ``src``.
    """
    if len(shape) != src.ndim:
        raise AttrsError(f"layout {src} has {src.ndim} axes", got=f"a shape of {len(shape)}")
    factors, others = _factors(src), _factors(dst)
    sizes: dict[str, Any] = {}
    for axis, size in zip(src.axes, shape, strict=True):
        if axis.factor is None:
            factor = factors.get(axis.letter, 1)
            sizes[axis.letter] = size if factor == 1 else mul(size, factor)
    converted = []
    for axis in dst.axes:
        factor = others.get(axis.letter, 1)
        size = sizes[axis.letter]
        if axis.factor is not None:
            converted.append(axis.factor)
        else:
            converted.append(size if factor == 1 else div(size, factor))
    return tuple(converted)


def _factors(layout: Layout) -> dict[str, int]:
    """The block sizes of the axes that are split."""
    if layout.is_primal:
        return {}
    return {axis.letter: axis.factor for axis in layout.axes if axis.factor is not None}


def transform_array(array: np.ndarray, src: Layout, dst: Layout) -> np.ndarray:
    """``array`` converted from ``src`` to ``dst``, by reshapes and transposes.

    Raises ``AttrsError`` if a block does not divide its axis.
    """
    for kind, argument in transform_steps(src, dst, array.shape):
        array = array.reshape(argument) if kind == "reshape" else array.transpose(argument)
    return np.ascontiguousarray(array)


def transform_steps(
    src: Layout, dst: Layout, shape: Sequence[int]
) -> list[tuple[str, tuple[int, ...]]]:
    """The change of layout as ``("reshape", shape)`` and ``("transpose", axes)`` steps.

    Axes whose blocks agree stay split; the others are merged and split again. No-op steps are
    dropped, so a change that only merges neighbours is one reshape.
    """
    return list(_steps(src, dst, tuple(shape)))


@functools.lru_cache(maxsize=1024)
def _steps(src: Layout, dst: Layout, shape: tuple[int, ...]
           ) -> tuple[tuple[str, tuple[int, ...]], ...]:
    check_convertible(src, dst)
    kept = {a for a in src.primal_axes if _block_of(src, a) == _block_of(dst, a)}
    # Next to its axis, a block is merged or split off by a reshape.
    merged_src = _merge_order(src)
    steps = [("transpose", tuple(src.axes.index(a) for a in merged_src))]
    sizes = dict(zip(src.axes, shape, strict=True))
    atoms = [a for a in merged_src if a.is_primal or a.letter in kept]
    merged = [
        sizes[a] * (1 if a.letter in kept or not a.is_primal else src.factor_of(a.letter))
        for a in atoms
    ]
    steps.append(("reshape", tuple(merged)))
    split_axes, split_shape = _split(atoms, merged, kept, dst)
    steps.append(("reshape", tuple(split_shape)))
    steps.append(("transpose", tuple(split_axes.index(a) for a in dst.axes)))
    return tuple(_drop_no_ops(steps, shape))


def _block_of(layout: Layout, letter: str) -> int | None:
    return layout.factor_of(letter) if layout.block_index_of(letter) is not None else None


def _merge_order(layout: Layout) -> list[LayoutAxis]:
    """Every primal axis followed by its block."""
    order: list[LayoutAxis] = []
    for axis in layout.axes:
        if axis.is_primal:
            order.append(axis)
            block = layout.block_index_of(axis.letter)
            if block is not None:
                order.append(layout.axes[block])
    return order


def _split(
    atoms: Sequence[LayoutAxis], shape: Sequence[int], kept: set[str], dst: Layout
) -> tuple[list[LayoutAxis], list[int]]:
    axes: list[LayoutAxis] = []
    sizes: list[int] = []
    for axis, size in zip(atoms, shape, strict=True):
        block = dst.block_index_of(axis.letter)
        if axis.letter in kept or block is None:
            axes.append(axis)
            sizes.append(size)
            continue
        factor = dst.factor_of(axis.letter)
        if size % factor:
            raise AttrsError(f"layout {dst} does not fit", expected=f"{axis.letter} divisible "
                             f"by {factor}", got=f"{axis.letter} = {size}")
        axes += [axis, dst.axes[block]]
        sizes += [size // factor, factor]
    return axes, sizes


def _drop_no_ops(
    steps: Sequence[tuple[str, tuple[int, ...]]], shape: tuple[int, ...]
) -> list[tuple[str, tuple[int, ...]]]:
    result: list[tuple[str, tuple[int, ...]]] = []
    for kind, argument in steps:
        if kind == "reshape":
            if argument == shape:
                continue
            # Of two reshapes in a row the first is without effect.
            if result and result[-1][0] == "reshape":
                result.pop()
            shape = argument
        elif argument == tuple(range(len(shape))):
            continue
        else:
            shape = tuple(shape[i] for i in argument)
        result.append((kind, argument))
    return result
