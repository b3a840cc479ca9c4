"""``tensorize``: the innermost loops become one machine instruction."""

from __future__ import annotations

from weft.te.domain import loop_extents
from weft.te.state import AttachAt, StageState
from weft.te.tensor import REDUCE, IterVar
from weft.te.update import Update
from weft.tir import Analyzer, Instruction, Var, int_value
from weft.tir.match_instruction import NoMatchError, match_instruction


def tensorize(self: StageState, axis: IterVar, instruction: Instruction) -> None:
    """Compute loop ``axis`` and all loops inside it with ``instruction``.

    The loops must compute exactly the instruction's body. If the extents do not divide, the main
    loop uses the instruction and the tail stays a loop; a stage attached to a loop of a consumer
    rounds its region up to whole instructions within its tensor.

    >>> a, b = te.placeholder((4,), name="a"), te.placeholder((4,), name="b")
    >>> scale = te.compute((4,), lambda i: a[i] * 2.0, name="scale")
    >>> double = te.instruction("double4", [a], scale, lambda *_: "")
    >>> B = te.compute((100,), lambda i: A[i] * 2.0, name="B")
    >>> s = te.create_schedule(B)
    >>> outer, inner = s[B].split(B.op.axis[0], factor=4)
    >>> print(s)
    B(100): root
      i.outer in 25
      i.inner in 4
    >>> s[B].tensorize(inner, double)
    >>> print(s)
    B(100): root
      i.outer in 25
      i.inner in 4: double4
    """
    op = self.require_compute("tensorize")
    inside = self.leaf_iter_vars[self.leaf_index(axis):]
    _check_loops(self, axis, inside)
    if len(op.body) != 1:
        raise self.error("tensorize of a computation with several outputs")
    if self.tensorized is not None:
        raise self.error(f"tensorize of axis {axis.name} beside {self.tensorized[0].name}")
    extents = loop_extents(self, {a: a.extent for a in self.root_iter_vars})
    analyzer, loops = Analyzer(), list[tuple[Var, int]]()
    for leaf in self.leaf_iter_vars:
        analyzer.bind(leaf.var, 0, extents[leaf])
    for leaf in inside:
        extent = int_value(extents[leaf])
        if extent is None:
            raise self.error(f"tensorize of axis {leaf.name}, whose extent {extents[leaf]} is "
                             "symbolic", help="split it by the extent of the instruction's loop")
        loops.append((leaf.var, extent))
    try:
        match_instruction(loops, Update(self).store(), instruction, analyzer)
    except NoMatchError as reason:
        raise self.error(f"tensorize of axis {axis.name} with {instruction.name}: {reason}",
                         help=f"the instruction is\n{instruction.body()}") from None
    self.tensorized = (axis, instruction)


def _check_loops(stage: StageState, axis: IterVar, inside: list[IterVar]) -> None:
    for leaf in inside:
        stage.require_unused(leaf, "tensorize")
    reductions = [a for a in stage.leaf_iter_vars if a.kind == REDUCE]
    # The initialisation goes just outside of the first reduction loop. Further inside than ``axis``
    # it would be a second statement in loops that become one instruction.
    if reductions and reductions[0] in inside[1:]:
        raise stage.error(
            f"tensorize of axis {axis.name}, which contains the whole reduction and so its "
            "initialisation",
            help=f"split {reductions[0].name} and reorder its outer loop outside {axis.name}",
        )
    for other in stage.schedule.stages:
        at = other.attach
        if isinstance(at, AttachAt) and at.stage is stage and at.axis in inside:
            raise stage.error(f"tensorize of axis {axis.name}, at which {other.name} is computed")
