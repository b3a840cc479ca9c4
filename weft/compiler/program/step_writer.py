"""Writes the steps of a program: kernel calls under guards and in loops, and what moves values.

The variables of a loop have their own buffers, to which each iteration moves the next values;
a kernel that makes one writes it there at once where nothing needs the old value any more.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from weft.compiler.build.kernel_set import KernelSet
from weft.compiler.program.program import (
    BufferKind,
    BufferRef,
    Guard,
    Jump,
    Loop,
    Path,
    Step,
    bytes_of,
    moved_path,
)
from weft.ir.dtype import DType
from weft.ir.expr import Function, Var
from weft.ir.op import get_op
from weft.ir.types import TensorType
from weft.ir.typing.infer import infer_expr

_BOOL = TensorType((), DType.of("bool"))


@dataclass(frozen=True, slots=True)
class Mark:
    """A point among the steps, and among the temporaries."""

    step: int
    temporary: int


@dataclass(frozen=True, slots=True)
class LoopFrame:
    """A loop that is open, with the buffers and types of its variables."""

    loop: Loop
    variables: tuple[tuple[BufferRef, TensorType], ...]
    first_temporary: int  # of those made inside


class StepWriter:
    """Collects the steps, jumps, temporaries and kernels of one program."""

    def __init__(self) -> None:
        self.kernels = KernelSet()
        self.temporaries: list[int] = []
        self.steps: list[Step] = []
        self.jumps: list[Jump] = []
        self._path: Path = ()
        self._loops = 0
        self._variables: set[BufferRef] = set()  # of the loops that are open

    @property
    def depth(self) -> int:
        """How many branches and loops stand around what comes next."""
        return len(self._path)

    def mark(self) -> Mark:
        """The point that is reached."""
        return Mark(len(self.steps), len(self.temporaries))

    def temporary(self, type_: TensorType) -> BufferRef:
        """Memory for one tensor of fixed shape."""
        self.temporaries.append(bytes_of(type_))
        return BufferRef(BufferKind.TEMPORARY, len(self.temporaries) - 1)

    def step(self, function: Function, reads: Sequence[BufferRef], writes: Sequence[BufferRef]
             ) -> None:
        """Call the kernel of a primitive function."""
        kernel = self.kernels.number_of(function)
        self.steps.append(Step(kernel, (*reads, *writes), len(writes), self._path))

    def copy(self, type_: TensorType, source: BufferRef, target: BufferRef) -> None:
        """Copy one tensor."""
        self.step(copy_function(type_), (source,), (target,))

    def redirect(self, made: Sequence[BufferRef], wanted: Sequence[BufferRef],
                 types: Sequence[TensorType], start: Mark) -> None:
        """Have the values ``made`` since ``start`` in the buffers ``wanted``.

        Steps that write to temporaries from then write there instead; the rest is copied.
        """
        moved: dict[BufferRef, BufferRef] = {}
        copies = []
        for ref, target, type_ in zip(made, wanted, types, strict=True):
            own = ref.kind is BufferKind.TEMPORARY and ref.index >= start.temporary
            if own and ref not in moved:
                moved[ref] = target
            else:
                copies.append((moved.get(ref, ref), target, type_))
        self._move(moved, start.step)
        for source, target, type_ in copies:
            self.copy(type_, source, target)

    @contextmanager
    def branch(self, condition: BufferRef, *, expected: bool) -> Iterator[None]:
        """What is written inside happens only where ``condition`` is ``expected``."""
        outer = self._path
        self._path = (*outer, Guard(condition, expected))
        yield
        self._path = outer

    def lasting(self, condition: BufferRef) -> BufferRef:
        """``condition`` where no jump overwrites it before its branch has ended."""
        if condition not in self._variables:
            return condition
        copied = self.temporary(_BOOL)
        self.copy(_BOOL, condition, copied)
        return copied

    @contextmanager
    def loop(self, first: Sequence[tuple[BufferRef, TensorType]]) -> Iterator[LoopFrame]:
        """A loop whose variables start with the values at ``first``, of the types beside them."""
        variables = tuple((self.temporary(type_), type_) for _, type_ in first)
        for (source, type_), (target, _) in zip(first, variables, strict=True):
            self.copy(type_, source, target)
        frame = LoopFrame(Loop(self._loops, len(self.steps)), variables,
                          len(self.temporaries))
        self._loops += 1
        outer, refs = self._path, {ref for ref, _ in variables}
        self._path = (*outer, frame.loop)
        self._variables |= refs
        yield frame
        self._path = outer
        self._variables -= refs

    def jump(self, frame: LoopFrame, values: Sequence[BufferRef]) -> None:
        """Go back to the start of ``frame`` with ``values`` for its variables."""
        pairs = zip(values, frame.variables, strict=True)
        moves = {target: source for source, (target, _) in pairs if source != target}
        for target in list(moves):
            if self._write_at_once(frame, moves, target):
                del moves[target]
        self._move_all(moves, dict(frame.variables))
        self.jumps.append(Jump(len(self.steps), frame.loop, self._path))

    def _write_at_once(self, frame: LoopFrame, moves: dict[BufferRef, BufferRef],
                       target: BufferRef) -> bool:
        """Let the step that makes the next value of a variable write it to ``target``."""
        source = moves[target]
        sources = list(moves.values())
        is_own = source.kind is BufferKind.TEMPORARY and source.index >= frame.first_temporary
        if not is_own or sources.count(source) > 1 or target in sources:
            return False
        inside = range(frame.loop.first, len(self.steps))
        writers = [at for at in inside if source in self.steps[at].writes]
        if len(writers) != 1 or self.steps[writers[0]].path != self._path:
            return False
        if any(target in step.touched for step in self.steps[writers[0]:]):
            return False  # kernels must not write what they read, nor what is read after them
        self._move({source: target}, writers[0])
        return True

    def _move(self, refs: dict[BufferRef, BufferRef], first: int) -> None:
        if refs:
            self.steps[first:] = [step.moved(refs) for step in self.steps[first:]]
            self.jumps = [jump if jump.at < first else
                          Jump(jump.at, jump.loop, moved_path(jump.path, refs))
                          for jump in self.jumps]

    def _move_all(self, moves: dict[BufferRef, BufferRef],
                  types: dict[BufferRef, TensorType]) -> None:
        """Copy as if all at once: no target is written while it is still to be read."""
        pending = dict(moves)
        while pending:
            read = set(pending.values())
            free = [target for target in pending if target not in read]
            for target in free:
                self.copy(types[target], pending.pop(target), target)
            if not free:  # all that is left goes in circles; this opens one
                target = next(iter(pending))
                spare = self.temporary(types[target])
                self.copy(types[target], target, spare)
                pending = {t: spare if s == target else s for t, s in pending.items()}


def copy_function(type_: TensorType) -> Function:
    """The kernel that copies one tensor."""
    source = Var("x", type_, checked_type=type_)
    body = infer_expr(get_op("copy")(source))
    return Function((source,), body, type_, attrs={"primitive": True})
