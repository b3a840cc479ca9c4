"""The program of least estimated time whose planned arena is within a budget of bytes."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from weft.compiler.program.memory_plan import plan_memory
from weft.compiler.program.program import BufferKind, Program
from weft.compiler.program.rematerialize import (
    OverLimitError,
    Preference,
    Rematerialized,
    StepCosts,
    rematerialize,
)
from weft.compiler.program.step_order import live_peak
from weft.support.dataclass import dataclass
from weft.support.errors import OptionError, UnsupportedModelError

# The simulation does not know how results are placed in memory, so it is run with lower limits
# until the plan fits too.
TRIES = 8
# Which heuristic is best differs between programs.
PREFERENCES = tuple(Preference(distance, sources) for sources in (True, False)
                    for distance in (1.0, 0.5, 0.0))


@dataclass(frozen=True, slots=True)
class KernelCosts:
    """Estimated seconds, bytes of workspace, and whether the kernel may run again."""

    seconds: float
    workspace: int
    may_repeat: bool


def within_budget(
    program: Program, budget: int, costs_of: Callable[[Program], Mapping[int, KernelCosts]]
) -> Program:
    """``program``, or one that repeats steps, with an arena of at most ``budget`` bytes.

    ``costs_of`` gives the costs of the kernels by number; it is called only if needed. Raises
    ``UnsupportedModelError`` for branches, loops and symbolic sizes, and ``OptionError`` with the
    smallest arena that was found if none is within the budget.
    """
    if program.is_symbolic or program.jumps or any(step.path for step in program.steps):
        raise UnsupportedModelError("a memory budget is for programs without branches and loops, "
                                    "of fixed sizes", help="compile without a budget, or give the "
                                                           "sizes of the inputs")
    kernels = costs_of(program)
    if _arena(program, kernels) <= budget:
        return program
    costs = _step_costs(program, kernels)
    fitting = _fitting(program, costs, kernels, budget)
    if fitting:
        return min(fitting, key=lambda one: one.extra_seconds).program
    made, smallest = _smallest(program, costs, kernels)
    if smallest > budget:
        raise OptionError("the memory budget cannot be met", got=f"{budget} bytes",
                          expected=f"{smallest} bytes ({smallest / 1e6:.2f} MB) or more",
                          help="the results of single steps must be in memory together; a smaller "
                               "batch reduces them")
    return made


def _fitting(program: Program, costs: StepCosts, kernels: Mapping[int, KernelCosts], budget: int
             ) -> list[Rematerialized]:
    """For each preference the first program found within the budget."""
    fitting = []
    for preference in PREFERENCES:
        limit = budget
        for _ in range(TRIES):
            tried = _attempt(program, costs, kernels, limit, preference)
            if tried is None:
                break  # lower limits fail too
            made, arena = tried
            if arena <= budget:
                fitting.append(made)
                break
            limit -= max(arena - budget, budget // 100, 1)
    return fitting


def _attempt(program: Program, costs: StepCosts, kernels: Mapping[int, KernelCosts], limit: int,
             preference: Preference) -> tuple[Rematerialized, int] | None:
    try:
        made = rematerialize(program, costs, limit, preference)
    except OverLimitError:
        return None
    return made, _arena(made.program, kernels)


def _smallest(program: Program, costs: StepCosts, kernels: Mapping[int, KernelCosts]
              ) -> tuple[Program, int]:
    """The program with the smallest arena found by bisection of the limit, and that arena."""
    best = program, _arena(program, kernels)
    low, high = 0, live_peak(program) + max(costs.workspace, default=0)
    while high - low > max(best[1] // 64, 64):
        middle = (low + high) // 2
        tried = filter(None, (_attempt(program, costs, kernels, middle, p) for p in PREFERENCES))
        found = [(made.program, arena) for made, arena in tried]
        best = min([best, *found], key=lambda one: one[1])
        low, high = (low, middle) if found else (middle, high)
    return best


def _arena(program: Program, kernels: Mapping[int, KernelCosts]) -> int:
    workspace = {number: kernel.workspace for number, kernel in kernels.items()}
    return sum(plan_memory(program, workspace).arena_bytes)


def _step_costs(program: Program, kernels: Mapping[int, KernelCosts]) -> StepCosts:
    known = [kernels[step.kernel] for step in program.steps]
    stateless = [not any(r.kind is BufferKind.STATE for r in step.buffers)
                 for step in program.steps]
    return StepCosts(tuple(k.seconds for k in known), tuple(k.workspace for k in known),
                     tuple(k.may_repeat and s for k, s in zip(known, stateless, strict=True)))
