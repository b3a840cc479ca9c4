"""Every case of every operator with symbols for its sizes, compiled once, run at several sizes.

A run draws one case of each operator.

What does not work is in ``symbolic_exceptions.py``, with reasons; a listed case that works fails
here, so that the list only shrinks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fnmatch import fnmatch
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.sampling import one_of_each
from tests.unit.op.harness import all_cases, assert_close, name_of, table_of
from tests.unit.op.symbolic_exceptions import REFUSED, WRONG, fixed_inputs, reason_for
from tests.unit.op.symbolic_form import SymbolicForm, SymbolicKernel, expected_at, symbolic_form
from weft import op as catalogue
from weft.ir.dynamic import needs_values
from weft.ir.op import OPS, Case
from weft.ir.symbol import SizeRange
from weft.support.errors import WeftError
from weft.target import CpuTarget

assert catalogue.__all__, "the import registers the operators"

_SIZES = (0, 1, 2, 3, 5, 7, 16, 17, 33)
_MAX_ELEMENTS = 3000  # of an input; the references of convolutions are loops in Python


CASES = [id_ for id_ in all_cases() if not needs_values(OPS.get(name_of(id_)))]


@pytest.mark.sample(0.25)
@pytest.mark.parametrize(("name", "one"), table_of(one_of_each("symbolic", CASES, name_of)))
def test_a_kernel_for_all_sizes(name: str, one: Case, request: pytest.FixtureRequest) -> None:
    case = request.node.callspec.id
    refused, wrong = reason_for(REFUSED, case), reason_for(WRONG, case)
    try:
        tried = run_case(name, one)
    except WeftError as error:
        if refused is None:
            raise AssertionError(f"{case} is refused") from error
        return
    except (AssertionError, IndexError, ZeroDivisionError):
        if wrong is None:
            raise
        return
    if tried:
        assert not refused, f"{case} works: delete it from REFUSED ({refused})"
        assert not wrong, f"{case} works: delete it from WRONG ({wrong})"


def test_every_exception_is_about_a_case() -> None:
    cases = [f"{name}-{i}" for name in OPS for i in range(len(OPS.get(name).cases))]
    for listed in (REFUSED, WRONG):
        for pattern in listed:
            assert any(fnmatch(case, pattern) for case in cases), pattern


def run_case(name: str, one: Case) -> int:
    """Compile the symbolic form and compare it with the reference; the number of sizes tried."""
    form = symbolic_form(OPS.get(name), one, fixed_inputs(name))
    if form is None:
        return 0
    kernel, tried = SymbolicKernel(form, CpuTarget.host()), set[tuple[tuple[str, int], ...]]()

    def check(sizes: Mapping[str, int]) -> None:
        arrays = form.inputs(sizes)
        expected = expected_at(form, sizes, arrays)
        if expected is None:
            return
        for got, want in zip(kernel.run(arrays, sizes), expected, strict=True):
            assert_close(got, want, one)
        tried.add(tuple(sizes.items()))

    check(form.sizes)
    if form.free:
        settings(max_examples=4, deadline=None, derandomize=True, report_multiple_bugs=False,
                 suppress_health_check=list(HealthCheck))(given(_draws(form))(check))()
    return len(tried)


def _draws(form: SymbolicForm) -> st.SearchStrategy[dict[str, int]]:
    """Sizes of the free symbols, for which inputs are small; the others are as in the case."""
    sizes = {s: _sizes(form.free[s]) if s in form.free else st.just(size)
             for s, size in form.sizes.items()}
    return st.fixed_dictionaries(sizes).filter(lambda drawn: all(
        np.prod(a.shape) <= _MAX_ELEMENTS for a in _arrays(form.at(drawn).inputs)))


def _sizes(sizes: SizeRange) -> st.SearchStrategy[int]:
    if sizes.multiple > 1:
        return st.sampled_from([sizes.low * n for n in (1, 2, 3, 5)])
    inside = [size for size in (*_SIZES, sizes.low, sizes.low + 1) if size in sizes]
    return st.sampled_from(inside) | st.integers(sizes.low, sizes.low + 40).filter(
        lambda size: size in sizes)


def _arrays(inputs: Any) -> Iterator[Any]:
    for spec in inputs:
        if isinstance(spec, list):
            yield from _arrays(spec)
        else:
            yield spec if isinstance(spec, (np.ndarray, np.generic)) else np.broadcast_to(0, spec)
