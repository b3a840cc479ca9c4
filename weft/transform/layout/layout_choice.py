"""The layouts that an implementation of a call prefers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from weft.ir import Attrs, Call, Type
from weft.support.dataclass import dataclass
from weft.topi.layout import Layout


@dataclass(frozen=True, slots=True)
class LayoutChoice:
    """Layouts for the operands and the result of a call.

    ``attrs`` replaces the call's attributes and names the new layouts. ``input_layouts`` has a pair
    for every argument: its original layout and the wanted one, such as ``("NCHW", "NCHW16c")``, or
    ``None`` to keep the original. ``output_layout`` is the layout of the result, ``None`` if
    unchanged; its primal axes are in the order of the original result. ``paddings`` has for an
    argument the number of zeros to append along each axis before the layout changes, since blocks
    must divide their axes. ``cut`` is an axis of the original result and its size there: the
    elements beyond it, which the padding added, are sliced off.

    ``seconds`` estimates the call itself. It matters where a hook offers several choices: the pass
    adds the time to change the layouts of the data (the first argument) and of the result.
    """

    attrs: Attrs
    input_layouts: tuple[tuple[str, str] | None, ...]
    output_layout: str | None = None
    paddings: tuple[tuple[int, ...] | None, ...] = ()
    cut: tuple[int, int] | None = None
    seconds: float = 0.0

    @property
    def takes_blocks(self) -> bool:
        """Whether the data is wanted in another layout than the original one."""
        pair = self.input_layouts[0] if self.input_layouts else None
        return pair is not None and pair[0] != pair[1]

    @property
    def gives_blocks(self) -> bool:
        """Whether the result is in another layout than the original one."""
        layout = self.output_layout
        return layout is not None and self.cut is None and not Layout.parse(layout).is_primal


LayoutChoices: TypeAlias = LayoutChoice | Sequence[LayoutChoice] | None
# (call, types of its arguments, target) -> the choice, several to choose from, or None to leave the
# call unchanged. The pass context holds the hooks of a target: ``config["alter_layout"]`` maps
# operator names to them. A hook returns None for calls that already have a layout of its choice.
AlterLayoutHook: TypeAlias = Callable[[Call, Sequence[Type], Any], LayoutChoices]
