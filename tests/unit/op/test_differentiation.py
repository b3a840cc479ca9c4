"""The derivatives of all operators, over all their cases, are the slopes of what they compute.

A run draws one case of each operator.
"""

from __future__ import annotations

import numpy as np
import pytest

from tests.sampling import one_of_each
from tests.unit.op.differentiation import NothingToProveError, prove
from tests.unit.op.differentiation_exceptions import CONSTANT, reason_for
from tests.unit.op.harness import CaseId, all_cases, case_of, name_of
from weft import op as catalogue
from weft.ir.op import OPS
from weft.support.errors import WeftError

assert catalogue.__all__, "the import registers the operators"


@pytest.mark.parametrize("case", one_of_each("differentiation", all_cases(), name_of),
                         ids=lambda case: f"{case[0]}-{case[1]}")
def test_gradients_are_slopes(case: CaseId) -> None:
    """Of the first and the second order, in both modes, on the reference interpreter."""
    name, number = case
    operator, one = OPS.get(name), case_of(case)
    reason = reason_for(f"{name}-{number}") or operator.no_gradient_reason
    try:
        prove(operator, one, constant=CONSTANT.get(name, ()))
    except NothingToProveError as nothing:
        pytest.skip(str(nothing) or "nothing to prove")
    except (AssertionError, WeftError, np.linalg.LinAlgError):
        if reason is None:
            raise
        return
    assert reason is None, f"{name}-{number} is proved, although listed: {reason}"
