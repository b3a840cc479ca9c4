"""Fused pairs of operations over dtypes, lane counts, masks and CPUs: code generation alone.

LLVM ends the process where it meets a type that a back end cannot take, so the cases run in a
process of their own: ``python -m tests.unit.codegen.fused_pairs COUNT SEED [CPU ...]`` compiles
``COUNT`` random cases (``all``: each one), and writes each before it compiles it to the standard
error output.
"""

from __future__ import annotations

import itertools
import random
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from tests.unit.codegen.programs import index_var, loop
from weft.codegen.llvm.build import build_object
from weft.ir.dtype import DType
from weft.support.errors import CodegenError, LoweringError
from weft.target import Target
from weft.tir import expr as x
from weft.tir.buffer import buffer
from weft.tir.expr import LT, Broadcast, BufferLoad, PrimExpr, Ramp, const
from weft.tir.func import PrimFunc
from weft.tir.intrinsics import intrinsic
from weft.tir.stmt import BufferStore, SeqStmt

_ARM, _RISCV = "-mtriple=aarch64-unknown-linux-gnu", "-mtriple=riscv64-unknown-linux-gnu"
CPUS = (
    "-mcpu=x86-64", "-mcpu=x86-64-v2", "-mcpu=x86-64-v3", "-mcpu=x86-64-v4",
    "-mcpu=x86-64-v4 -mattr=+avx512bf16", "-mcpu=x86-64-v4 -mattr=+avx512fp16", "-mcpu=znver4",
    "-mcpu=skylake -mattr=+avx512bf16", "-mcpu=sapphirerapids",
    f"{_ARM} -mcpu=generic", f"{_ARM} -mcpu=neoverse-n1", f"{_ARM} -mcpu=neoverse-v2",
    f"{_ARM} -mcpu=cortex-a72", f"{_RISCV} -mcpu=generic",
)  # fmt: skip
DTYPES = (
    "bool", "int2", "uint2", "int4", "uint4", "int8", "uint8", "int16", "uint16", "int32",
    "uint32", "int64", "uint64", "float16", "bfloat16", "float32", "float64", "float8_e4m3fn",
    "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu", "float4_e2m1fn",
)  # fmt: skip
LANES = (1, 2, 3, 4, 7, 8, 12, 16, 31, 32, 64, 128)
# Lanes in use: all, or so few that LLVM knows whole registers of the vector to be zero.
ACTIVE: dict[str, Callable[[int], int]] = {
    "all": lambda lanes: lanes, "most": lambda lanes: max(1, lanes - 1),
    "half": lambda lanes: max(1, lanes // 2), "three": lambda lanes: min(lanes, 3),
    "one": lambda _: 1}  # fmt: skip

Operation = Callable[[PrimExpr, PrimExpr], PrimExpr]


def _spread(value: float, like: PrimExpr) -> PrimExpr:
    literal = const(value, like.dtype.element)
    return literal if like.dtype.lanes == 1 else Broadcast(literal, like.dtype.lanes)


OPERATIONS: dict[str, Operation] = {
    **{name: lambda a, _, name=name: intrinsic(name, a)
       for name in ("abs", "isnan", "sqrt", "floor", "round", "trunc", "popcount", "bitwise_not")},
    "add": x.Add, "multiply": x.Mul,
    "maximum": x.Max,
    "less": x.LT, "equal": x.EQ,
    "not equal to one": lambda a, _: x.NE(a, _spread(1, a)),
    "at most one": lambda a, _: x.LE(a, _spread(1, a)),
    "larger": lambda a, b: x.select(x.GT(a, b), a, b),
    "one or itself": lambda a, b: x.select(x.GE(a, b), a, _spread(1, a)),
    **{f"as {name}": lambda a, _, name=name: x.cast(a, DType.of(name).vector(a.dtype.lanes))
       for name in DTYPES},
}  # fmt: skip


class Case(NamedTuple):
    """``first``, and each of ``seconds`` on its result and on the operand itself.

    So the operand is used more than once, which keeps LLVM from simplifying what aborts.
    """

    cpu: str
    dtype: str
    lanes: int
    active: str
    first: str
    seconds: tuple[str, ...]


# Cases at which LLVM aborted once.
KNOWN = (
    Case("-mcpu=znver4", "bfloat16", 64, "three", "abs", ("not equal to one",)),
    Case(f"{_ARM} -mcpu=generic", "float16", 3, "all", "as uint64", ("as int8",)),
)


def every_case(cpus: Sequence[str]) -> Iterator[Case]:
    """All pairs, those with one first operation in one function."""
    for values in itertools.product(cpus, DTYPES, LANES, ACTIVE, OPERATIONS):
        yield Case(*values, tuple(OPERATIONS))


def random_cases(count: int, seed: int, cpus: Sequence[str]) -> Iterator[Case]:
    """Cases with four second operations each; every CPU and dtype in turn."""
    rng = random.Random(seed)
    for number in range(count):
        yield Case(cpus[number % len(cpus)], rng.choice(DTYPES), rng.choice(LANES),
                   rng.choice(tuple(ACTIVE)), rng.choice(tuple(OPERATIONS)),
                   tuple(rng.sample(tuple(OPERATIONS), 4)))


def function_of(case: Case) -> PrimFunc | None:
    """The function of a case; ``None`` where no operation is defined on its operands."""
    lanes, active = case.lanes, ACTIVE[case.active](case.lanes)
    i = index_var()
    where = (Ramp(i * lanes, const(1), lanes) if lanes > 1 else x.as_prim(i),)
    mask = None if active == lanes else LT(Ramp(const(0), const(1), lanes),
                                           Broadcast(const(active), lanes))
    inputs = [buffer(name, [2 * lanes], case.dtype) for name in "ab"]
    a, b = (BufferLoad(one, where, mask) for one in inputs)
    first = _applied(OPERATIONS[case.first], a, b)
    results = [] if first is None else [_applied(OPERATIONS[name], value, x.cast(b, value.dtype))
                                        for name in case.seconds for value in (first, a)]
    outputs, stores = [], []
    for number, value in enumerate(one for one in results if one is not None):
        output = buffer(f"out{number}", [2 * lanes], value.dtype.element)
        outputs.append(output)
        stores.append(BufferStore(output, value, where, mask))
    if not stores:
        return None
    return PrimFunc("f", (*inputs, *outputs), loop(i, 2, SeqStmt(tuple(stores))))


def _applied(operation: Operation, a: PrimExpr, b: PrimExpr) -> PrimExpr | None:
    try:
        return operation(a, b)
    except LoweringError:
        return None


def main(arguments: Sequence[str]) -> None:
    """Compile the cases; prints how many were compiled and how many are not defined."""
    count, seed, *cpus = arguments
    chosen = [cpu for cpu in CPUS if not cpus or cpu in cpus]
    cases = every_case(chosen) if count == "all" else random_cases(int(count), int(seed), chosen)
    compiled = undefined = 0
    for case in itertools.chain(KNOWN, cases):
        function = function_of(case)
        if function is None:
            undefined += 1
            continue
        print(case, file=sys.stderr, flush=True)
        try:
            build_object(function, Target.of(f"llvm {case.cpu}"))
            compiled += 1
        except CodegenError:
            undefined += 1
    print(compiled, undefined)


if __name__ == "__main__":
    main(sys.argv[1:])
