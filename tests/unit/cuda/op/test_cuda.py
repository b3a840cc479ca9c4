"""The cases of operators, compiled for a GPU and run by the emulator.

The suite runs the first case of a fifth of the operators with LLVM's PTX. ``make test-cuda`` runs
all cases with the PTX of LLVM and of libnvvm.
"""

from __future__ import annotations

import pytest

from tests.sampling import sampled
from tests.unit.cuda.op.cuda_cases import TARGETS, case_ids, run_case
from tests.unit.cuda.op.cuda_exceptions import FAILING, ON_HOST, reason_for
from weft.support.errors import WeftError


# Programs with sizes of data are run by the host, which says so.
@pytest.mark.filterwarnings("ignore::weft.support.fallback.FallbackWarning")
@pytest.mark.parametrize(("name", "number"), [
    pytest.param(*case, id=f"{case[0]}-{case[1]}")
    for case in sampled("cuda", case_ids(first=True), 0.2)])
def test_a_case_of_each_operator(name: str, number: int) -> None:
    case = f"{name}-{number}"
    if reason_for(FAILING["nvptx"], case) is not None:
        with pytest.raises((AssertionError, WeftError)):
            run_case(name, number, TARGETS[0])
        return
    on_device = run_case(name, number, TARGETS[0])
    assert on_device == (reason_for(ON_HOST, case) is None)
