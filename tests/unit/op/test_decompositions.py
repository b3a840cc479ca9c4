"""Decompositions of operators compute the same values, over the operators' own cases."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
import pytest

from tests.unit.op.harness import (
    assert_close,
    flatten,
    make_call,
    make_inputs,
    output_types,
    parameters_of,
    reference_outputs,
)
from weft import op
from weft.ir.expr import Call, Function
from weft.ir.module import IRModule
from weft.ir.op import OPS, Case
from weft.ir.typing.infer import infer_type
from weft.ir.visitor import post_order
from weft.transform.analysis.reference import evaluate
from weft.transform.autodiff.reverse.expand_for_gradient import ExpandForGradient
from weft.transform.passes.canonicalize_ops import CanonicalizeOps, decomposed

assert op.__all__, "the import registers the operators"

Rewrite = Callable[[IRModule], IRModule]


def _reduced(module: IRModule) -> IRModule:
    main = module["main"]
    body = decomposed(main.body, "reduced_form") if isinstance(main.body, Call) else main.body
    return module.with_function("main", dataclasses.replace(main, body=body))


PASSES: dict[str, Rewrite] = {
    "decomposition": CanonicalizeOps(), "expansion": ExpandForGradient(), "reduced_form": _reduced}
CASES = [
    pytest.param(name, one, pass_, id=f"{name}-{table}-{i}")
    for table, pass_ in PASSES.items()
    for name in OPS
    if OPS.get(name).hook(table) is not None
    for i, one in enumerate(OPS.get(name).cases)
]


@pytest.mark.parametrize(("name", "one", "pass_"), CASES)
def test_simpler_operators_agree_with_the_reference(name: str, one: Case, pass_: Rewrite) -> None:
    operator = OPS.get(name)
    arrays = make_inputs(operator, one)
    call = make_call(operator, one, arrays)
    module = infer_type(IRModule.from_expr(Function(parameters_of(call), call)))
    simpler = infer_type(pass_(module))
    assert simpler["main"].body.checked_type == call.checked_type
    found = evaluate(simpler, flatten(arrays))
    results = found if isinstance(found, tuple) else (found,)
    for got, want in zip(results, reference_outputs(call, arrays), strict=True):
        assert_close(np.asarray(got), want, one)


@pytest.mark.parametrize(("name", "table"), sorted({(str(name), table) for table in PASSES
                                                    for name in OPS
                                                    if OPS.get(name).hook(table) is not None}))
def test_some_case_is_written_so(name: str, table: str) -> None:
    operator = OPS.get(name)
    for one in operator.cases:
        call = make_call(operator, one, make_inputs(operator, one))
        module = infer_type(IRModule.from_expr(Function(parameters_of(call), call)))
        simpler = PASSES[table](module)["main"]
        if not any(isinstance(e, Call) and e.op is operator for e in post_order(simpler)):
            assert output_types(call.checked_type)
            return
    pytest.fail(f"{name} is never written by simpler operators")
