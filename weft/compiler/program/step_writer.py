"""Writes the steps of a program: guarded kernel calls, loops, and copies between buffers.

Each loop-carried value has its own buffer. A jump back to the start of the loop copies the next
values there. If the old value is dead by then, the kernel that computes the next value writes it
there directly; if only that kernel still reads the old value and may work in place (``in_place``),
it updates the buffer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from weft.compiler.build.kernel_set import KernelSet
from weft.compiler.program.in_place import written_over
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
from weft.ir import Dim, DType, Function, TensorType, Var, get_op, infer_expr
from weft.support.dataclass import dataclass

_BOOL = TensorType((), DType.of("bool"))


@dataclass(frozen=True, slots=True)
class Mark:
    """A position in the sequences of steps and temporaries."""

    step: int
    temporary: int


@dataclass(frozen=True, slots=True)
class LoopFrame:
    """A loop under construction, with the buffers and types of its loop-carried values."""

    loop: Loop
    variables: tuple[tuple[BufferRef, TensorType], ...]
    first_temporary: int  # of the temporaries created inside


class StepWriter:
    """Collects the steps, jumps, temporaries and kernels of one program.

    ``refused`` are the digests of kernels that cannot work in place.
    """

    def __init__(self, refused: frozenset[str] = frozenset()) -> None:
        self.kernels = KernelSet()
        self._refused = refused
        self.temporaries: list[Dim] = []
        self.steps: list[Step] = []
        self.jumps: list[Jump] = []
        self._path: Path = ()
        self._loops = 0
        self._variables: set[BufferRef] = set()  # buffers of loop-carried values of enclosing loops

    @property
    def depth(self) -> int:
        """The number of enclosing branches and loops."""
        return len(self._path)

    def mark(self) -> Mark:
        """The current position."""
        return Mark(len(self.steps), len(self.temporaries))

    def temporary(self, type_: TensorType) -> BufferRef:
        """A new temporary buffer for a tensor."""
        self.temporaries.append(bytes_of(type_))
        return BufferRef(BufferKind.TEMPORARY, len(self.temporaries) - 1)

    def step(self, function: Function, reads: Sequence[BufferRef], writes: Sequence[BufferRef],
             after: tuple[BufferRef, ...] = ()) -> None:
        """Append a call of the kernel of a primitive function, ``after`` writers of buffers."""
        kernel = self.kernels.number_of(function)
        self.steps.append(Step(kernel, (*reads, *writes), len(writes), self._path, after=after))

    def copy(self, type_: TensorType, source: BufferRef, target: BufferRef) -> None:
        """Append a copy of one tensor."""
        self.step(copy_function(type_), (source,), (target,))

    def redirect(self, made: Sequence[BufferRef], wanted: Sequence[BufferRef],
                 types: Sequence[TensorType], start: Mark) -> None:
        """Store the values ``made`` since ``start`` in the buffers ``wanted``.

        Steps since ``start`` that write them to temporaries write to ``wanted`` instead. Other
        values are copied.
        """
        moved: dict[BufferRef, BufferRef] = {}
        copies = []
        for ref, target, type_ in zip(made, wanted, types, strict=True):
            own = ref.kind is BufferKind.TEMPORARY and ref.index >= start.temporary
            # A value made earlier may have other readers, and one that is returned twice can be
            # written to one target only.
            if own and ref not in moved:
                moved[ref] = target
            else:
                copies.append((moved.get(ref, ref), target, type_))
        self._move(moved, start.step)
        for source, target, type_ in copies:
            self.copy(type_, source, target)

    @contextmanager
    def branch(self, condition: BufferRef, *, expected: bool) -> Iterator[None]:
        """Guard the steps written inside the block by ``condition == expected``."""
        outer = self._path
        self._path = (*outer, Guard(condition, expected))
        yield
        self._path = outer

    def lasting(self, condition: BufferRef) -> BufferRef:
        """``condition``, or a copy if a jump may overwrite it before its branch has ended."""
        if condition not in self._variables:
            return condition
        copied = self.temporary(_BOOL)
        self.copy(_BOOL, condition, copied)
        return copied

    @contextmanager
    def loop(self, first: Sequence[tuple[BufferRef, TensorType]]) -> Iterator[LoopFrame]:
        """Start a loop whose loop-carried values are initialised from ``first`` (buffer, type)."""
        # Copies, because jumps overwrite the variables, and the first values may be used elsewhere.
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
        """Jump to the start of ``frame`` with ``values`` as its loop-carried values."""
        pairs = zip(values, frame.variables, strict=True)
        moves = {target: source for source, (target, _) in pairs if source != target}
        for target in list(moves):
            if self._write_at_once(frame, moves, target):
                del moves[target]
        self._move_all(moves, dict(frame.variables))
        self.jumps.append(Jump(len(self.steps), frame.loop, self._path))

    def _write_at_once(self, frame: LoopFrame, moves: dict[BufferRef, BufferRef],
                       target: BufferRef) -> bool:
        """Let the step that computes the next value write to ``target``; whether that is legal."""
        source = moves[target]
        sources = list(moves.values())
        # A value from outside of the loop is needed unchanged in later iterations. One that becomes
        # two variables needs a copy, and so does a target whose old value becomes another variable.
        is_own = source.kind is BufferKind.TEMPORARY and source.index >= frame.first_temporary
        if not is_own or sources.count(source) > 1 or target in sources:
            return False
        inside = range(frame.loop.first, len(self.steps))
        writers = [at for at in inside if source in self.steps[at].writes]
        # On another path, the step may not run although the jump does, or the other way round.
        if len(writers) != 1 or self.steps[writers[0]].path != self._path:
            return False
        first = writers[0]
        if any(target in step.touched for step in self.steps[first + 1:]):
            return False  # the old value is still read
        if target in self.steps[first].touched:
            updating = written_over(self.steps[first], target, self.kernels, self._refused)
            if updating is None:
                return False
            self.steps[first] = updating
        self._move({source: target}, first)
        return True

    def _move(self, refs: dict[BufferRef, BufferRef], first: int) -> None:
        if refs:
            self.steps[first:] = [step.moved(refs) for step in self.steps[first:]]
            self.jumps = [jump if jump.at < first else
                          Jump(jump.at, jump.loop, moved_path(jump.path, refs))
                          for jump in self.jumps]

    def _move_all(self, moves: dict[BufferRef, BufferRef],
                  types: dict[BufferRef, TensorType]) -> None:
        """Parallel copy: no target is overwritten before it has been read as a source."""
        pending = dict(moves)
        while pending:
            read = set(pending.values())
            free = [target for target in pending if target not in read]
            for target in free:
                self.copy(types[target], pending.pop(target), target)
            if not free:  # only cycles are left; break one with a temporary
                target = next(iter(pending))
                spare = self.temporary(types[target])
                self.copy(types[target], target, spare)
                pending = {t: spare if s == target else s for t, s in pending.items()}


def copy_function(type_: TensorType) -> Function:
    """The primitive function that copies one tensor."""
    source = Var("x", type_, checked_type=type_)
    body = infer_expr(get_op("copy")(source))
    return Function((source,), body, type_, attrs={"primitive": True})
