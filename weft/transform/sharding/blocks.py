"""What a device does: compute, start a collective and wait for it, with branches and loops."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field
from typing import TypeAlias

from weft.ir import Call, Expr, Function, GlobalVar, If, IRModule, Op, Var
from weft.support.dataclass import dataclass

Unit: TypeAlias = "Call | If"


@dataclass(frozen=True, slots=True, eq=False)
class Compute:
    """Calls without communication: ``function`` of the tensors ``inputs`` gives ``outputs``.

    ``functions`` are the loops that it calls.
    """

    calls: tuple[Unit, ...]
    inputs: tuple[Expr, ...]
    outputs: tuple[Expr, ...]
    function: Function
    functions: Mapping[str, Function] = field(default_factory=dict)

    @property
    def module(self) -> IRModule:
        """The program of the step."""
        return IRModule({"main": self.function, **self.functions})

    def __str__(self) -> str:
        return f"compute {', '.join(map(_name, self.calls))}"


@dataclass(frozen=True, slots=True, eq=False)
class Start:
    """A collective begins; its operand is there."""

    call: Call

    def __str__(self) -> str:
        return f"start {_name(self.call)}"


@dataclass(frozen=True, slots=True, eq=False)
class Wait:
    """The program needs the result of a collective."""

    call: Call

    def __str__(self) -> str:
        return f"wait {_name(self.call)}"


@dataclass(frozen=True, slots=True, eq=False)
class Branch:
    """A condition whose branches have collectives."""

    call: If
    yes: Block
    no: Block

    def __str__(self) -> str:
        yes, no = ("; ".join(map(str, b.steps)) for b in (self.yes, self.no))
        return f"if ({yes}) else ({no})"


@dataclass(frozen=True, slots=True, eq=False)
class Repeat:
    """A loop, or another function, that has collectives."""

    call: Call
    body: Block

    @property
    def name(self) -> str:
        """The name of the function."""
        return _name(self.call).removeprefix("@")

    def __str__(self) -> str:
        return f"{_name(self.call)} ({'; '.join(map(str, self.body.inner_steps()))})"


Step: TypeAlias = "Compute | Start | Wait | Branch | Repeat"


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """Steps on the tensors ``inputs`` of the program around them, which are its ``params``.

    ``ends`` are the tensors that come out: results, or with ``repeats`` the next state of the loop.
    With ``chosen``, a condition and two blocks, these go on.
    """

    inputs: tuple[Expr, ...]
    params: tuple[Var, ...]
    steps: tuple[Step, ...]
    ends: tuple[Expr, ...] = ()
    repeats: bool = False
    chosen: tuple[Expr, Block, Block] | None = None

    def inner_steps(self) -> Iterator[Step]:
        """The steps of the block and of those that go on."""
        yield from self.steps
        for block in self.chosen[1:] if self.chosen is not None else ():
            yield from block.inner_steps()

    def all_steps(self) -> Iterator[Step]:
        """Also the steps within branches and loops."""
        for step in self.inner_steps():
            yield step
            for block in inner_blocks(step):
                yield from block.all_steps()


def inner_blocks(step: Step) -> tuple[Block, ...]:
    """The blocks of a branch or a loop."""
    if isinstance(step, Branch):
        return step.yes, step.no
    return (step.body,) if isinstance(step, Repeat) else ()


def _name(call: Unit) -> str:
    if not isinstance(call, Call):
        return "if"
    return f"@{call.op.name}" if isinstance(call.op, GlobalVar) else \
        call.op.name if isinstance(call.op, Op) else str(call.op)


def calls_behind(block: Block) -> dict[Call, int]:
    """How many calls a device computes while each collective is under way."""
    behind: dict[Call, int] = {}
    under_way: set[Call] = set()
    for step in block.steps:
        if isinstance(step, Compute):
            for call in under_way:
                behind[call] += len(step.calls)
        elif isinstance(step, Start):
            behind[step.call] = 0
            under_way.add(step.call)
        elif isinstance(step, Wait):
            under_way.discard(step.call)
        for inner in inner_blocks(step):
            behind |= calls_behind(inner)
    for inner in block.chosen[1:] if block.chosen is not None else ():
        behind |= calls_behind(inner)
    return behind
