"""Passes keep the values of random programs, alone and one after the other."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings

from tests.unit.transform.helpers import check_values, op_calls
from tests.unit.transform.random_programs import programs
from weft.ir.passes import PASSES, Sequential, parse_pipeline
from weft.transform import DefuseOps, FuseOps

NAMES = (
    "canonicalize_ops",
    "simplify_inference",
    "fold_constant",
    "simplify_expr",
    "fold_scale_axis",
    "eliminate_common_subexpr",
    "dead_code_elimination",
    "fuse_ops",
    "fuse_ops{max_depth=2,reduce_epilogue=true}",
    "defuse_ops",
    "to_a_normal_form",
    "to_graph_normal_form",
)
bounded = settings(
    max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True
)


@pytest.mark.parametrize("name", NAMES)
@bounded
@given(mod=programs())
def test_each_pass_keeps_values(name, mod):
    pass_ = parse_pipeline(name)
    after = pass_(mod)
    check_values(mod, after, rtol=1e-4)


@pytest.mark.parametrize("name", [n for n in NAMES if n != "to_a_normal_form"])
@bounded
@given(mod=programs())
def test_a_second_run_finds_nothing(name, mod):
    pass_ = parse_pipeline(name)
    once = pass_(mod)
    assert op_calls(pass_(once)) == op_calls(once)


@bounded
@given(mod=programs(max_steps=16))
def test_all_passes_in_order_keep_values(mod):
    check_values(mod, parse_pipeline(",".join(NAMES))(mod), rtol=1e-4)


@bounded
@given(mod=programs(max_steps=16))
def test_every_operator_is_in_one_kernel_or_an_alias(mod):
    fused = FuseOps()(mod)
    back = DefuseOps()(fused)
    assert sorted(op_calls(fused)) == sorted(op_calls(mod))
    assert op_calls(back) == op_calls(mod)


def test_passes_are_registered_and_print_as_they_parse():
    for name in NAMES:
        pipeline = parse_pipeline(name)
        assert isinstance(pipeline, Sequential)
        assert parse_pipeline(str(pipeline)) == pipeline
        assert pipeline.passes[0].name in PASSES
