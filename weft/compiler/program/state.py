"""State of a program: inputs and outputs that share memory, which the module owns.

An output that is the next value of an input (a key and value cache, a running mean) is written to
the memory of the input. Where the kernel that computes it may work in place (``in_place``), it
writes only what changes; otherwise the new value is computed beside the old one and copied.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from weft.compiler.build.kernel_set import KernelSet
from weft.compiler.program.in_place import written_over
from weft.compiler.program.program import BufferKind, BufferRef, Program, Step, bytes_of
from weft.compiler.program.step_writer import copy_function
from weft.ir.types import TensorType, is_static
from weft.support.dataclass import dataclass
from weft.support.errors import OptionError, UnsupportedModelError


@dataclass(frozen=True, slots=True)
class _Pair:
    """The numbers of an input and of the output that is its next value."""

    input: int
    output: int


def bind_state(program: Program, state: Mapping[str, str], refused: frozenset[str] = frozenset()
               ) -> Program:
    """The program with state: ``state`` maps names of outputs to names of inputs.

    States are numbered in the order of ``state``. ``refused`` are the digests of kernels that
    cannot work in place.
    Raises ``OptionError`` for unknown names and for types that differ, ``UnsupportedModelError``
    for a state of symbolic size.
    """
    pairs = _pairs(program, state)
    if not pairs:
        return program
    binder = _Binder(program, pairs, refused)
    for number, pair in enumerate(pairs):
        binder.bind(number, pair)
    return binder.result()


def _pairs(program: Program, state: Mapping[str, str]) -> list[_Pair]:
    inputs = {port.name: number for number, port in enumerate(program.inputs)}
    outputs = {port.name: number for number, port in enumerate(program.outputs)}
    pairs = []
    for output, source in state.items():
        for name, known, what in ((output, outputs, "output"), (source, inputs, "input")):
            if name not in known:
                raise OptionError(f"state names the unknown {what} {name!r}",
                                  expected=f"one of {', '.join(known)}")
        pair = _Pair(inputs[source], outputs[output])
        before, after = program.inputs[pair.input].type, program.outputs[pair.output].type
        if before != after:
            raise OptionError(f"the output {output!r} is not the next value of {source!r}",
                              expected=str(before), got=str(after))
        if not is_static(before):
            raise UnsupportedModelError(f"the state {source!r} has a symbolic size",
                                        got=str(before), expected="fixed sizes")
        if any(pair.input == other.input for other in pairs):
            raise OptionError(f"state names the input {source!r} twice")
        pairs.append(pair)
    return pairs


class _Binder:
    """Rewrites the buffers of states; inputs and outputs are renumbered at the end."""

    def __init__(self, program: Program, pairs: Sequence[_Pair], refused: frozenset[str]) -> None:
        self.program = program
        self.pairs = pairs
        self.refused = refused
        self.steps = list(program.steps)
        self.kernels = KernelSet.of(program.kernels)
        self.temporaries = list(program.temporaries)
        self.copies: list[Step] = []

    def bind(self, number: int, pair: _Pair) -> None:
        """Put the old and the new value of a state in its memory."""
        old = BufferRef(BufferKind.INPUT, pair.input)
        new = BufferRef(BufferKind.OUTPUT, pair.output)
        memory = BufferRef(BufferKind.STATE, number)
        if self._updates(old, new):
            target = memory
        else:
            type_ = self.program.inputs[pair.input].type
            self.temporaries.append(bytes_of(type_))
            target = BufferRef(BufferKind.TEMPORARY, len(self.temporaries) - 1)
            self._copy(type_, target, memory)
        self.steps = [step.moved({old: memory, new: target}) for step in self.steps]
        self.copies = [step.moved({old: memory}) for step in self.copies]

    def _updates(self, old: BufferRef, new: BufferRef) -> bool:
        """Let a step compute the new value over the old one; whether one may."""
        writers = [at for at, step in enumerate(self.steps) if new in step.writes]
        if len(writers) != 1 or self.program.jumps:
            return False
        at = writers[0]
        step = self.steps[at]
        is_last = not any(old in later.touched for later in self.steps[at + 1:])
        if step.path or not is_last:
            return False
        updating = written_over(step, old, self.kernels, self.refused)
        if updating is None:
            return False
        self.steps[at] = updating
        return True

    def _copy(self, type_: TensorType, source: BufferRef, target: BufferRef) -> None:
        kernel = self.kernels.number_of(copy_function(type_))
        self.copies.append(Step(kernel, (source, target), 1))

    def result(self) -> Program:
        """The program with its remaining inputs and outputs."""
        program = self.program
        old = [pair.input for pair in self.pairs]
        new = [pair.output for pair in self.pairs]
        inputs = [n for n in range(len(program.inputs)) if n not in old]
        outputs = [n for n in range(len(program.outputs)) if n not in new]
        refs = {BufferRef(kind, before): BufferRef(kind, after)
                for kind, kept in ((BufferKind.INPUT, inputs), (BufferKind.OUTPUT, outputs))
                for after, before in enumerate(kept) if before != after}
        steps = [step.moved(refs) for step in (*self.steps, *self.copies)]
        return dataclasses.replace(
            program, inputs=tuple(program.inputs[n] for n in inputs),
            outputs=tuple(program.outputs[n] for n in outputs),
            states=tuple(program.inputs[n] for n in old), steps=tuple(steps),
            kernels=tuple(self.kernels.sources), temporaries=tuple(self.temporaries),
            output_is_tuple=program.output_is_tuple and len(outputs) != 1)
