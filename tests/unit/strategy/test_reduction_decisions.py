"""Groups with reductions: which loop structure is chosen, and why the others lost."""

from __future__ import annotations

import pytest

from tests.unit.strategy.kernels import WIDE_CPU, primitive
from weft import op
from weft.ir.expr import var
from weft.ir.op import OPS
from weft.strategy.cpu.reduction.decide import REDUCTION_OPS, ReductionAlgorithm
from weft.strategy.decision import decision_of

OTHERS = set(ReductionAlgorithm)


@pytest.mark.parametrize(("shape", "call", "algorithm", "reasons"), [
    ((64, 512), lambda x: op.nn.softmax(x, axis=-1), "rows",
     {"column_blocks": "contiguous axis", "separate": "times as long"}),
    ((2, 64, 32, 32), lambda x: op.nn.softmax(x, axis=1), "column_blocks",
     {"rows": "share more axes", "separate": "times as long"}),
    ((1 << 20,), lambda x: op.sum(x, axis=(0,)), "separate",
     {"rows": "no leading axis", "column_blocks": "contiguous axis"}),
    ((2, 1 << 20), lambda x: op.sum(x, axis=(1,)), "separate", {"rows": "too few results"}),
], ids=["softmax of rows", "softmax of columns", "one sum", "two sums"])
def test_the_stages_decide_the_loop_structure(shape, call, algorithm, reasons):
    x = var("x", shape)
    decision = decision_of(primitive([x], call(x)).body, WIDE_CPU)
    assert decision.algorithm == algorithm, str(decision)
    found = {r.algorithm: r.reason for r in decision.rejected}
    assert set(found) == OTHERS - {algorithm}
    assert all(reason in found[name] for name, reason in reasons.items())
    assert decision.seconds > 0


@pytest.mark.parametrize("name", REDUCTION_OPS)
def test_decisions_are_for_operators_that_reduce(name):
    assert OPS.get(name).compute is not None
