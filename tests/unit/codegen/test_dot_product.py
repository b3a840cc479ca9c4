"""Dot product instructions: machine code beside the meaning that the evaluator runs."""

from __future__ import annotations

import numpy as np
import pytest

from tests.unit.codegen.conftest import Compiler
from weft import te
from weft.codegen.llvm.build import emit_assembly
from weft.codegen.llvm.vector.dot_product import DOT_PRODUCTS
from weft.support.errors import CodegenError
from weft.target import Target
from weft.tir.eval import evaluate
from weft.tir.func import PrimFunc
from weft.tir.instruction import INSTRUCTIONS, Instruction
from weft.tir.transform.pipeline import lower_prim_func

ROWS, GROUPS = 3, 5
ARM = "llvm -mtriple=aarch64-unknown-linux-gnu -mcpu=generic -mattr=+dotprod,+i8mm,+bf16"
INSTRUCTION = pytest.mark.parametrize("instruction", DOT_PRODUCTS, ids=lambda i: i.name)


def product(instruction: Instruction) -> PrimFunc:
    """A small product in registers: rows by two vectors."""
    a, b = instruction.operands
    lanes, group = b.static_shape or (1, 1)
    kind = instruction.result.dtype
    x = te.placeholder((ROWS, GROUPS * group), a.dtype, "x")
    y = te.placeholder((GROUPS, 2, lanes, group), b.dtype, "y")
    g, k = te.reduce_axis(GROUPS, "g"), te.reduce_axis(group, "k")
    z = te.compute(
        (ROWS, 2 * lanes),
        lambda m, n: te.sum(x[m, g * group + k].astype(kind)
                            * y[g, n // lanes, n % lanes, k].astype(kind), axis=[g, k]),
        name="z")
    sch = te.create_schedule(z)
    acc = sch.cache_write(z, "local")
    row, column = sch[z].axis
    outer, lane = sch[z].split(column, lanes)
    sch[z].unroll(outer)
    sch[z].vectorize(lane)
    sch[acc].compute_at(sch[z], row)
    m, n = sch[acc].axis
    outer, lane = sch[acc].split(n, lanes)
    sch[acc].reorder(g, m, outer, lane, k)
    sch[acc].unroll(outer)
    sch[acc].tensorize(lane, instruction)
    return lower_prim_func(te.lower(sch, [x, y, z]), verify=True)


def operands(instruction: Instruction) -> list[np.ndarray]:
    rng = np.random.default_rng(1)
    arrays = []
    sizes = ((ROWS, GROUPS), (GROUPS, 2, *instruction.result.static_shape))
    for buffer, size in zip(instruction.operands, sizes, strict=True):
        group = buffer.static_shape[-1]
        shape = (size[0], size[1] * group) if len(size) == 2 else (*size, group)
        kind = buffer.dtype.numpy
        if buffer.dtype.is_int:
            ends = np.iinfo(kind)
            arrays.append(rng.integers(ends.min, ends.max, shape, kind, endpoint=True))
        else:
            arrays.append(rng.standard_normal(shape).astype(kind))
    return arrays


@INSTRUCTION
def test_machine_code_does_what_the_body_says(
    compiler: Compiler, instruction: Instruction
) -> None:
    target = compiler.target
    if not instruction.runs_on(target.arch, target.features):
        pytest.skip("this machine does not have it")
    func = product(instruction)
    kind = instruction.result.dtype
    shape = (ROWS, 2 * instruction.result.static_shape[0])
    found, expected = np.zeros(shape, kind.numpy), np.zeros(shape, kind.numpy)
    compiler.compile(func)(*operands(instruction), found)
    evaluate(func, *operands(instruction), expected)
    if kind.is_int:
        np.testing.assert_array_equal(found, expected)
    else:
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


@INSTRUCTION
def test_every_instruction_is_in_the_assembly_of_a_cpu_that_has_it(
    instruction: Instruction,
) -> None:
    mnemonic = instruction.name.partition("_")[0]
    # Where there is one instruction for it, LLVM makes one of vpmaddwd and the sum.
    cpu = "skylake-avx512" if mnemonic == "vpmaddwd" else "znver5"
    text = ARM if "aarch64" in instruction.archs else f"llvm -mcpu={cpu}"
    lines = emit_assembly(product(instruction), Target.of(text)).splitlines()
    assert sum(mnemonic in line.split() or line.strip().startswith(f"{{vex}}\t{mnemonic}")
               for line in lines) >= 2


def test_a_cpu_without_the_instruction_is_refused() -> None:
    func = product(INSTRUCTIONS.get("vpdpbusd_512"))
    with pytest.raises(CodegenError, match="does not support the instruction vpdpbusd_512"):
        emit_assembly(func, Target.of("llvm -mcpu=haswell"))
