"""Passes keep the values of random programs with choices, tuples, closures and loops."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.unit.transform.helpers import check_values, random_inputs
from tests.unit.transform.random_programs import programs
from weft.ir.passes import PassContext, parse_pipeline
from weft.ir.structural import assert_structural_equal
from weft.ir.text.parser import parse
from weft.ir.typing.infer import infer_type
from weft.transform.analysis.reference import evaluate
from weft.transform.autodiff.reverse.gradient import Gradient

NAMES = (
    "annotate_spans",
    "canonicalize_cast",
    "canonicalize_ops",
    "combine_parallel_batch_matmul{min_branches=2}",
    "combine_parallel_conv2d{min_branches=2}",
    "combine_parallel_dense{min_branches=2}",
    "combine_parallel_op{op=tanh,min_branches=2}",
    "convert_layout{layouts=(nn.conv2d:NHWC:HWIO)}",
    "dead_code_elimination",
    "dedup",
    "dynamic_to_static",
    "defunctionalization",
    "eliminate_common_subexpr",
    "eliminate_identity",
    "eta_expand{global_var=true}",
    "expand_for_gradient",
    "fast_math",
    "fixed_point{passes=(simplify_expr fold_constant eliminate_identity)}",
    "fold_constant",
    "fold_scale_axis",
    "fuse_ops",
    "inline",
    "lambda_lift",
    "lazy_gradient_init",
    "partial_eval{max_depth=4}",
    "recompute{distance=3}",
    "simplify_expr",
    "simplify_inference",
    "to_a_normal_form",
    "to_basic_block_normal_form",
    "to_graph_normal_form",
)
EVERY_PASS = PassContext(opt_level=4)
bounded = settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True
)


@pytest.mark.sample(0.5)
@pytest.mark.parametrize("name", NAMES)
@bounded
@given(mod=programs(control=True))
def test_each_pass_keeps_values(name, mod):
    check_values(mod, parse_pipeline(name)(mod, EVERY_PASS), rtol=1e-4)


@bounded
@given(mod=programs(control=True), names=st.lists(st.sampled_from(NAMES), min_size=2, max_size=6))
def test_random_sequences_keep_values(mod, names):
    check_values(mod, parse_pipeline(",".join(names))(mod, EVERY_PASS), rtol=1e-3)


@bounded
@given(mod=programs(control=True))
def test_programs_after_passes_print_and_parse(mod):
    after = parse_pipeline("lambda_lift,to_basic_block_normal_form,recompute{distance=3}")(mod)
    again = infer_type(parse(str(after)))
    check_values(after, again)
    assert_structural_equal(infer_type(parse(str(again))), again)


@bounded
@given(mod=programs(max_steps=6, control=True),
       name=st.sampled_from(["to_a_normal_form", "lambda_lift", "simplify_expr,fold_constant",
                             "to_basic_block_normal_form", "eliminate_common_subexpr"]))
def test_gradients_do_not_depend_on_the_form_of_the_program(mod, name):
    inputs = random_inputs(mod["main"])
    differentiate = Gradient(training=False)
    _, first = evaluate(differentiate(mod), inputs)
    _, second = evaluate(differentiate(parse_pipeline(name)(mod)), inputs)
    for a, b in zip(first, second, strict=True):
        scale = max(1.0, float(np.abs(a).max()))
        np.testing.assert_allclose(b, a, rtol=1e-3, atol=1e-3 * scale)
