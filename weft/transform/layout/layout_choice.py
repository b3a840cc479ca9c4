"""What an implementation asks of data layouts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from weft.ir.attrs import Attrs
from weft.ir.expr import Call
from weft.ir.types import Type
from weft.topi.layout import Layout


@dataclass(frozen=True, slots=True)
class LayoutChoice:
    """The layouts in which a call runs best.

    ``attrs`` replaces the call's attributes (which name the new layouts). ``input_layouts`` has
    for every argument the layout of the call as it is written and the one wanted, such as
    ``("NCHW", "NCHW16c")`` and ``("OIHW", "OIHW16i16o")``, or ``None`` to take the argument as it
    is written. ``output_layout`` is the layout of the result, ``None`` if unchanged; the order of
    its primal axes is that of the result as written. ``paddings`` has for an argument the number
    of zeros to put behind each of its axes before it is laid out, since blocks must divide them.
    What that adds to the result is left out again: ``cut`` is an axis of the result as written and
    its size there.

    ``cycles`` estimates the call itself. It matters where a hook offers several choices: the pass
    adds what changing the layout of the data (the first argument) and of the result would take.
    """

    attrs: Attrs
    input_layouts: tuple[tuple[str, str] | None, ...]
    output_layout: str | None = None
    paddings: tuple[tuple[int, ...] | None, ...] = ()
    cut: tuple[int, int] | None = None
    cycles: float = 0.0

    @property
    def takes_blocks(self) -> bool:
        """Whether the data is wanted in a layout other than the one it was written in."""
        pair = self.input_layouts[0] if self.input_layouts else None
        return pair is not None and pair[0] != pair[1]

    @property
    def gives_blocks(self) -> bool:
        """Whether the result is in a layout other than the one it was written in."""
        layout = self.output_layout
        return layout is not None and self.cut is None and not Layout.parse(layout).is_primal


LayoutChoices: TypeAlias = LayoutChoice | Sequence[LayoutChoice] | None
# (call, types of its arguments, target) -> the choice, several to choose from, or None to leave
# the call as it is. The hooks of a target arrive in the pass context: ``config["alter_layout"]``
# maps operator names to them. A hook refuses calls that are in a layout of its choice already.
AlterLayoutHook: TypeAlias = Callable[[Call, Sequence[Type], Any], LayoutChoices]
