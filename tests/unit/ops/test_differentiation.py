"""The derivatives of all operators, over all their cases, are the slopes of what they compute."""

from __future__ import annotations

import numpy as np
import pytest

from tests.unit.ops.differentiation import NothingToProveError, prove
from tests.unit.ops.differentiation_exceptions import CONSTANT, reason_for
from weft import op as catalogue
from weft.ir.op import OPS, Case
from weft.support.errors import WeftError

assert catalogue.__all__, "the import registers the operators"

CASES = [pytest.param(name, number, one, id=f"{name}-{number}")
         for name in OPS for number, one in enumerate(OPS.get(name).cases)]


@pytest.mark.parametrize(("name", "number", "one"), CASES)
def test_gradients_are_slopes(name: str, number: int, one: Case) -> None:
    """Of the first and the second order, in both modes, on the reference interpreter."""
    operator = OPS.get(name)
    reason = reason_for(f"{name}-{number}") or operator.no_gradient_reason
    try:
        prove(operator, one, constant=CONSTANT.get(name, ()))
    except NothingToProveError:
        return
    except (AssertionError, WeftError, np.linalg.LinAlgError):
        if reason is None:
            raise
        return
    assert reason is None, f"{name}-{number} is proved, although listed: {reason}"
