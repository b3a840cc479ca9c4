"""PTX is rewritten where ptxas takes a carry for a borrow; ``tests/gpu`` runs such a kernel."""

from __future__ import annotations

import numpy as np
import pytest

from tests.unit.cuda.codegen.emulated import run_emulated
from weft import te, tir
from weft.codegen.cuda.ptxas_defects import without_fused_borrow
from weft.te.lower import lower

QUOTIENTS = """.visible .entry f(
)
{
\t.reg .b32 \t%r<9>;
$L__BB0_1:
\tmul.hi.u32 \t%r2, %r1, 1431655766;
\tmul.hi.u32 \t%r3, %r1, -5;
\tcvt.u64.u32 \t%rd1, %r2;
\tcvt.u64.u32 \t%rd2, %r4;
\tsub.s64 \t%rd3, %rd1, %rd2;
}
"""


def test_extended_high_words_are_shifted_products():
    lines = without_fused_borrow(QUOTIENTS).splitlines()
    assert "\tmul.wide.u32 \t%product_r2, %r1, 1431655766;" in lines
    assert "\tshr.u64 \t%rd1, %product_r2, 32;" in lines
    assert "\tcvt.u64.u32 \t%rd2, %r4;" in lines
    assert lines.index("\t.reg .b64 \t%product_r2;") == 3
    assert len(lines) == len(QUOTIENTS.splitlines()) + 2  # nothing for %r3, which stays narrow


def test_registers_with_two_values_are_left_alone():
    twice = QUOTIENTS.replace("\tsub.s64", "\t@%p1 mov.b32 \t%r2, 0;\n\tsub.s64")
    assert without_fused_borrow(twice) == twice


@pytest.mark.parametrize("divisor", [3, 5, 7])
def test_differences_of_quotients(divisor: int):
    out = te.compute((64,), lambda i: tir.cast((i * 5 + 1) // divisor - i * 5 // divisor,
                                               "float32"), name="out")
    found = np.empty(64, np.float32)
    run_emulated(lower(te.create_schedule(out), [out], "f"), [], [found])
    i = np.arange(64) * 5
    np.testing.assert_array_equal(found, (i + 1) // divisor - i // divisor)
