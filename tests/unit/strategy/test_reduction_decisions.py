"""Groups with reductions: which loop structure is chosen, and why the others lost."""

from __future__ import annotations

import numpy as np
import pytest

from tests.unit.strategy.kernels import WIDE_CPU, primitive
from weft import op
from weft.ir.expr import var
from weft.ir.op import OPS
from weft.ir.traits import Family
from weft.strategy.cpu.reduction.decide import ReductionAlgorithm
from weft.strategy.decision import decision_of

REDUCTION_OPS = [name for name in OPS if OPS.get(name).traits.family is Family.REDUCTION]
POOL_OPS = [name for name in OPS
            if OPS.get(name).traits.family in (Family.MAX_POOL, Family.AVG_POOL)]
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


@pytest.mark.parametrize("name", [*REDUCTION_OPS, *POOL_OPS])
def test_all_cases_of_all_operators_are_decided(name):
    record = OPS.get(name)
    decided = 0
    for case in record.hook("cases"):
        shapes = [x.shape if isinstance(x, np.ndarray) else x for x in case.inputs]
        params = [var(f"x{i}", shape, case.dtypes[min(i, len(case.dtypes) - 1)])
                  for i, shape in enumerate(shapes)]
        decision = decision_of(primitive(params, record(*params, **case.attrs)).body, WIDE_CPU)
        assert decision is not None
        assert decision.seconds >= 0
        decided += 1
    assert decided
