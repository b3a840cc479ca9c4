"""``python -m tests.unit.cuda.op.cuda_assembly``: first case of each operator through ``ptxas``.

Every kernel of the PTX for sm_80 is assembled for sm_80 and sm_100, and that for sm_90a for sm_90a.
It prints how many kernels there are, which spill registers, and what ``ptxas`` rejects; the exit
code is 1 if it rejects anything. ``WEFT_TEST_SHARE`` takes a seeded share of the operators.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from concurrent.futures import ProcessPoolExecutor

import weft
from tests.sampling import sampled
from tests.unit.cuda.op.cuda_cases import case_ids
from tests.unit.op.harness import make_call, make_inputs, parameters_of
from weft.codegen.cuda.ptxas import assemble
from weft.ir.expr import Function
from weft.ir.module import IRModule
from weft.ir.op import OPS
from weft.support.errors import WeftError

ASSEMBLED_FOR = {"sm_80": ("sm_80", "sm_100"), "sm_90a": ("sm_90a",)}
# Architecture, entry, and bytes of spilled registers.
Kernel = tuple[str, str, int]


def kernels_of(name: str, number: int) -> list[Kernel]:
    """The kernels of a case, assembled."""
    op = OPS.get(name)
    call = make_call(op, op.cases[number], make_inputs(op, op.cases[number]))
    module = IRModule.from_expr(Function(parameters_of(call), call))
    found: list[Kernel] = []
    for arch, others in ASSEMBLED_FOR.items():
        text = weft.compile(module, target=f"cuda -arch={arch}").as_text("ptx")
        # The heading of the next kernel, a comment, ends the text of the one before.
        for ptx in re.split(r"^(?=\.version)", text, flags=re.MULTILINE)[1:]:
            for other in others:
                resources = assemble(ptx, other).resources
                found += [(other, entry, r.spill_stores) for entry, r in resources.items()]
    return found


def outcome(case: tuple[str, int]) -> tuple[list[Kernel], str | None]:
    """The kernels of a case, or why there are none."""
    try:
        return kernels_of(*case), None
    except WeftError as error:
        return [], f"{case[0]}-{case[1]}: {error}"


def main() -> int:
    with ProcessPoolExecutor() as pool:
        cases = sampled("assembly", case_ids(first=True), share=1)
        outcomes = list(pool.map(outcome, cases, chunksize=4))
    kernels = [kernel for found, _ in outcomes for kernel in found]
    errors = [error for _, error in outcomes if error is not None]
    print(*(f"{arch}: {n} kernels" for arch, n in Counter(k[0] for k in kernels).items()), sep=", ")
    for arch, entry, spilled in kernels:
        if spilled:
            print(f"{entry} spills {spilled} bytes on {arch}")
    print(*errors, f"{len(errors)} cases are rejected", sep="\n")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
